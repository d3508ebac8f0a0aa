package master_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// The floods of events by each who may fire: what others have stored, and what was
// acknowledged to them, stays. The journal has 16 MiB.

const smallJournal = "event_max_bytes: 16777216\n"

// keepsake is what must outlive a flood: a return and some events of web1, a job of root.
type keepsake struct {
	*world
	root *rpc.Conn
	jid  string
}

func (w *world) keep() *keepsake {
	w.t.Helper()
	k := &keepsake{world: w, root: w.user()}
	web1 := w.minion("web1", pong)
	start, got, err := publish(w.t, k.root, ping("web1", "glob"))
	if err != nil || got["web1"].State != job.Done {
		w.t.Fatalf("test.ping: %v, %v", got, err)
	}
	k.jid = string(start.JID)
	for n := range 10 {
		f := protocol.Fire{Events: []event.Item{{Tag: fmt.Sprintf("kept/%d", n), Data: json.RawMessage(`{"a":1}`)}}}
		if err := web1.Ask(w.t.Context(), protocol.OpFire, f, nil); err != nil {
			w.t.Fatal(err)
		}
	}
	return k
}

// stands fails when something of it is gone, or somebody is not served.
func (k *keepsake) stands() {
	k.t.Helper()
	if n := len(listenSince(k.t, k.root, "kept/")); n != 10 {
		k.t.Errorf("%d events of web1 are left, want 10", n)
	}
	for _, what := range []string{"new", "ret/web1"} {
		if n := len(listenSince(k.t, k.root, "salt/job/"+k.jid+"/"+what)); n != 1 {
			k.t.Errorf("salt/job/%s/%s is gone", k.jid, what)
		}
	}
	if reported := listenSince(k.t, k.root, "salt/journal/"); len(reported) < 2 || reported[0].Tag != "salt/journal/filling" {
		k.t.Errorf("it was not told: %v", reported)
	}
	if !strings.Contains(k.said(), "level=WARN msg=\"the journal is nearly full") {
		k.t.Error("there is no warning in the log")
	}
	if _, got, err := publish(k.t, k.root, ping("web1", "glob")); err != nil || got["web1"].State != job.Done {
		k.t.Errorf("root is not served: %v, %v", got, err)
	}
}

// fires stores a megabyte in each round, in large events, in small ones with one tag, and in ones of
// which each has a tag of its own.
func fires(t *testing.T, rounds int, f func(events []event.Item) error) {
	t.Helper()
	large, small := json.RawMessage(`"`+strings.Repeat("x", 200<<10)+`"`), json.RawMessage(`"`+strings.Repeat("x", 500)+`"`)
	for n := range rounds {
		batch := []event.Item{{Tag: "mine/large", Data: large}, {Tag: "mine/large", Data: large}, {Tag: "mine/large", Data: large}, {Tag: "mine/large", Data: large}}
		for i := range 300 {
			batch = append(batch, event.Item{Tag: "mine/same", Data: small}, event.Item{Tag: fmt.Sprintf("mine/%d/%d", n, i), Data: small})
		}
		if err := f(batch); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFloodOfEventsOfAMinion(t *testing.T) {
	w := start(t, "auto_accept: True\n"+smallJournal)
	k, evil := w.keep(), w.minion("evil", pong)
	fires(t, 30, func(events []event.Item) error {
		return evil.Ask(t.Context(), protocol.OpFire, protocol.Fire{Events: events}, nil)
	})
	k.stands()
}

// Credentials of salt-event creds may be in wrong hands as a minion's key may: their
// events, fired or refused, take nobody's room, and none of the other floods is open to
// them.
func TestFloodsOfAClient(t *testing.T) {
	w := start(t, "auto_accept: True\n"+smallJournal+eventACL)
	k, dash := w.keep(), w.client("dash", time.Time{})
	nc := w.mustDial(dash)
	const subject = "salt.client.dash.req."
	fires(t, 25, func(events []event.Item) error {
		for len(events) > 0 { // what its messages may hold
			n := min(len(events), 50)
			if len(events[0].Data) > 1000 {
				n = 1
			}
			b, err := json.Marshal(protocol.Fire{Events: events[:n]})
			if err != nil {
				return err
			}
			if m, code := request(t, nc, subject+"fire", string(b)); code != "" {
				return fmt.Errorf("%s: %s", code, m.Data)
			}
			events = events[n:]
		}
		return nil
	})
	k.stands()

	for _, tag := range []string{"other/x", "salt/beacon/web1/x", "mine/../salt/job/1/new", "salt/minion/web1/../web2/start", "salt/journal/drop", "salt/audit/x"} {
		for range 150 {
			if m, code := request(t, nc, subject+"fire", `{"events":[{"tag":"`+tag+`"}]}`); code != "denied" {
				t.Fatalf("fire %s: %q %s", tag, code, m.Data)
			}
		}
	}
	lines := 0
	for line := range strings.SplitSeq(w.said(), "\n") {
		if strings.Contains(line, "client:dash") && !strings.Contains(line, "level=DEBUG") {
			lines++
		}
	}
	if lines > 150 {
		t.Errorf("%d lines about the client in the log", lines)
	}
	for _, body := range []string{`{"tgt":"*","tgt_type":"glob","commands":[{"fun":"test.ping"}]}`, `{"tgt":"web1","tgt_type":"list","commands":[{"fun":"test.ping"}]}`} {
		if m, code := request(t, nc, subject+"publish", body); code != "denied" {
			t.Errorf("a job without a rule: %q %s", code, m.Data)
		}
	}
	if m, code := request(t, nc, subject+"run", `{"command":{"fun":"manage.up"}}`); code != "denied" {
		t.Errorf("a runner without a rule: %q %s", code, m.Data)
	}
	for _, op := range []string{"hello", "grains", "messages", "mine", "stat", "purge"} {
		if err := nc.PublishRequest(subject+op, nc.NewInbox(), []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-dash.violate:
			if !strings.Contains(err.Error(), op) {
				t.Errorf("%s: %v", op, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("a client may ask for %s", op)
		}
	}
	k.stands()
}
