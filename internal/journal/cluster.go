package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/backoff"
)

// newFence is the fence for a writer of this stream, whose subjects begin with root; "" is a stream
// without terms.
func newFence(s jetstream.Stream, js jetstream.JetStream, root string, turn *Turn) *fence {
	prefix := func(c jetstream.StreamConfig) string {
		if root == "" {
			return ""
		}
		return termPrefix(c)
	}
	return &fence{
		prefix: prefix(s.CachedInfo().Config), turn: turn,
		mark: func(ctx context.Context, prefix string) (uint64, error) {
			return mark(ctx, js.Conn(), prefix, behindNewest(ctx, s))
		},
		last: func(ctx context.Context) (end uint64, now string, err error) {
			info, err := leaderInfo(ctx, s)
			if err != nil {
				return 0, "", err
			}
			return info.State.LastSeq, prefix(info.Config), nil
		},
		begin: func(ctx context.Context) (string, uint64, error) {
			return change(ctx, js, s.CachedInfo().Config, root, openTerm, behindNewest(ctx, s))
		},
		read: func(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) { return s.GetMsg(ctx, seq) },
	}
}

// errNoLeader is the error for information about a stream that does not come from its leader.
var errNoLeader = &jetstream.APIError{Code: http.StatusServiceUnavailable, ErrorCode: noLeader, Description: "the stream has no leader"}

// leaderInfo returns the state of a stream as its leader has it, which is everything that was ever
// acknowledged. While a stream has no leader, each member with a copy answers, too: with what it
// has applied, which may lack the newest messages. That is an error here.
func leaderInfo(ctx context.Context, s jetstream.Stream, opts ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	info, err := s.Info(ctx, opts...)
	if err == nil && !byLeader(info.Cluster) {
		return nil, errNoLeader
	}
	return info, err
}

// byLeader reports whether the leader of a stream has sent this: it lists the other members only.
func byLeader(c *jetstream.ClusterInfo) bool {
	return c == nil || c.Leader != "" && !slices.ContainsFunc(c.Replicas, func(r *jetstream.PeerInfo) bool { return r.Name == c.Leader })
}

// newest returns the newest message with one of the subjects, any without one, as the leader has it;
// nil if there is none.
func (j *source) newest(ctx context.Context, subjects []string) (*jetstream.RawStreamMsg, error) {
	if len(subjects) == 0 {
		subjects = []string{">"}
	}
	found, errs := make([]*jetstream.RawStreamMsg, len(subjects)), make([]error, len(subjects))
	var all sync.WaitGroup
	for i, subject := range subjects {
		all.Go(func() {
			errs[i] = j.ask(ctx, func(ctx context.Context) (err error) {
				found[i], err = j.stream.GetLastMsgForSubject(ctx, subject)
				return err
			})
		})
	}
	all.Wait()
	var last *jetstream.RawStreamMsg
	for i, m := range found {
		switch {
		case errors.Is(errs[i], jetstream.ErrMsgNotFound):
		case errs[i] != nil:
			return nil, errs[i]
		case last == nil || m.Sequence > last.Sequence:
			last = m
		}
	}
	return last, nil
}

// gone reports whether nothing is stored any more from one sequence to another.
func (j *source) gone(ctx context.Context, from, to uint64) bool {
	m, err := j.stream.GetMsg(ctx, from, jetstream.WithGetMsgSubject(">"))
	if !errors.Is(err, jetstream.ErrMsgNotFound) {
		return err == nil && m.Sequence > to
	}
	info, err := leaderInfo(ctx, j.stream) // a server that led before may only lack the newest messages
	return err == nil && info.State.FirstSeq > to
}

// Intervals of keepLead.
const (
	leadFirst = 2 * time.Second // after the start
	leadAgain = time.Second     // while something is led by another member
	leadEvery = 2 * time.Second // an election may give it to another member at any time, whose end would be waited for
)

// keepLead makes this member the leader of what it alone writes, if it has all of it: that saves
// a network round trip for each message, and when another member dies nothing here waits until
// the others have elected a leader.
//
// The one who leads gives way at once, and a member that cannot lead then leaves the stream without a leader until the
// others have elected one. So current is asked first, and a member that has not got the lead asks less and less often.
func (j *Journal) keepLead(server string, current func(stream string) bool) {
	pause := time.NewTimer(leadFirst)
	defer pause.Stop()
	tries := leadTries{}
	for {
		select {
		case <-pause.C:
		case <-j.closed:
			return
		case <-j.stop:
			return
		}
		if j.yields.Load() {
			return
		}
		all := true
		for _, s := range append(j.led.all(), j.stream) {
			ctx, cancel := context.WithTimeout(context.Background(), apiTime)
			name := s.CachedInfo().Config.Name
			may := func() bool { return tries.may(name, time.Now()) && isCurrent(ctx, name, current) }
			leader, asked, err := j.lead(ctx, s, server, may) // tried again later
			switch {
			case asked:
				tries.failed(name, time.Now()) // unless it leads at the next look
			case err == nil && leader == server:
				delete(tries, name)
			}
			all = all && err == nil && leader == server
			cancel()
		}
		if j.led.whole.Store(all); all {
			pause.Reset(leadEvery)
		} else {
			pause.Reset(leadAgain)
		}
	}
}

// Yield makes this member take back nothing that another one leads.
func (j *Journal) Yield() {
	j.yields.Store(true)
	j.led.whole.Store(false)
}

