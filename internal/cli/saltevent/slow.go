package saltevent

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/event"
)

// slowWatch warns when the reader of our output is too slow, and how far behind it is. Nothing
// is lost, and no memory grows: the daemon stops sending, and continues from the journal.
type slowWatch struct {
	session *session
	env     *cli.Env
	cancel  context.CancelFunc
	ended   sync.WaitGroup

	mu      sync.Mutex
	writing time.Time // start of the present write; zero for none
	last    uint64    // the sequence written last
	known   bool      // last is
}

// patience is how long one write may take before a warning; it doubles with every warning.
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

// begin records that everything up to the sequence last is done.
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
	var end uint64
	err := w.session.ask(ctx, func(c *brine.Conn) (err error) { end, _, err = c.End(ctx); return err })
	if err != nil || !known {
		w.env.Warn(fmt.Errorf("nobody has read the output for %s", took.Round(time.Second)))
		return
	}
	w.env.Warn(fmt.Errorf("nobody has read the output for %s: it is %d events behind", took.Round(time.Second), end-min(end, last)))
}
