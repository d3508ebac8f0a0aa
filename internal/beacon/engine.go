package beacon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"sync"
	"time"
)

// Engine calls each beacon at its interval.
type Engine struct {
	fire func(ctx context.Context, name string, events []Event) error
	log  *slog.Logger

	mu      sync.Mutex
	running []*watch
	changed chan struct{}
}

// watch is an active beacon.
type watch struct {
	Beacon
	due     time.Time
	busy    bool
	failing bool // already reported
}

// NewEngine returns an engine without beacons. It passes their events to fire with the name of the
// beacon; fire may be called for several beacons at once.
func NewEngine(fire func(ctx context.Context, name string, events []Event) error, log *slog.Logger) *Engine {
	return &Engine{fire: fire, log: log, changed: make(chan struct{}, 1)}
}

// Set replaces the active beacons. One with the same name and settings goes on as it is: it remembers what it
// has seen.
func (e *Engine) Set(list []Beacon) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := map[string]*watch{}
	for _, w := range e.running {
		old[w.Name] = w
	}
	e.running = nil
	for _, b := range list {
		w := old[b.Name]
		if w != nil && w.Enabled == b.Enabled && reflect.DeepEqual(w.settings, b.settings) {
			delete(old, b.Name)
		} else {
			w = &watch{Beacon: b}
		}
		e.running = append(e.running, w)
	}
	for _, w := range old {
		if !w.busy {
			w.close()
		}
		w.Enabled = false // a running look closes it when it ends
	}
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

func (w *watch) close() {
	if c, ok := w.Probe.(io.Closer); ok {
		c.Close()
	}
}

// Run calls the beacons until ctx ends, and waits for those that look, for a limited time.
func (e *Engine) Run(ctx context.Context) {
	var wg sync.WaitGroup
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-e.changed:
		case <-ctx.Done():
			wg.Wait()
			e.Set(nil)
			return
		}
		due, next := e.due(time.Now())
		for _, w := range due {
			wg.Go(func() { e.look(ctx, w) })
		}
		timer.Reset(next)
	}
}

// idle is the wait if there is no beacon.
const idle = time.Minute

// due returns the beacons that are due, and the time until the next one is.
func (e *Engine) due(now time.Time) (list []*watch, next time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next = idle
	for _, w := range e.running {
		if !w.Enabled {
			continue
		}
		if !w.due.After(now) {
			w.due = now.Add(w.Interval)
			if !w.busy {
				w.busy = true
				list = append(list, w)
			}
		}
		next = min(next, max(w.due.Sub(now), time.Millisecond))
	}
	return list, next
}

// lastGrace is how long a look may take to end once the daemon stops: longer than its programs have
// between SIGTERM and SIGKILL.
const lastGrace = 5 * time.Second

// look looks once. A look that does not return although the daemon stops, for example since a network file
// system is gone, is abandoned, so that the daemon can stop; nothing of it is used, and its Probe is not closed.
func (e *Engine) look(ctx context.Context, w *watch) {
	var events []Event
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		events, err = ask(ctx, w)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		timer := time.NewTimer(lastGrace)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
			e.log.Error("a beacon does not return although the minion stops; it is abandoned", "beacon", w.Name)
			return
		}
	}
	if len(events) > 0 {
		if err := e.pass(ctx, w, events); err != nil {
			e.log.Error("the events of a beacon are lost", "beacon", w.Name, "events", len(events), "err", err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && !w.failing && ctx.Err() == nil {
		e.log.Warn("a beacon has failed", "beacon", w.Name, "err", err)
	}
	w.failing, w.busy = err != nil, false
	if !w.Enabled {
		w.close()
	}
}

// ask calls Look; a panic fails only that look.
func ask(ctx context.Context, w *watch) (events []Event, err error) {
	defer recovered(&err)
	return w.Probe.Look(ctx, time.Now())
}

// pass fires events, at most MaxEvents; a panic, for what is in them, loses only these.
func (e *Engine) pass(ctx context.Context, w *watch, events []Event) (err error) {
	defer recovered(&err)
	if more := len(events) - MaxEvents; more > 0 {
		events = events[:MaxEvents]
		events[MaxEvents-1].Data["more"] = more
	}
	return e.fire(ctx, w.Name, events)
}

// recovered makes an error of a panic, so that a mistake in one beacon does not end the minion.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v", p)
	}
}
