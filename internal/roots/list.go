package roots

import (
	"context"
	"sync"
	"time"
)

// A list costs a walk over the whole tree. It is used again for restFactor times as
// long as the walk took, and at most maxRest: those who ask without end keep the disk
// busy for a small part of the time, and the list of a small tree is never older than
// somebody can notice.
const (
	restFactor = 10
	maxRest    = 10 * time.Second
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
	until time.Time // when it is too old
}

// get returns the list of an environment, or has walk make it. Those who ask
// meanwhile wait for it. The list is shared: nobody changes it.
func (l *lists) get(ctx context.Context, env string, walk func() ([]File, error)) ([]File, error) {
	l.mu.Lock()
	if l.of == nil {
		l.of = map[string]*listing{}
	}
	one := l.of[env]
	if one == nil {
		one = &listing{turn: make(chan struct{}, 1)}
		l.of[env] = one
	}
	l.mu.Unlock()
	select {
	case one.turn <- struct{}{}:
		defer func() { <-one.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if time.Now().Before(one.until) {
		return one.files, nil
	}
	began := time.Now()
	files, err := walk()
	if err != nil {
		return nil, err
	}
	one.files, one.until = files, time.Now().Add(min(restFactor*time.Since(began), maxRest))
	return files, nil
}
