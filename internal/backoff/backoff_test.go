package backoff

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPausesDoubleUpToTheLongest(t *testing.T) {
	for _, test := range []struct {
		name           string
		first, longest time.Duration
		want           []time.Duration
	}{
		{"usual", 100, 350, []time.Duration{100, 200, 350, 350}},
		{"a first one that is longer", 500, 350, []time.Duration{500, 350, 350}},
		{"none", 0, 350, []time.Duration{0, 0, 0}},
	} {
		var p Pauses
		for range 2 { // the same again after a success
			for i, want := range test.want {
				if got := p.Next(test.first, test.longest); got != want {
					t.Errorf("%s: pause %d is %d, want %d", test.name, i, got, want)
				}
			}
			p.Reset()
		}
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !Sleep(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("it slept for %v", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if Sleep(ctx, time.Minute) || time.Since(began) != time.Second {
			t.Errorf("its context ended, and it slept for %v", time.Since(began))
		}
	})
}