// Leads reports whether the member of a journal led all that it has to, when it looked last, and can
// store something. Then the end of another member delays nothing that it stores.
func Leads(j *Journal) bool { return j.led.whole.Load() && j.writer.store.Err() == nil }

// led are the streams, beside its events, that a member leads, by name.
type led struct {
	whole  atomic.Bool // it led all of them at the last look
	mu     sync.Mutex
	byName map[string]jetstream.Stream
}

func (l *led) add(s jetstream.Stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byName == nil {
		l.byName = map[string]jetstream.Stream{}
	}
	l.byName[s.CachedInfo().Config.Name] = s
}

func (l *led) all() []jetstream.Stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.byName))
}

// Lead makes the member with this name the leader of the journal's stream, if it has all of it.
// Writers wait until that is done.
func (j *Journal) Lead(ctx context.Context, server string) error {
	_, _, err := j.lead(ctx, j.stream, server, func() bool { return true })
	return err
}

// leadTries are the streams for whose lead a member has asked without getting it, by name.
type leadTries map[string]leadTry

type leadTry struct {
	next  time.Time
	pause time.Duration
}

// Pauses between two tries to lead a stream.
const (
	leadPause    = 5 * time.Second // a member that is elected after the first one serves for a while
	maxLeadPause = time.Minute
)

func (t leadTries) may(stream string, now time.Time) bool { return !now.Before(t[stream].next) }

func (t leadTries) failed(stream string, now time.Time) {
	pause := min(max(2*t[stream].pause, leadPause), maxLeadPause)
	t[stream] = leadTry{now.Add(pause), pause}
}

// isCurrent asks several times: while messages come, a copy has all of them only at some moments.
func isCurrent(ctx context.Context, stream string, current func(stream string) bool) bool {
	if current == nil {
		return true
	}
	for range currentLooks {
		if current(stream) {
			return true
		}
		if !backoff.Sleep(ctx, currentPause) {
			return false
		}
	}
	return false
}

const (
	currentLooks = 10
	currentPause = 20 * time.Millisecond
)

// lead returns the member that led the stream before, and whether it was asked to give way; may is asked before that.
func (j *Journal) lead(ctx context.Context, s jetstream.Stream, server string, may func() bool) (leader string, asked bool, err error) {
	info, err := leaderInfo(ctx, s)
	if err != nil || info.Cluster == nil {
		return "", false, err
	}
	if leader = info.Cluster.Leader; leader == server {
		return leader, false, nil
	}
	for _, r := range info.Cluster.Replicas {
		if r.Name != server {
			continue
		}
		if !r.Current || r.Offline || !may() {
			return leader, false, nil
		}
		body, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": server}})
		if err != nil {
			return leader, false, err
		}
		_, err = j.js.Conn().RequestWithContext(ctx, jetstream.DefaultAPIPrefix+"STREAM.LEADER.STEPDOWN."+info.Config.Name, body)
		return leader, true, err
	}
	return leader, false, nil
}

// Leader returns the name of the member that leads the stream of this journal, "" while there
// is none or without a cluster.
func (j *Journal) Leader(ctx context.Context) (string, error) {
	info, err := j.info(ctx)
	if err != nil || info.Cluster == nil {
		return "", err
	}
	return info.Cluster.Leader, nil
}

// Exists reports whether a member's journal of this name was made before.
func Exists(ctx context.Context, nc *nats.Conn, name string) (bool, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return false, err
	}
	_, err = js.StreamNameBySubject(ctx, Options{Copies: 1, Name: name}.root()+">")
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the journal of %s: %w", name, err)
	}
	return true, nil
}

// Peers returns the journals of the other members of a cluster, for reading, including those of
// members that are not running. own is the name of the journal of this member.
func Peers(ctx context.Context, nc *nats.Conn, own string, delays Delays) (list []*Mirror, err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	if delays == nil {
		delays = sound{}
	}
	return peers(ctx, js, delays, func(name string) bool { return name == own })
}

// NewPeers returns those of Peers whose names known does not report: of members that have joined
// since. While nobody has joined, it costs one request.
func (j *Journal) NewPeers(ctx context.Context, known func(name string) bool) ([]*Mirror, error) {
	return peers(ctx, j.js, j.delays, func(name string) bool { return name == j.member || known(name) })
}

func peers(ctx context.Context, js jetstream.JetStream, delays Delays, known func(name string) bool) (list []*Mirror, err error) {
	err = insist(ctx, delays, "list the journals of the members", func(ctx context.Context) (err error) {
		list, err = listPeers(ctx, js, delays, known)
		for errors.Is(err, jetstream.ErrStreamNotFound) && backoff.Sleep(ctx, bucketPause) { // it is just being made, or it was removed since it was listed
			list, err = listPeers(ctx, js, delays, known)
		}
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return ctx.Err()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the journals of the members: %w", err)
	}
	return list, nil
}

// listPeers does it once. A journal that was listed and is not there is an error.
func listPeers(ctx context.Context, js jetstream.JetStream, delays Delays, known func(name string) bool) (list []*Mirror, err error) {
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		of, ok := strings.CutPrefix(name, memberPrefix)
		if !ok || known(of) {
			continue
		}
		s, err := js.Stream(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("open the journal of %s: %w", of, err)
		}
		list = append(list, newMirror(of, js, s, delays))
	}
	return list, names.Err()
}
