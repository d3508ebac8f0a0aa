package minion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"brine/internal/atomicfile"
	"brine/internal/bus"
	"brine/internal/journal"
	"brine/internal/protocol"
)

// outbox holds what is for the master while the master is away. It keeps order:
// while anything waits in it, what comes later waits behind.
type outbox struct {
	m       *Minion
	queue   *journal.Queue
	dir     string // of bodies too large for the queue
	waiting atomic.Int64
	ready   chan struct{}
}

// letter is one request for the master as it is kept.
type letter struct {
	Op   string          `json:"op"`
	Body json.RawMessage `json:"body,omitempty"`
	File string          `json:"file,omitempty"` // holds a large body
}

// maxInline is the largest body that is kept in the queue itself.
const maxInline = 512 << 10

func openOutbox(ctx context.Context, m *Minion) (*outbox, error) {
	o := &outbox{m: m, dir: filepath.Join(m.cfg.CacheDir, "outbox"), ready: make(chan struct{}, 1)}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	o.queue, err = journal.OpenQueue(ctx, m.broker.Conn(), "OUTBOX", journal.Options{MaxAge: m.cfg.OutboxMaxAge, MaxBytes: m.cfg.OutboxMaxBytes})
	if err != nil {
		return nil, err
	}
	n, err := o.queue.Len(ctx)
	o.waiting.Store(int64(n))
	return o, err
}

// answerTime bounds how long the master may take to confirm one request before
// the minion keeps it in the outbox and asks again later.
const answerTime = 10 * time.Second

// send hands a request to the master, or keeps it. It returns an error only when
// the master refuses the request, or when it can not be kept either. out takes
// the master's answer, if it came.
func (o *outbox) send(ctx context.Context, op string, in, out any) (protocol.Outcome, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return "", err
	}
	if s := o.m.link.Load(); s != nil && o.waiting.Load() == 0 {
		err := o.deliver(ctx, s, letter{Op: op, Body: body}, out)
		if err == nil {
			return protocol.Stored, nil
		}
		if permanent(err) {
			return "", err
		}
	}
	if err := o.keep(context.WithoutCancel(ctx), letter{Op: op, Body: body}); err != nil {
		return "", err
	}
	return protocol.Queued, nil
}

// permanent says whether the master will refuse the same request again.
func permanent(err error) bool {
	switch bus.CodeOf(err) {
	case bus.Denied, bus.Usage, bus.NotFound:
		return true
	}
	return false
}

func (o *outbox) deliver(ctx context.Context, s *session, l letter, out any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return s.Ask(ctx, l.Op, l.Body, out)
}

func (o *outbox) keep(ctx context.Context, l letter) error {
	if len(l.Body) > maxInline {
		l.File = filepath.Join(o.dir, bus.NewNonce())
		if err := atomicfile.Write(l.File, l.Body, 0o600); err != nil {
			return err
		}
		l.Body = nil
	}
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if err := o.queue.Put(ctx, b); err != nil {
		return err
	}
	o.waiting.Add(1)
	o.wake()
	return nil
}

// wake tells drain to look again.
func (o *outbox) wake() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// drain delivers what waits, in order, whenever there is a master, until ctx ends.
func (o *outbox) drain(ctx context.Context) {
	for ctx.Err() == nil {
		if o.m.link.Load() == nil || o.waiting.Load() == 0 {
			select {
			case <-o.ready:
			case <-ctx.Done():
				return
			}
			continue
		}
		if err := o.drainOne(ctx); err != nil && ctx.Err() == nil {
			o.m.log.Warn("outbox not delivered, trying again", "err", err, "waiting", o.waiting.Load())
			sleep(ctx, time.Second)
		}
	}
}

func (o *outbox) drainOne(ctx context.Context) error {
	err := o.queue.Next(ctx, func(b []byte) error {
		var l letter
		if err := json.Unmarshal(b, &l); err != nil {
			o.m.log.Error("unreadable letter in the outbox dropped", "err", err)
			return nil
		}
		return o.deliverKept(ctx, l)
	})
	if err == nil {
		o.waiting.Add(-1)
	}
	return err
}

func (o *outbox) deliverKept(ctx context.Context, l letter) error {
	if l.File != "" {
		b, err := os.ReadFile(l.File)
		if errors.Is(err, fs.ErrNotExist) {
			o.m.log.Error("a large letter in the outbox has lost its file", "file", l.File)
			return nil
		}
		if err != nil {
			return err
		}
		l.Body = b
	}
	s := o.m.link.Load()
	if s == nil {
		return errors.New("no master")
	}
	err := o.deliver(ctx, s, l, nil)
	if permanent(err) {
		o.m.log.Error("the master refuses what waited in the outbox; it is dropped", "op", l.Op, "err", err)
		err = nil
	}
	if err == nil && l.File != "" {
		if err := os.Remove(l.File); err != nil {
			o.m.log.Warn("file of a delivered letter not removed", "err", err)
		}
	}
	return err
}

// fireMaster sends events to the master's bus, or keeps them for it. They get an
// id, so that a repetition after a lost answer is not stored twice.
func (m *Minion) fireMaster(ctx context.Context, f protocol.Fire) (protocol.Fired, error) {
	f.ID = bus.NewNonce()
	var fired protocol.Fired
	outcome, err := m.outbox.send(ctx, protocol.OpFire, f, &fired)
	if err != nil {
		return protocol.Fired{}, fmt.Errorf("fire to the master: %w", err)
	}
	fired.Outcome = outcome
	return fired, nil
}
