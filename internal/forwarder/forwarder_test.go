package forwarder

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// alone is a forwarder of a minion without masters.
func alone(t *testing.T) *Forwarder {
	w := New(t.Context(), Options{ID: "web1", MaxEventSize: 200, Log: bustest.Log(t)})
	t.Cleanup(w.Wait)
	return w
}

func item(tag, data string) event.Item { return event.Item{Tag: tag, Data: json.RawMessage(data)} }

func anyTag(string) error { return nil }

// shape is how events go into the outbox: form, pretag and tags of each message.
func shape(messages []protocol.Fire) (list []string) {
	for _, m := range messages {
		s := fmt.Sprint(m.Form)
		if m.Pretag != nil {
			s += " below " + *m.Pretag
		}
		for _, e := range m.Events {
			s += " " + e.Tag
		}
		list = append(list, s)
	}
	return list
}

// Events with the tag are forwarded in order, neighbours of one form and pretag in one message;
// all others stay on the minion.
func TestOnlyTaggedEventsAreForwarded(t *testing.T) {
	single := func(tag string) event.Item { return item("fire_master", `{"tag":"`+tag+`","data":{}}`) }
	listed := func(pretag string, tags ...string) event.Item {
		var events []string
		for _, tag := range tags {
			events = append(events, `{"tag":"`+tag+`","data":{}}`)
		}
		if pretag != "" {
			pretag = `"pretag":"` + pretag + `",`
		}
		return item("fire_master", `{`+pretag+`"events":[`+strings.Join(events, ",")+`]}`)
	}
	s, p := fmt.Sprint(protocol.FormSingle), fmt.Sprint(protocol.FormPlain)
	for _, test := range []struct {
		name   string
		events []event.Item
		want   []string
	}{
		{"none of it", []event.Item{item("a", "{}"), item("b/fire_master", "{}")}, nil},
		{"one", []event.Item{item("a", "{}"), single("x")}, []string{s + " x"}},
		{"neighbours", []event.Item{single("x"), item("a", "{}"), single("y")}, []string{s + " x y"}},
		{"lists", []event.Item{listed("", "x", "y"), listed("", "z")}, []string{p + " x y z"}},
		{"two forms", []event.Item{single("x"), listed("", "y"), single("z")}, []string{s + " x", p + " y", s + " z"}},
		{"pretags", []event.Item{listed("one", "x"), listed("one", "y"), listed("two", "z"), listed("", "w")}, []string{p + " below one x y", p + " below two z", p + " w"}},
	} {
		got, err := alone(t).forwards(test.events, anyTag)
		if err != nil || strings.Join(shape(got), "|") != strings.Join(test.want, "|") {
			t.Errorf("%s: %q, %v, want %q", test.name, shape(got), err, test.want)
		}
	}
}

// TestMessagesHaveAnEnd: as many events as anybody fires go in messages of a bounded size.
func TestMessagesHaveAnEnd(t *testing.T) {
	w := alone(t)
	w.MaxEventSize = 0
	var many, long []event.Item
	for range 1500 {
		many = append(many, item("fire_master", `{"tag":"x","data":{}}`))
	}
	for range 3 {
		long = append(long, item("fire_master", `{"tag":"x","data":{"a":"`+strings.Repeat("x", maxForward/2)+`"}}`))
	}
	for name, test := range map[string]struct {
		events []event.Item
		want   []int
	}{"many": {many, []int{1000, 500}}, "long": {long, []int{1, 1, 1}}} {
		messages, err := w.forwards(test.events, anyTag)
		var got []int
		for _, m := range messages {
			got = append(got, len(m.Events))
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: messages of %v events, %v, want %v", name, got, err, test.want)
		}
	}
}

