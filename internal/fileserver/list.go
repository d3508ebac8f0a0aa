package fileserver

import (
	"context"
	"sync"
	"time"
)

// A list costs a walk over the whole tree, and whoever asks gets one that was begun
// after that: a file that was there by then is in it. Those who ask meanwhile share the
// next walk. Each walk is paid for with pauseFactor times as long, at most maxPause; what
// is due beyond burst is waited for. So who asks without end keeps the disk busy for a
// small part of the time; whoever asks meanwhile waits for the next walk, too.
const (
	pauseFactor = 9
	maxPause    = 10 * time.Second
	burst       = 5 * time.Second
)

// lists remembers the lists of environments.
type lists struct {
	mu sync.Mutex
	of map[string]*listing
}

// listing is the list of one environment; who holds the turn may read and write it.
type listing struct {
	turn  chan struct{}
	files []File
	began time.Time // when the walk did that found them
	paid  time.Time // when the walks so far are paid for
}

// get returns the list of an environment as walk finds it from now on. The list is
// shared: nobody changes it.
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

// pause waits until no more than the burst is due.
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
