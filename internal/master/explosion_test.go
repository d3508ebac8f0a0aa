package master_test

import (
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
)

// jobs is how many TestJobsLeaveNothingInTheServer runs: some in each run of the tests, as many
// thousands as somebody wants to wait for.
var jobs = flag.Int("jobs", 100, "jobs of TestJobsLeaveNothingInTheServer")

// TestJobsLeaveNothingInTheServer: neither a job, nor somebody who listens, nor somebody who
// reads a job's return makes a stream or a consumer that stays.
func TestJobsLeaveNothingInTheServer(t *testing.T) {
	w := start(t, "auto_accept: True\n")
	w.minion("web1", pong)
	c := w.user()
	last := uint64(0) // event that was read: to begin before it each time would take longer with each job
	once := func() {
		begin, got, err := publish(t, c, ping("web1", "glob"))
		if err != nil || got["web1"].State != job.Done {
			t.Fatalf("%v, %v", got, err)
		}
		s, err := c.Call(protocol.OpListen, protocol.Listen{Tags: []string{"salt/job/" + string(begin.JID)}, FromSeq: last + 1, UntilEnd: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		read := false
		for {
			var e event.Event
			if err := s.Decode(t.Context(), &e); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			last = max(last, e.Seq)
			read = read || strings.HasSuffix(e.Tag, "/new")
		}
		if !read {
			t.Fatalf("the events of %s are not read", begin.JID)
		}
	}
	once()
	streams, consumers := w.m.Stored(t)
	for range *jobs {
		once()
	}
	t.Logf("%d jobs; before them %d streams and %d consumers", *jobs, len(streams), consumers)
	// The self-check comes when it is due, and makes its table the first time.
	streams = append(streams, "KV_self")
	more, now := w.m.Stored(t)
	more = slices.DeleteFunc(more, func(name string) bool { return slices.Contains(streams, name) })
	if len(more) > 0 || now != consumers {
		t.Errorf("after %d jobs there are the streams %q, too, and %d consumers, want %d as before", *jobs, more, now, consumers)
	}
}

// TestAnOldVersionOpensNothing: a minion that says it is older than it is, or says nothing,
// has the same rights and is refused the same.
func TestAnOldVersionOpensNothing(t *testing.T) {
	a := underAttack(t)
	for _, version := range []string{`"0.0.1"`, `"2014.1.0"`, `""`, `null`, `"9999"`} {
		if got := a.send("salt.minion.evil.req.hello", `{"version":`+version+`,"grains":{}}`); strings.HasPrefix(got, refusedWord) {
			t.Errorf("hello of version %s: %.200s", version, got)
		}
		for _, c := range []struct{ subject, body string }{
			{"salt.minion.evil.req.publish", strings.Replace(pingAll, "%s", `,"version":`+version, 1)},
			{"salt.minion.evil.fire", `{"version":` + version + `,"events":[{"tag":"salt/job/20260101000000000000/ret/web1","data":{}}]}`},
			{"salt.minion.evil.ret.20260101000000000000", `{"version":` + version + `,"id":"web1","state":"done","return":1}`},
		} {
			if got := a.send(c.subject, c.body); !strings.Contains(got, `"denied"`) {
				t.Errorf("version %s on %s: %.200s, want a refusal", version, c.subject, got)
			}
		}
	}
	if n := a.jobs(); n != 0 {
		t.Errorf("%d jobs were run", n)
	}
}
