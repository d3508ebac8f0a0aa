package saltevent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/salt"
)

// TestARepetitionIsAdvisedWhereItHelps: what is not confirmed can be fired again under the same id, but lines that a
// minion passes on would be stored twice by that.
func TestARepetitionIsAdvisedWhereItHelps(t *testing.T) {
	const again, look = "fire the same again within ten minutes with --id mine", "look at the master which of these lines are there"
	for _, c := range []struct {
		bus    string
		stdin  bool
		before string // a batch that was stored
		tag    string
		hint   string
	}{
		{"master", true, "", "fire_master", again},
		{"minion", false, "", "fire_master", again},
		{"minion", true, "", "mytag", again},
		{"minion", true, "", "fire_master/x", look},
		{"minion", true, "fire_master", "mytag", look},
	} {
		synctest.Test(t, func(t *testing.T) {
			set := flag.NewFlagSet("", flag.ContinueOnError)
			for _, f := range fireSpec().Flags {
				if err := f.Apply(set); err != nil {
					t.Fatal(err)
				}
			}
			if err := set.Parse([]string{"--bus", c.bus, fmt.Sprintf("--stdin=%t", c.stdin), "--id", "mine"}); err != nil {
				t.Fatal(err)
			}
			s := &session{env: &cli.Env{Stderr: io.Discard}, dial: func(ctx context.Context) (*brine.Conn, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}}
			d := newDelivery(s, urcli.NewContext(nil, set, nil), time.Second)
			var err error
			for _, tag := range []string{c.before, c.tag} {
				if tag != "" {
					err = d.deliver(t.Context(), []brine.Event{{Tag: tag}, {Tag: "other"}}, 0)
				}
			}
			if err == nil || errors.Is(err, io.EOF) || !strings.HasPrefix(salt.Hint(err), c.hint) {
				t.Errorf("%+v: %v, hint %q", c, err, salt.Hint(err))
			}
		})
	}
}

// TestAnEventOutlastsAnElection: without --timeout the command waits longer than the members of a cluster need to elect a
// leader, and where that is not enough, the error has what the daemon has waited for.
func TestAnEventOutlastsAnElection(t *testing.T) {
	set := flag.NewFlagSet("", flag.ContinueOnError)
	for _, f := range fireSpec().Flags {
		if err := f.Apply(set); err != nil {
			t.Fatal(err)
		}
	}
	const election = 11 * time.Second
	opts := urcli.NewContext(nil, set, nil)
	limit, err := patienceOf(opts)
	if err != nil || limit <= election {
		t.Errorf("it waits for %s, %v, and an election takes up to %s", limit, err, election)
	}
	d := newDelivery(&session{}, opts, limit)
	if text := d.unconfirmed(context.DeadlineExceeded).Error(); text != "not confirmed within 15s: stored or not" {
		t.Errorf("the error is %q", text)
	}
	told := "the members of the cluster to elect a leader"
	d.reason = new(atomic.Pointer[string])
	d.reason.Store(&told)
	if text := d.unconfirmed(context.DeadlineExceeded).Error(); text != "not confirmed within 15s: stored or not; the daemon waited for "+told {
		t.Errorf("the error is %q", text)
	}
}

// TestManyEventsTellWhatTheyWaitFor: on a terminal each request tells it once, however often it is tried again, on a line
// of its own behind the progress. Off a terminal nothing is told.
func TestManyEventsTellWhatTheyWaitFor(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		var out strings.Builder
		env := &cli.Env{Name: "salt-event", Stderr: &out, StderrTTY: terminal}
		d, p := &delivery{session: &session{env: env}, done: "stored"}, newProgress(env)
		input := make(chan fireBatch, 1)
		input <- fireBatch{err: io.EOF}
		if err := d.batches(t.Context(), p, input); err != nil {
			t.Fatal(err)
		}
		first := d.options(0)
		first.Waiting("a leader")
		first.Waiting("a leader")
		p.tell(1, "stored")
		d.options(1).Waiting("a leader")
		lines := strings.Split(out.String(), "\n")
		if !terminal {
			if out.Len() > 0 {
				t.Errorf("off a terminal it prints %q", out.String())
			}
			continue
		}
		const told = "salt-event: waiting for a leader"
		if len(lines) != 3 || lines[0] != told || !strings.HasPrefix(lines[1], "\rsalt-event: 1 event stored, ") || !strings.HasSuffix(lines[1], "\r\x1b[K"+told) {
			t.Errorf("on a terminal it prints %q", lines)
		}
		if d.options(2); d.waitsFor() != "" {
			t.Error("what an earlier request has waited for counts for the next one")
		}
	}
}
