package eauth

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
)

// Limits of logins. A source is a local user, by the kernel's word.
const (
	// maxOfSource is how many logins of one source are looked at at a time:
	// enough for a program that logs people in, and never all of a backend.
	maxOfSource = 2
	// maxTokensOfSource is the same of tokens, which cost a look at the store and
	// every five seconds one at the account.
	maxTokensOfSource = 16
	// maxOfBackend is how many a backend looks at at a time. Hashes are made to
	// be slow, and a child process is started for PAM.
	maxOfBackend = 8
	// maxFailed is how many logins of one source may fail in a row, and
	// forgiveAfter how long one of them counts.
	maxFailed    = 10
	forgiveAfter = 2 * time.Second
	// failTime is how long a failed login takes at least, whatever was wrong.
	failTime = 700 * time.Millisecond
	// maxSources bounds the memory for sources: there are as many as local users.
	maxSources = 10_000
)

// limiter bounds the logins of each source. The zero value is that of passwords. What counts
// against a source is known only when a login has ended, and meanwhile it holds its turn: so it
// is neither a rate of requests nor a semaphore alone.
type limiter struct {
	atATime int // of one source; 0 is maxOfSource
	mu      sync.Mutex
	sources map[string]*source
}

type source struct {
	slots  chan struct{}
	users  int     // that hold or await a slot
	failed float64 // logins, less those that are forgiven
	since  time.Time
}

// enter waits for a turn of the source. It returns ErrBusy when too many of its
// logins have failed. After leave, which tells whether this one did, the turn is
// another's.
func (l *limiter) enter(ctx context.Context, from string) (leave func(failed bool), err error) {
	s := l.take(from)
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		l.give(from, s, false)
		return nil, context.Cause(ctx)
	}
	if wait := l.wait(s); wait > 0 {
		<-s.slots
		l.give(from, s, false)
		return nil, fmt.Errorf("%w of this user have failed: wait %s", ErrBusy, wait.Round(time.Second)+time.Second)
	}
	return func(failed bool) {
		<-s.slots
		l.give(from, s, failed)
	}, nil
}

func (l *limiter) take(from string) *source {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sources == nil {
		l.sources = map[string]*source{}
	}
	s := l.sources[from]
	if s == nil {
		if len(l.sources) >= maxSources {
			l.forget()
		}
		s = &source{slots: make(chan struct{}, cmp.Or(l.atATime, maxOfSource)), since: time.Now()}
		l.sources[from] = s
	}
	s.users++
	return s
}

func (l *limiter) give(from string, s *source, failed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.forgive(time.Now())
	if failed {
		s.failed++
	}
	if s.users--; s.users == 0 && s.failed == 0 {
		delete(l.sources, from)
	}
}

// forget drops the sources that nobody uses.
func (l *limiter) forget() {
	for from, s := range l.sources {
		if s.users == 0 {
			delete(l.sources, from)
		}
	}
}

// wait is how long the source has to wait before it may try again.
func (l *limiter) wait(s *source) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.forgive(time.Now())
	if over := s.failed - (maxFailed - 1); over > 0 {
		return time.Duration(over * float64(forgiveAfter))
	}
	return 0
}

func (s *source) forgive(now time.Time) {
	s.failed = max(0, s.failed-float64(now.Sub(s.since))/float64(forgiveAfter))
	s.since = now
}
