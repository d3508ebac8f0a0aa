package executor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/salt"
)

// killed is the cause of a job that a user has ended.
type killed struct {
	signal syscall.Signal
	by     string
}

func (k *killed) Error() string {
	text := fmt.Sprintf("killed by signal %d (%s)", int(k.signal), k.signal)
	if k.by != "" {
		text += " from " + k.by
	}
	return text
}

// Signal is the first signal for the processes of the job.
func (k *killed) Signal() syscall.Signal { return k.signal }

// Table holds the running jobs. It implements module.JobTable.
type Table struct {
	mu      sync.Mutex
	running map[salt.JID]*runningJob
	slots   chan struct{} // nil for no limit
	closed  bool
	idle    sync.WaitGroup
}

type runningJob struct {
	module.Running
	cancel context.CancelCauseFunc
	table  *Table
}

// newTable makes a table for at most limit jobs at once; 0 or less means no limit.
func newTable(limit int) *Table {
	t := &Table{running: map[salt.JID]*runningJob{}}
	if limit > 0 {
		t.slots = make(chan struct{}, limit)
	}
	return t
}

// spawn runs f in a goroutine that stop waits for; after stop it does nothing.
func (t *Table) spawn(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.idle.Go(f)
	}
}

// begin waits for a free slot, until due ends, and adds the job.
func (t *Table) begin(ctx, due context.Context, e *job.Envelope) (context.Context, *runningJob, error) {
	if t.slots != nil {
		select {
		case t.slots <- struct{}{}:
		case <-due.Done():
			return nil, nil, context.Cause(due)
		}
	}
	if due.Err() != nil {
		t.release()
		return nil, nil, context.Cause(due)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r := &runningJob{cancel: cancel, table: t, Running: module.Running{
		JID: e.JID, Function: e.Commands[0].Function, PID: syscall.Getpid(), Args: e.Commands[0].Args,
		Target: e.Target, TargetType: e.TargetType, Returner: e.Returner, User: e.User, Started: time.Now(),
	}}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		cancel(ErrStopping)
		t.release()
		return nil, nil, ErrStopping
	}
	t.running[e.JID] = r
	return ctx, r, nil
}

func (t *Table) release() {
	if t.slots != nil {
		<-t.slots
	}
}

func (r *runningJob) end() {
	r.cancel(nil)
	r.table.mu.Lock()
	delete(r.table.running, r.JID)
	r.table.mu.Unlock()
	r.table.release()
}

// Count returns how many jobs are running.
func (t *Table) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.running)
}

func (t *Table) has(jid salt.JID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running[jid] != nil
}

// List implements module.JobTable.
func (t *Table) List() []module.Running {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]module.Running, 0, len(t.running))
	for _, r := range t.running {
		list = append(list, r.Running)
	}
	slices.SortFunc(list, func(a, b module.Running) int { return a.Started.Compare(b.Started) })
	return list
}

// Signal implements module.JobTable. Every signal ends the job: its functions are not
// processes, and the processes that they started are ended with them.
func (t *Table) Signal(jid salt.JID, sig syscall.Signal, by string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.running[jid]
	if r == nil {
		return fmt.Errorf("no job %s is running here", jid)
	}
	r.cancel(&killed{sig, by})
	return nil
}

// Wait waits until all jobs added so far have ended.
func (t *Table) Wait() { t.idle.Wait() }

// stop ends all jobs and waits for them, at most for the given time. It returns how many were
// still running then.
func (t *Table) stop(cause error, wait time.Duration) int {
	t.mu.Lock()
	t.closed = true
	for _, r := range t.running {
		r.cancel(cause)
	}
	t.mu.Unlock()
	done := make(chan struct{})
	go func() { t.Wait(); close(done) }()
	select {
	case <-done:
		return 0
	case <-time.After(wait):
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.running)
}
