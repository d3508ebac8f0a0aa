package saltevent

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
)

// slowWatch tells the person when whoever reads our output does not keep up, and
// how far behind that is. Nothing is lost by that, and nothing grows: the daemon
// stops sending, and goes on from the journal.
type slowWatch struct {
	session *session
	env     *cli.Env
	cancel  context.CancelFunc
	ended   sync.WaitGroup

	mu      sync.Mutex
	writing time.Time // since when a write is under way; zero for none
	last    uint64    // the sequence of what was written last
	known   bool      // last is
}

// patience is how long one write may take before it is told; it doubles with
// every word.
const patience = 2 * time.Second

func watchSlow(s *session, env *cli.Env) *slowWatch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &slowWatch{session: s, env: env, cancel: cancel}
	w.ended.Go(func() { w.run(ctx) })
	return w
}

func (w *slowWatch) stop() {
	w.cancel()
	w.ended.Wait()
}

// begin says that everything up to the sequence last is done.
func (w *slowWatch) begin(last uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.known = last, true
}

// write is one write of lines to out.
func (w *slowWatch) write(out io.Writer, b []byte) error {
	w.mu.Lock()
	w.writing = time.Now()
	w.mu.Unlock()
	_, err := out.Write(b)
	w.mu.Lock()
	w.writing = time.Time{}
	if seq := event.SeqOf(b); seq > 0 && event.MasterOf(b) == "" {
		w.last, w.known = seq, true
	}
	w.mu.Unlock()
	return err
}

func (w *slowWatch) run(ctx context.Context) {
	tick := time.NewTicker(patience / 4)
	defer tick.Stop()
	limit := patience
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		w.mu.Lock()
		since, last, known := w.writing, w.last, w.known
		w.mu.Unlock()
		if since.IsZero() {
			limit = patience
			continue
		}
		if took := time.Since(since); took >= limit {
			limit *= 2
			w.tell(ctx, took, last, known)
		}
	}
}

func (w *slowWatch) tell(ctx context.Context, took time.Duration, last uint64, known bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var end protocol.End
	if err := w.session.ask(ctx, protocol.OpEnd, nil, &end); err != nil || !known {
		w.env.Warn(fmt.Errorf("nobody has read the output for %s", took.Round(time.Second)))
		return
	}
	w.env.Warn(fmt.Errorf("nobody has read the output for %s: it is %d events behind", took.Round(time.Second), end.Seq-min(end.Seq, last)))
}
