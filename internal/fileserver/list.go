package fileserver

import (
	"context"
	"sync"
	"time"
)

// A list needs a walk over the whole tree. A request gets the result of a walk that began after the
// request, so a file that existed at that time is in it. Requests that arrive meanwhile share the
// next walk. After each walk there is a pause of pauseFactor times its duration, at most maxPause;
// up to burst, pauses are postponed. So a client that requests lists without end uses the disk only
// for a small part of the time; other requests during the pause wait for the next walk too.
const (
	pauseFactor = 9
	maxPause    = 10 * time.Second
	burst       = 5 * time.Second
)

// lists stores the lists of environments.
type lists struct {
	mu sync.Mutex
	of map[string]*listing
}

// listing is the list of one environment; only the holder of turn may read and write it.
type listing struct {
	turn  chan struct{}
	files []File
	began time.Time // when the walk that found them began
	paid  time.Time // when the pauses after all walks so far end
}

// get returns the list of an environment from a walk that begins after the call. The list is shared
// and must not be changed.
func (l *lists) get(ctx context.Context, env string, walk func() ([]File, error)) ([]File, error) {
	asked := time.Now()
	one := l.one(env)
	select {
	case one.turn <- struct{}{}:
		defer func() { <-one.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if one.began.After(asked) {
		return one.files, nil
	}
	if err := one.pause(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	files, err := walk()
	took := time.Since(began)
	if one.paid.Before(began) {
		one.paid = began
	}
	one.paid = one.paid.Add(took + min(pauseFactor*took, maxPause))
	if err != nil {
		return nil, err
	}
	one.files, one.began = files, began
	return files, nil
}

func (l *lists) one(env string) *listing {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string]*listing{}
	}
	if l.of[env] == nil {
		l.of[env] = &listing{turn: make(chan struct{}, 1)}
	}
	return l.of[env]
}

// pause waits until the postponed pauses are not longer than burst.
func (one *listing) pause(ctx context.Context) error {
	pause := time.NewTimer(time.Until(one.paid.Add(-burst)))
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
