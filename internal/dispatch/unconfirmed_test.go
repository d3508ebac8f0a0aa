package dispatch

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
)

// TestAPlanOfAJobThatMayHaveEnded: a plan that comes from a store in which removed entries may be there again is carried on only
// if the journal has something of its job. One from anywhere else is carried on, since its start may be older than the journal.
func TestAPlanOfAJobThatMayHaveEnded(t *testing.T) {
	t.Parallel()
	const ended, open, certain = "20260101000000000001", "20260101000000000002", "20260101000000000003"
	d, stop := stored(t)
	var log bytes.Buffer
	d.Log = slog.New(slog.NewTextHandler(&log, nil))
	for _, jid := range []salt.JID{ended, open, certain} {
		p := plan{
			Envelope: job.Envelope{User: "root"}, Started: true, Began: time.Now(), Until: time.Now().Add(time.Hour),
			Start: job.Start{JID: jid, Minions: []salt.MinionID{"web1", "web2"}}, Keys: map[salt.MinionID]string{"web1": strings.Repeat("a1", tokenSize), "web2": strings.Repeat("b2", tokenSize)},
		}
		b, err := p.encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		if jid != certain {
			b = UnconfirmedEntry(plansTable, b)
		}
		if err := d.plans.own.Put(t.Context(), string(jid), b); err != nil {
			t.Fatal(err)
		}
	}
	d.store(t, "salt/job/"+open+"/ret/web1", map[string]any{"jid": open, "id": "web1", "return": true, "success": true})
	if err := d.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d.jobs.running(ended) != nil || d.jobs.running(open) == nil || d.jobs.running(certain) == nil {
		t.Error("another job is carried on than those that may have more to do")
	}
	stop()
	deadline.Call(t, d.Wait, "d")
	if left := d.planned(t); !slices.Equal(left, []string{open, certain}) || !strings.Contains(log.String(), ended) {
		t.Errorf("the plans left are of %q; log:\n%s", left, &log)
	}
}

// TestUnconfirmedEntry: nothing but what says that the job was begun changes, in plans of all members, and in nothing else.
func TestUnconfirmedEntry(t *testing.T) {
	t.Parallel()
	p := plan{Started: true, Start: job.Start{JID: "20260101000000000001", Minions: []salt.MinionID{"web1"}}, Keys: map[salt.MinionID]string{"web1": strings.Repeat("a1", tokenSize)}}
	b, err := p.encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Started = false
	want, err := p.encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	for table, changes := range map[string]bool{plansTable: true, plansTable + "_10_0_0_2": true, plansTable + "x": false, "grains": false} {
		got := UnconfirmedEntry(table, b)
		if changed := bytes.Equal(got, want); changed != changes || !changes && !bytes.Equal(got, b) {
			t.Errorf("in %s: %s", table, got)
		}
	}
	for _, text := range []string{"", "{", `"x"`, "\x1f\x8b"} {
		if got := UnconfirmedEntry(plansTable, []byte(text)); string(got) != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	if !json.Valid(want) {
		t.Errorf("a plan of one minion is not plain text: %q", want)
	}
}
