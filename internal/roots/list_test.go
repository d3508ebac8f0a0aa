package roots

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Whoever asks without end has the tree walked over for a tenth of the time.
func TestListsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for took, span := range map[time.Duration]time.Duration{time.Millisecond: time.Second, time.Second: time.Minute, 5 * time.Second: 5 * time.Minute} {
			var l lists
			walks := 0
			walk := func() ([]File, error) {
				walks++
				<-time.After(took)
				return []File{{Path: "a"}}, nil
			}
			var askers sync.WaitGroup
			for range 5 {
				askers.Go(func() {
					for end := time.Now().Add(span); time.Now().Before(end); <-time.After(took / 10) {
						if files, err := l.get(t.Context(), "base", walk); err != nil || len(files) != 1 {
							t.Errorf("%v, %v", files, err)
						}
					}
				})
			}
			askers.Wait()
			if most := int(span/(took+min(10*took, maxRest))) + 2; walks > most || walks < most/2 {
				t.Errorf("walks of %s: %d in %s, want about %d", took, walks, span, most)
			}
		}
	})
}

// A walk that fails, or whose asker has gone, is not remembered.
func TestListsForgetFailures(t *testing.T) {
	var l lists
	if _, err := l.get(t.Context(), "base", func() ([]File, error) { return nil, errors.New("no disk") }); err == nil {
		t.Error("the error of the walk is lost")
	}
	files, err := l.get(t.Context(), "base", func() ([]File, error) { return []File{{Path: "a"}}, nil })
	if err != nil || len(files) != 1 {
		t.Errorf("after a failure: %v, %v", files, err)
	}
	held := make(chan struct{})
	release := make(chan struct{})
	go l.get(t.Context(), "dev", func() ([]File, error) { close(held); <-release; return nil, nil }) //nolint:errcheck // of no interest
	<-held
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.get(ctx, "dev", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("an asker that has gone: %v", err)
	}
	close(release)
}
