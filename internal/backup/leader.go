package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/salt"
)

// A stream of a cluster without a leader is not given out, and nobody says so: the request for it has no answer.
var (
	// leaderTime is how long a backup waits until a stream has a leader: longer than an election, so that one that
	// is made every night does not fail for it.
	leaderTime = 15 * time.Second
	// leaderAsk is how long one answer about a stream may take meanwhile, and leaderPause the pause before the next.
	leaderAsk, leaderPause = 2 * time.Second, 200 * time.Millisecond
)

// errLeaderless is wrapped by the error about a stream without a leader.
var errLeaderless error = salt.Unanswered("it has no leader")

// about is what the server says about a stream.
type about struct {
	State struct {
		Bytes uint64 `json:"bytes"`
	} `json:"state"`
	Cluster *struct {
		Leader   string `json:"leader"`
		Replicas []struct {
			Name string `json:"name"`
		} `json:"replicas"`
	} `json:"cluster"`
}

// byLeader reports whether the leader of a stream has sent this: it lists the other members only. Without a leader each
// member with a copy answers.
func (a about) byLeader() bool {
	c := a.Cluster
	if c == nil {
		return true
	}
	for _, r := range c.Replicas {
		if r.Name == c.Leader {
			return false
		}
	}
	return c.Leader != ""
}

// ofLeader returns what the leader of a stream says about it. It waits for one, and no longer than leaderTime.
func ofLeader(ctx context.Context, nc *nats.Conn, name string) (about, error) {
	limited, cancel := context.WithTimeout(ctx, leaderTime)
	defer cancel()
	for {
		var a about
		err := askWithin(limited, nc, leaderAsk, "STREAM.INFO."+name, struct{}{}, &a)
		switch {
		case err == nil && a.byLeader():
			return a, nil
		case ctx.Err() != nil:
			return about{}, context.Cause(ctx)
		case err != nil && !isLeaderless(err):
			return about{}, fmt.Errorf("look at the stream %s: %w", name, err)
		}
		if !backoff.Sleep(limited, leaderPause) && ctx.Err() == nil {
			return about{}, salt.WithHint(fmt.Errorf("the stream %s cannot be backed up now: %w", name, errLeaderless),
				"the members elect one within 11 seconds if most of them are reached; 'salt-run cluster.status' shows below lacking_streams what is wrong")
		}
	}
}

// isLeaderless reports whether a request about a stream had no answer of a leader.
func isLeaderless(err error) bool {
	var f *fault
	return errors.Is(err, errUnanswered) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders) ||
		errors.As(err, &f) && slices.Contains([]int{codeUnavailable, codeNotLeader}, f.Code)
}
