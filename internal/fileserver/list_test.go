package fileserver

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Lists that are asked for without end use a tenth of the time, beyond what may be used at once,
// and each list was begun after it was asked for.
func TestListsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for took, span := range map[time.Duration]time.Duration{time.Millisecond: time.Minute, 100 * time.Millisecond: 10 * time.Minute, 5 * time.Second: time.Hour} {
			var l lists
			walks := 0
			walk := func() ([]File, error) {
				walks++
				began := time.Now().UnixNano()
				<-time.After(took)
				return []File{{Path: "a", Size: began}}, nil
			}
			var callers sync.WaitGroup
			for range 5 {
				callers.Go(func() {
					for end := time.Now().Add(span); time.Now().Before(end); <-time.After(took / 10) {
						asked := time.Now().UnixNano()
						if files, err := l.get(t.Context(), "base", walk); err != nil || len(files) != 1 || files[0].Size < asked {
							t.Errorf("%v, %v, asked for at %d", files, err, asked)
						}
					}
				})
			}
			callers.Wait()
			price := took + min(pauseFactor*took, maxPause)
			if most := int((span+burst)/price) + 2; walks > most || walks < most*9/10 {
				t.Errorf("walks of %s: %d in %s, want about %d", took, walks, span, most)
			}
		}
	})
}

// A walk that fails, or whose principal has gone, is not remembered.
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
		t.Errorf("a principal that has gone: %v", err)
	}
	close(release)
}
