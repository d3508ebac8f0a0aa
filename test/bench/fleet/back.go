package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Pauses between attempts to connect, as a minion's daemon has them by default: each is
// twice the one before, with a random part of up to as much again.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = 10 * time.Second
)

// pause is the one behind so many attempts that failed.
func pause(attempts int) time.Duration {
	d := min(firstPause<<min(attempts, 16), mostPause)
	return d + rand.N(d)
}

// comebacks counts how often a member was connected again.
type comebacks struct {
	mu       sync.Mutex
	count    int
	reported int // of them were waited for
	news     chan struct{}
}

func (c *comebacks) one() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	if c.news != nil {
		close(c.news)
		c.news = nil
	}
}

// wait returns 1 when it has come back since the last time.
func (c *comebacks) wait(ctx context.Context) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.count == c.reported {
		if c.news == nil {
			c.news = make(chan struct{})
		}
		news := c.news
		c.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
		}
		c.mu.Lock()
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
	}
	c.reported = c.count
	return 1, nil
}