// TestRefusedEvents: what a master would refuse is refused here, with the code of the reason.
func TestRefusedEvents(t *testing.T) {
	for name, test := range map[string]struct {
		fire protocol.Fire
		code rpc.Code
	}{
		"none":                     {protocol.Fire{}, rpc.Usage},
		"no JSON":                  {protocol.Fire{Events: []event.Item{item("x", "{")}}, rpc.Usage},
		"no tag":                   {protocol.Fire{Events: []event.Item{item("", "{}")}}, rpc.Usage},
		"a tag of the master":      {protocol.Fire{Events: []event.Item{item("x", "{}"), item("salt/job/1/ret/web1", "{}")}}, rpc.Denied},
		"of another minion":        {protocol.Fire{Events: []event.Item{item("salt/minion/web2/start", "{}")}}, rpc.Denied},
		"too large":                {protocol.Fire{Events: []event.Item{item("x", `"`+strings.Repeat("x", 300)+`"`)}}, rpc.Usage},
		"into a space by a pretag": {protocol.Fire{Pretag: ref("salt/job"), Events: []event.Item{item("x", "{}")}}, rpc.Denied},
	} {
		if err := alone(t).checkOutgoing(test.fire); rpc.CodeOf(err) != test.code {
			t.Errorf("%s: %v, want the code %v", name, err, test.code)
		}
	}
	if err := alone(t).checkOutgoing(protocol.Fire{Events: []event.Item{item("salt/minion/web1/x", "{}"), item("x", "")}}); err != nil {
		t.Errorf("what the minion may fire: %v", err)
	}
}

func ref(s string) *string { return &s }

// TestOneMistakeRefusesAll: the mistake may be in the last event, and nothing has gone then.
func TestOneMistakeRefusesAll(t *testing.T) {
	bad := errors.New("bad tag")
	events := []event.Item{item("fire_master", `{"tag":"x","data":{}}`), item("fire_master", `no`)}
	if m, err := alone(t).forwards(events, anyTag); err == nil || m != nil {
		t.Errorf("%v, %v", m, err)
	}
	if _, err := alone(t).forwards(events[:1], func(string) error { return bad }); !errors.Is(err, bad) {
		t.Errorf("who may not fire is told %v", err)
	}
}

// TestWithoutMasters: what is for a master is refused where there is none, and so is what
// would not be stored, or has a name that nobody could keep.
func TestWithoutMasters(t *testing.T) {
	one := protocol.Fire{Events: []event.Item{item("x", "{}")}}
	live, named := one, one
	live.Live, named.ID = true, strings.Repeat("n", maxName+1)
	for name, test := range map[string]struct {
		fire protocol.Fire
		code rpc.Code
	}{"no master": {one, rpc.Unavailable}, "live": {live, rpc.Usage}, "a long name": {named, rpc.Usage}} {
		if _, err := alone(t).FireMaster(t.Context(), test.fire, ""); rpc.CodeOf(err) != test.code {
			t.Errorf("%s: %v, want the code %v", name, err, test.code)
		}
	}
}

// TestSummary: events are stored when all masters have stored them, and one that refuses is
// an error that names it.
func TestSummary(t *testing.T) {
	stored, kept := protocol.MasterFired{Master: "m1", Outcome: protocol.Stored, Seq: 7}, protocol.MasterFired{Master: "m2", Outcome: protocol.Queued}
	for _, test := range []struct {
		reported []protocol.MasterFired
		want     protocol.Outcome
	}{{[]protocol.MasterFired{stored, stored}, protocol.Stored}, {[]protocol.MasterFired{kept, stored}, protocol.Queued}, {[]protocol.MasterFired{stored, kept}, protocol.Queued}} {
		if got, err := sumUp(test.reported, make([]error, 2)); err != nil || got.Outcome != test.want || len(got.Masters) != 2 {
			t.Errorf("%v: %+v, %v, want %v", test.reported, got, err, test.want)
		}
	}
	refused := rpc.Errorf(rpc.Denied, "no")
	if _, err := sumUp([]protocol.MasterFired{stored, kept}, []error{nil, refused}); rpc.CodeOf(err) != rpc.Denied || !strings.Contains(err.Error(), "m2") {
		t.Errorf("a refusal of the second: %v", err)
	}
}

func TestPartsHaveNamesOfTheirOwn(t *testing.T) {
	if a, b := partOf("id", 0), partOf("id", 1); a == b || a == "" {
		t.Errorf("%q and %q", a, b)
	}
	if got := partOf("", 3); got != "" {
		t.Errorf("a request without a name has the part %q", got)
	}
}
