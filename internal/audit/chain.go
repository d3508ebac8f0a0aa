package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
)

// QueueName is the name of the queue of the audit log: each member of a cluster has one of its own.
const QueueName = "AUDIT"

// Members are the other members of a cluster, as far as their audit logs are concerned.
type Members interface {
	// Ask sends a request to a member that runs, and waits for its answer.
	Ask(ctx context.Context, to, kind string, body, answer any) error
	// Runs reports whether a member runs.
	Runs(name string) bool
	// Former reports whether it is certain that this is no member any more, nor comes back without being told. Where
	// several look, it is certain for at most one of them.
	Former(name string) bool
}

// Chain is the audit log of one master for reading: of this one, of another member of its cluster, or of one that was a
// member.
type Chain struct {
	Name string // of the member; "" for a single master
	Own  bool
	log  *Log
	// queue is that of another one; nil if there is none any more, although it was seen.
	queue *journal.Queue
	fault error // why it cannot be read now
	seen  sight // the zero value for none
	// unseen is why it is not known what was seen of it.
	unseen error
}

// Chains returns all of them, the own one first.
func Chains(ctx context.Context, l *Log) ([]*Chain, error) {
	all := []*Chain{{Name: l.opts.Name, Own: true, log: l}}
	if l.opts.Journal == nil {
		return all, nil
	}
	names, err := journal.PeerQueues(ctx, l.opts.Journal, QueueName)
	if err != nil {
		return nil, err
	}
	seen, unseen := readSights(l)
	for name := range seen {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		c := &Chain{Name: name, log: l, seen: seen[name], unseen: unseen}
		if c.queue, c.fault = journal.PeerQueue(ctx, l.opts.Journal, QueueName, name); c.queue != nil || c.fault != nil || c.seen.N > 0 {
			all = append(all, c)
		}
	}
	return all, nil
}

// Running reports whether the master whose log this is runs.
func (c *Chain) Running() bool {
	return c.Own || c.log.opts.Members != nil && c.log.opts.Members.Runs(c.Name)
}

// Each is Log.Each of this one.
func (c *Chain) Each(ctx context.Context, q Query, f func(line []byte) error) error {
	switch {
	case c.Own:
		return c.log.Each(ctx, q, f)
	case c.fault != nil:
		return c.fault
	case c.queue == nil:
		return c.missing()
	}
	return eachOf(ctx, c.queue, q, f)
}

func (c *Chain) missing() error {
	return fmt.Errorf("nothing of it is stored, although entry %d was seen here", c.seen.N)
}

// checks is how often the log of another one is read if it is pruned meanwhile.
const checks = 3

// Verify is Log.Verify of this one. That of another member is compared with the head that it tells, if it runs, and
// with the last entry that was seen here.
func (c *Chain) Verify(ctx context.Context, kept ...string) (Report, error) {
	switch {
	case c.Own:
		return c.log.Verify(ctx, kept...)
	case c.fault != nil:
		return Report{}, c.fault
	case c.queue == nil:
		return Report{Problems: []string{c.missing().Error()}, Compared: []string{c.seen.String()}}, nil
	}
	head, _ := c.ask(ctx, question{}) // without an answer there is one comparison less, which the report shows
	for n := 1; ; n++ {
		before, err := c.queue.Span(ctx)
		if err != nil {
			return Report{}, err
		}
		r, err := c.verify(ctx, head, kept)
		if err != nil || r.OK || n == checks {
			return r, err
		}
		if after, err := c.queue.Span(ctx); err != nil || after.First == before.First {
			return r, err
		}
	}
}

// verify does it once.
func (c *Chain) verify(ctx context.Context, head answer, kept []string) (Report, error) {
	check := newCheck(new(pruned))
	for _, s := range kept {
		n, hash, err := ParseHead(s)
		if err != nil {
			return Report{}, err
		}
		check.know(n, hash)
		check.compared(keptHead)
	}
	if head.N > 0 {
		check.know(head.N, head.Hash)
		check.compared("the audit.head of that master, as it says")
	}
	if c.seen.N > 0 {
		check.know(c.seen.N, c.seen.Hash)
		check.compared(c.seen.String())
	}
	if err := check.all(ctx, c.queue); err != nil {
		return Report{}, err
	}
	r := check.finish()
	if c.unseen != nil {
		r.OK, r.Problems = false, append(r.Problems, c.unseen.Error())
	}
	return r, nil
}

// ErrNoKey is wrapped by the error of a Digest that only another master can make, which is not reached.
var ErrNoKey = errors.New("the key of its digests is at that master, which is not reached")

// Digest returns the digest of these arguments of one function, as entries of this log contain it.
func (c *Chain) Digest(ctx context.Context, args []any, kwargs map[string]any) (string, error) {
	if c.Own {
		return c.log.Digest(args, kwargs)
	}
	text, err := arguments([]salt.Command{{Args: args, Kwargs: kwargs}})
	if err != nil {
		return "", err
	}
	a, err := c.ask(ctx, question{Arguments: text})
	if err == nil && a.Digest == "" {
		err = ErrNoKey
	}
	return a.Digest, err
}

// kindAudit is the request for what only a member itself knows of its audit log.
const kindAudit = "audit"

// question is the body of that request.
type question struct {
	Arguments json.RawMessage `json:"arguments,omitempty"` // of which the digest is wanted
}

// answer is the answer to it.
type answer struct {
	N      uint64 `json:"n,omitempty"` // the last entry that is in its head; 0 for none
	Hash   string `json:"hash,omitempty"`
	Digest string `json:"digest,omitempty"`
}

// ask asks the member.
func (c *Chain) ask(ctx context.Context, q question) (a answer, err error) {
	if !c.Running() {
		return a, ErrNoKey
	}
	if err := c.log.opts.Members.Ask(ctx, c.Name, kindAudit, q, &a); err != nil {
		return answer{}, fmt.Errorf("%w: %w", ErrNoKey, err)
	}
	return a, nil
}

// Server answers other members.
type Server struct{ Log *Log }

// ServeMembers registers what other members ask for.
func (s Server) ServeMembers(handle func(kind string, h func(ctx context.Context, from string, body []byte) (any, error))) {
	handle(kindAudit, func(_ context.Context, _ string, body []byte) (any, error) {
		var q question
		if err := json.Unmarshal(body, &q); err != nil {
			return nil, fmt.Errorf("unreadable question about the audit log: %w", err)
		}
		return s.answer(q)
	})
}

// answer does not wait for entries that are being written: nobody elsewhere delays those.
func (s Server) answer(q question) (answer, error) {
	s.Log.mu.Lock() // Repair may replace both files
	key, at, err := s.Log.digest, position{}, error(nil)
	if len(q.Arguments) == 0 {
		at, err = s.Log.head.read()
	}
	s.Log.mu.Unlock()
	if len(q.Arguments) > 0 {
		return answer{Digest: key.digest(q.Arguments)}, nil
	}
	if d := (*damaged)(nil); errors.As(err, &d) {
		return answer{}, nil // its own Verify reports it
	}
	return answer{N: at.n, Hash: at.hash}, err
}
