package dispatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/value"
)

// watcher gets the progress of a job. Updates that it has not taken yet are kept, without large
// returns: those are read from the journal when it is their turn, so that they do not fill the
// memory.
type watcher struct {
	run    *Run
	output func(context.Context, job.Update) error // gets the output of commands; may be nil
	wake   chan struct{}
	mu     sync.Mutex
	queue  []update
	pause  time.Time // updates until then are gathered without waking the watcher
}

// update is a job.Update, with the sequences of its return if that is left out, and the member
// in whose journal it is, "" for this one.
type update struct {
	job.Update
	seqs []uint64
	of   string
}

// maxInline is the largest return, in bytes, that is kept for watchers.
const maxInline = 4 << 10

// watch begins to keep the updates of the job.
func (r *Run) watch() *watcher {
	w := &watcher{run: r, wake: make(chan struct{}, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers[w] = true
	return w
}

// watchAll is watch with an update for each minion that has not returned, in their order.
func (r *Run) watchAll() *watcher {
	w := r.watch()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.tracker.Standings()
	for _, id := range slices.Concat(r.plan.Start.Minions, r.plan.Start.Missing) {
		if s, ok := all[id]; ok && !s.State.Returned() {
			w.push(update{Update: job.Update{ID: id, Report: job.Report{State: s.State, Text: s.Text}}})
		}
	}
	return w
}

// outputs returns the functions that get the output of commands.
func (r *Run) outputs() (list []func(context.Context, job.Update) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.watchers {
		if w.output != nil {
			list = append(list, w.output)
		}
	}
	return list
}

func (w *watcher) close() {
	w.run.mu.Lock()
	defer w.run.mu.Unlock()
	delete(w.run.watchers, w)
}

func (w *watcher) push(t update) {
	w.mu.Lock()
	w.queue = append(w.queue, t)
	later := !w.pause.IsZero() && time.Now().Before(w.pause)
	w.mu.Unlock()
	if !later {
		w.nudge()
	}
}

func (w *watcher) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns the new updates, and whether these are all for now. The error says that another
// member has taken the job over.
func (w *watcher) take() (q []update, settled bool, err error) {
	w.run.mu.Lock()
	settled, err = w.run.tracker.Settled(), w.run.left
	w.run.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	q, w.queue = w.queue, nil
	return q, settled, err
}

// each calls f for every update until no more is expected for now, or ctx ends.
func (w *watcher) each(ctx context.Context, f func(update) error) error {
	return w.batches(ctx, func(list []update) error {
		for _, t := range list {
			if err := f(t); err != nil {
				return err
			}
		}
		return nil
	})
}

// gatherTime is how long updates are gathered after one was passed on. A single one is passed
// on at once, and so is the end. Without that, of a thousand that come within a tenth of a
// second each would be a message.
const gatherTime = 5 * time.Millisecond

// batches is each, with all updates that have come at a time.
func (w *watcher) batches(ctx context.Context, f func([]update) error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		list, settled, left := w.take()
		if len(list) > 0 {
			if err := f(list); err != nil {
				return err
			}
		}
		if left != nil || settled {
			return left
		}
		if len(list) > 0 {
			w.gather()
			timer.Reset(gatherTime)
		}
		select {
		case <-w.wake:
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *watcher) gather() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pause = time.Now().Add(gatherTime)
}

// maxLines is the largest message with several updates, in bytes.
const maxLines = 64 << 10

// send sends updates: each as a message, or several as lines of one message.
func (d *Dispatcher) send(ctx context.Context, r *rpc.Request, lines bool, list []update) error {
	var batch []byte
	for _, t := range list {
		u, err := d.filled(ctx, t)
		if err != nil {
			return err
		}
		before := len(batch)
		if before > 0 {
			batch = append(batch, '\n')
		}
		if batch, err = u.Append(batch); err != nil {
			return err
		}
		if before == 0 || lines && len(batch) <= maxLines {
			continue
		}
		if err := r.SendRaw(ctx, batch[:before]); err != nil {
			return err
		}
		batch = append(batch[:0], batch[before+1:]...)
	}
	if len(batch) == 0 {
		return nil
	}
	return r.SendRaw(ctx, batch)
}

// filled returns the update with its return, which may be a value.Raw.
func (d *Dispatcher) filled(ctx context.Context, t update) (job.Update, error) {
	if len(t.seqs) == 0 {
		return t.Update, nil
	}
	e, err := d.Journals.Fetch(ctx, t.of, t.seqs)
	if err != nil {
		return job.Update{}, err
	}
	return readReturn(e)
}

// whole returns the update with its return, decoded. left is the remaining memory for the
// returns of all minions; a return that does not fit counts as failed.
func (d *Dispatcher) whole(ctx context.Context, t update, left *int) (job.Update, error) {
	u, err := d.filled(ctx, t)
	if err != nil {
		return u, err
	}
	if raw, ok := u.Return.V.(value.Raw); ok {
		if err := rpc.TakeBuilt(raw, left); err != nil {
			u.State, u.Return.V, u.Retcode.V, u.Success.V = job.Failed, "the return is not read: "+err.Error(), int64(1), false
		}
	}
	return u, u.Decode()
}

// readReturn reads a return from its event in the journal. The returned data is a value.Raw.
func readReturn(e event.Event) (u job.Update, err error) {
	killed := ""
	r, err := job.ReadReport(e.Data, func(key string, v []byte) error {
		switch key {
		case "id":
			return value.Text(v, &u.ID)
		case "killed":
			return value.Text(v, &killed)
		}
		return nil
	})
	if err != nil {
		return u, err
	}
	var success value.Value
	if raw, ok := r.Success.V.(value.Raw); ok {
		if err := success.UnmarshalJSON(raw); err != nil {
			return u, err
		}
	}
	u.Report = job.Report{State: job.Done, Return: r.Return, Retcode: r.Retcode, Success: success, Out: r.Out, Text: killed}
	switch {
	case killed != "":
		u.State = job.Killed
	case !succeeded(success.V):
		u.State = job.Failed
	}
	return u, nil
}

// succeeded reads the success of a return: of a compound command that of each function.
func succeeded(v any) bool {
	if each, ok := v.(map[string]any); ok {
		for _, one := range each {
			if one == false {
				return false
			}
		}
		return true
	}
	return v != false
}
