package eauth

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"sync"
	"time"
)

// Limits of logins. A source is a local user, as reported by the kernel.
const (
	// maxOfSource is how many logins of one source are verified at a time: enough for a program
	// that logs in users, but never all slots of a backend.
	maxOfSource = 2
	// maxTokensOfSource is the same for tokens, which cost a read from the store, and every five
	// seconds a lookup of the account.
	maxTokensOfSource = 16
	// maxOfBackend is how many logins a backend verifies at a time. Hashes are slow by design, and
	// PAM needs a child process.
	maxOfBackend = 8
	// maxFailed is how many logins of one source may fail in a row, and forgiveAfter how long each
	// of them counts.
	maxFailed    = 10
	forgiveAfter = 2 * time.Second
	// failTime is the minimum time of a failed login, whatever was wrong.
	failTime = 700 * time.Millisecond
	// maxSources limits the memory for sources: there are as many as local users.
	maxSources = 10_000
)

// limiter limits the logins of each source. The zero value is for passwords. Whether a login counts
// as failed is known only at its end, and until then it occupies a slot: so neither a rate limit
// nor a semaphore alone is enough.
type limiter struct {
	atATime int // for one source; 0 is maxOfSource
	mu      sync.Mutex
	sources map[string]*source
}

type source struct {
	slots  chan struct{}
	users  int     // that hold or await a slot
	failed float64 // failed logins, less those that are forgiven
	since  time.Time
}

// enter waits for a slot of the source. It returns ErrBusy if too many of its logins have failed.
// leave frees the slot; its argument says whether this login failed.
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

// forget removes the sources that are not in use: those whose failures still count only if there
// are no others, so that new sources do not give all the old ones a new start.
func (l *limiter) forget() {
	idle := func(forgiven bool) func(string, *source) bool {
		return func(_ string, s *source) bool {
			s.forgive(time.Now())
			return s.users == 0 && (!forgiven || s.failed == 0)
		}
	}
	if maps.DeleteFunc(l.sources, idle(true)); len(l.sources) >= maxSources {
		maps.DeleteFunc(l.sources, idle(false))
	}
}

// wait returns how long the source must wait before the next attempt.
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
