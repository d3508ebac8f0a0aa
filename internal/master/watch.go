package master

import (
	"context"
	"encoding/json"
	"sync"

	"brine/internal/bus"
	"brine/internal/event"
	"brine/internal/job"
	"brine/internal/salt"
	"brine/internal/value"
)

// watcher is somebody who wants to hear the course of a job. What it has not taken
// yet is kept, without the returns that are large: those are read from the journal
// when their turn comes, so that many of them at once take no memory.
type watcher struct {
	course *course
	output func(context.Context, job.Update) error // takes what commands write; nil for nobody
	wake   chan struct{}
	mu     sync.Mutex
	queue  []told
}

// told is an update, with the places of the return if that is left out.
type told struct {
	job.Update
	places []uint64
}

// maxInline is the size in bytes of a return that is kept for those who watch.
const maxInline = 4 << 10

// watch begins to keep the updates of the job.
func (c *course) watch() *watcher {
	w := &watcher{course: c, wake: make(chan struct{}, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers[w] = true
	return w
}

// outputs are those who take what commands write.
func (c *course) outputs() (list []func(context.Context, job.Update) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.watchers {
		if w.output != nil {
			list = append(list, w.output)
		}
	}
	return list
}

func (w *watcher) close() {
	w.course.mu.Lock()
	defer w.course.mu.Unlock()
	delete(w.course.watchers, w)
}

func (w *watcher) push(t told) {
	w.mu.Lock()
	w.queue = append(w.queue, t)
	w.mu.Unlock()
	w.nudge()
}

func (w *watcher) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns what came, and whether that is all for now.
func (w *watcher) take() (q []told, settled bool) {
	w.course.mu.Lock()
	settled = w.course.tracker.Settled()
	w.course.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	q, w.queue = w.queue, nil
	return q, settled
}

// each calls f for every update until nothing more is expected for now, or ctx
// ends.
func (w *watcher) each(ctx context.Context, f func(told) error) error {
	return w.lots(ctx, func(list []told) error {
		for _, t := range list {
			if err := f(t); err != nil {
				return err
			}
		}
		return nil
	})
}

// lots is each for all updates that have come at a time.
func (w *watcher) lots(ctx context.Context, f func([]told) error) error {
	for {
		list, settled := w.take()
		if len(list) > 0 {
			if err := f(list); err != nil {
				return err
			}
		}
		if settled {
			return nil
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// maxLines is the size in bytes of a message with several updates.
const maxLines = 64 << 10

// send sends updates: each as a message, or several as the lines of one.
func (m *Master) send(ctx context.Context, r *bus.Request, lines bool, list []told) error {
	var lot []byte
	for _, t := range list {
		b, err := m.encode(ctx, t)
		if err != nil {
			return err
		}
		if len(lot) > 0 && (!lines || len(lot)+len(b) > maxLines) {
			if err := r.SendRaw(ctx, lot); err != nil {
				return err
			}
			lot = nil
		}
		if len(lot) > 0 {
			lot = append(lot, '\n')
		}
		lot = append(lot, b...)
	}
	if len(lot) == 0 {
		return nil
	}
	return r.SendRaw(ctx, lot)
}

// encode is an update as it travels.
func (m *Master) encode(ctx context.Context, t told) ([]byte, error) {
	if len(t.places) == 0 {
		return json.Marshal(t.Update)
	}
	e, err := m.journal.Fetch(ctx, t.places)
	if err != nil {
		return nil, err
	}
	r, err := readReturn(e)
	if err != nil {
		return nil, err
	}
	return json.Marshal(r.update())
}

// whole is the update with its return.
func (m *Master) whole(ctx context.Context, t told) (job.Update, error) {
	if len(t.places) == 0 {
		return t.Update, nil
	}
	b, err := m.encode(ctx, t)
	if err != nil {
		return job.Update{}, err
	}
	var u job.Update
	err = json.Unmarshal(b, &u)
	return u, err
}

// storedReturn is a return as the journal has it.
type storedReturn struct {
	ID      salt.MinionID   `json:"id"`
	Return  json.RawMessage `json:"return"`
	Retcode json.RawMessage `json:"retcode"`
	Success value.Value     `json:"success"`
	Out     string          `json:"out"`
	Killed  string          `json:"killed"`
}

// rawUpdate is job.Update with parts that are not read, only passed on.
type rawUpdate struct {
	ID      salt.MinionID   `json:"id"`
	State   job.State       `json:"state"`
	Return  json.RawMessage `json:"return"`
	Retcode json.RawMessage `json:"retcode"`
	Success value.Value     `json:"success"`
	Out     string          `json:"out,omitempty"`
	Text    string          `json:"text,omitempty"`
}

func readReturn(e event.Event) (storedReturn, error) {
	var r storedReturn
	err := json.Unmarshal(e.Data, &r)
	return r, err
}

func (r storedReturn) update() rawUpdate {
	u := rawUpdate{ID: r.ID, State: job.Done, Return: r.Return, Retcode: r.Retcode, Success: r.Success, Out: r.Out, Text: r.Killed}
	switch {
	case r.Killed != "":
		u.State = job.Killed
	case !succeeded(r.Success.V):
		u.State = job.Failed
	}
	return u
}

// succeeded reads the success of a return: of a compound command that of each
// function.
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
