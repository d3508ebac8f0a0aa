package dispatch

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/job"
)

// Output of a command that is quicker than the answer to the caller waits for the start of the
// job, which must be the caller's first message. It does not wait for a caller that is gone,
// nor longer than the minion does.
func TestOutputComesAfterTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := make(chan struct{})
		sent := 0
		send := func(context.Context, job.Update) error { sent++; return nil }
		answers := make(chan error)
		output := func(caller, minion context.Context) {
			go func() { answers <- after(started, caller, send)(minion, job.Update{}) }()
			synctest.Wait()
		}
		gone, leave := context.WithCancel(t.Context())
		output(t.Context(), t.Context())
		output(gone, t.Context())
		output(t.Context(), gone)
		if sent != 0 {
			t.Fatalf("%d outputs are sent before the start", sent)
		}
		leave()
		for range 2 {
			if err := <-answers; err == nil {
				t.Error("output for a caller who has gone is sent")
			}
		}
		close(started)
		if err := <-answers; err != nil || sent != 1 {
			t.Errorf("after the start: %v, %d sent", err, sent)
		}
	})
}

// TestTheTimeoutOfAJobBeginsWhenItIsSent: the start of a job is stored late, as in an election, long after its timeout.
// The minion, which gets the job only then, has the whole timeout to answer.
func TestTheTimeoutOfAJobBeginsWhenItIsSent(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 2)[0]
	web1 := n.arrive(t, "web1")
	p := n.newPlan()
	p.Timeout, p.Keys = 60, n.Keys.Tokens(p.Start.Minions)
	p.Envelope.Commands, p.Envelope.Target, p.Envelope.TargetType = []job.Command{{Function: "test.ping"}}, "web1", "glob"
	r, err := p.start(within(t), n.Dispatcher, nil, time.Now().Add(-time.Hour), direct)
	if err != nil {
		t.Fatal(err)
	}
	w := r.watch()
	defer w.close()
	r.Begin()
	if e := web1.got(t); e.JID != p.Start.JID {
		t.Fatalf("it gets job %s, want %s", e.JID, p.Start.JID)
	}
	if err := web1.says(t, p.Start.JID, done("ok")); err != nil {
		t.Fatal(err)
	}
	var given []job.State
	if err := w.each(within(t), func(u update) error { given = append(given, u.State); return nil }); err != nil || !slices.Equal(given, []job.State{job.Done}) {
		t.Errorf("the caller is told %v, %v", given, err)
	}
}
