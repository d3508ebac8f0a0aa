package minion_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/minion"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// pair is a master and a minion, connected.
type pair struct {
	t      testing.TB
	master *config.Master
	minion *config.Minion
	addr   net.Addr
	stop   func() // the master
	local  *rpc.Conn
}

func startPair(t testing.TB, settings string) *pair {
	t.Helper()
	p := &pair{t: t}
	var d *daemonUnderTest
	p.master, p.addr, d = startMaster(t)
	p.stop = d.stop
	p.minion = minionConfig(t, p.addr, settings)
	startMinion(t, p.minion)
	connected(t, p.minion)
	p.local = dial(t, p.minion.SockDir, minion.SocketName)
	return p
}

// lose stops the master and returns when the minion knows.
func (p *pair) lose() {
	p.t.Helper()
	p.stop()
	until(p.t, "the loss is noticed", func() bool { return !p.status().Connected })
}

func (p *pair) status() (s protocol.Status) {
	p.t.Helper()
	if err := p.local.Ask(p.t.Context(), protocol.OpStatus, nil, &s); err != nil {
		p.t.Fatal(err)
	}
	return s
}

// back starts the master again, where it was.
func (p *pair) back() {
	p.t.Helper()
	p.master.RetPort = p.addr.(*net.TCPAddr).Port
	m, err := master.New(p.t.Context(), master.Options{Config: p.master, Version: "test", Log: logger(p.t, "master")})
	if err != nil {
		p.t.Fatal(err)
	}
	p.stop = run(p.t, m.Run).stop
}

// fire fires on the minion's bus.
func (p *pair) fire(events ...event.Item) (protocol.Fired, error) {
	var fired protocol.Fired
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	err := p.local.Ask(ctx, protocol.OpFire, protocol.Fire{ID: bus.NewNonce(), Events: events}, &fired)
	return fired, err
}

func fireEvent(tag, data string) event.Item {
	return event.Item{Tag: tag, Data: json.RawMessage(data)}
}

// heard is what stands in a journal: events with these tags, without _stamp.
func heard(t testing.TB, dir, socket string, tags ...string) (events []protocol.Heard) {
	t.Helper()
	s, err := dial(t, dir, socket).Call(protocol.OpListen, protocol.Listen{Tags: tags, FromSeq: 1, UntilEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var ready protocol.Ready
	if err := s.Decode(ctx, &ready); err != nil {
		t.Fatal(err)
	}
	for {
		var e protocol.Heard
		if s.Decode(ctx, &e) != nil {
			return events
		}
		events = append(events, e)
	}
}

func (p *pair) atMaster(tags ...string) []protocol.Heard {
	return heard(p.t, p.master.SockDir, master.SocketName, tags...)
}

// told is an event as a test compares it.
func shown(t testing.TB, e protocol.Heard) string {
	t.Helper()
	var data any
	if err := json.Unmarshal(e.Data, &data); err != nil {
		t.Fatal(err)
	}
	if m, ok := data.(map[string]any); ok {
		delete(m, "_stamp")
	}
	b, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s from %s %s", e.Tag, e.From, b)
}

func TestForward(t *testing.T) {
	p := startPair(t, "")
	for name, row := range map[string]struct {
		tag, data string
		want      []string
	}{
		"single": {"fire_master", `{"data":{"message":"single"},"tag":"single/a","events":null,"pretag":null}`,
			[]string{`single/a from web1 {"cmd":"_minion_event","data":{"message":"single"},"id":"web1","pretag":null,"tag":"single/a"}`}},
		"keys may be missing": {"fire_master", `{"tag":"short/a"}`,
			[]string{`short/a from web1 {"cmd":"_minion_event","data":{},"id":"web1","pretag":null,"tag":"short/a"}`}},
		"a forged id": {"fire_master", `{"id":"db1","data":{"id":"db1"},"tag":"forged/a"}`,
			[]string{`forged/a from web1 {"cmd":"_minion_event","data":{"id":"db1"},"id":"web1","pretag":null,"tag":"forged/a"}`}},
		"a longer tag": {"fire_master/of/mine", `{"tag":"longer/a","data":"text"}`,
			[]string{`longer/a from web1 {"cmd":"_minion_event","data":"text","id":"web1","pretag":null,"tag":"longer/a"}`}},
		"a list as the page has it": {"fire_master",
			`{"id":"web1","events":[{"message":"a drap in the bucket","tag":"list/a"},{"message":"another","tag":"list/a"}],"tag":null,"pretag":null,"data":null}`,
			[]string{`list/a from web1 {"message":"a drap in the bucket","tag":"list/a"}`, `list/a from web1 {"message":"another","tag":"list/a"}`}},
		"a list with pretag": {"fire_master", `{"events":[{"data":{"n":1},"tag":"pre1"},{"data":{"n":2},"tag":"pre2"}],"pretag":"pre0"}`,
			[]string{`pre1 from web1 {"n":1}`, `pre0/pre1 from web1 {"n":1}`, `pre2 from web1 {"n":2}`, `pre0/pre2 from web1 {"n":2}`}},
	} {
		t.Run(name, func(t *testing.T) {
			fired, err := p.fire(fireEvent(row.tag, row.data))
			if err != nil || fired.Outcome != protocol.Stored {
				t.Fatalf("fire: %+v, %v; want it stored", fired, err)
			}
			prefix := "pre"
			if !strings.HasPrefix(row.want[0], "pre") {
				prefix = row.want[0][:strings.Index(row.want[0], "/")]
			}
			var got []string
			for _, e := range p.atMaster(prefix) {
				got = append(got, shown(t, e))
			}
			if !reflect.DeepEqual(got, row.want) {
				t.Errorf("at the master: %q\nwant %q", got, row.want)
			}
		})
	}
	if got := heard(t, p.minion.SockDir, minion.SocketName, "fire_master"); len(got) != 6 {
		t.Errorf("%d events on the minion's own bus, want all six", len(got))
	}
}

// A mistake is told to who fires, and nothing of what it is among is stored or
// passed on, with a master and without.
func TestForwardRefusals(t *testing.T) {
	p := startPair(t, "max_event_size: 2048\n")
	rows := map[string]struct {
		data string
		code rpc.Code
	}{
		"junk":             {`"x"`, rpc.Usage},
		"neither":          {`{"data":{}}`, rpc.Usage},
		"events no list":   {`{"events":{"tag":"no"}}`, rpc.Usage},
		"no tag within":    {`{"events":[{"tag":"no"},{"data":{}}]}`, rpc.Usage},
		"control in a tag": {`{"tag":"a\u0000b"}`, rpc.Usage},
		"the master's tag": {`{"tag":"salt/job/20261121113344286549/ret/db1"}`, rpc.Denied},
		"another minion":   {`{"events":[{"tag":"no"},{"tag":"salt/minion/db1/start"}]}`, rpc.Denied},
		"by pretag":        {`{"events":[{"tag":"auth"}],"pretag":"salt"}`, rpc.Denied},
		"too large":        {`{"tag":"no","data":"` + strings.Repeat("x", 2000) + `"}`, rpc.Usage},
	}
	check := func(t *testing.T) {
		for name, row := range rows {
			_, err := p.fire(fireEvent("no", "{}"), fireEvent("fire_master", `{"tag":"no"}`), fireEvent("fire_master", row.data))
			if rpc.CodeOf(err) != row.code {
				t.Errorf("%s: %v, want code %s", name, err, row.code)
			}
			if row.code == rpc.Usage && name != "control in a tag" && salt.Hint(err) == "" {
				t.Errorf("%s: no hint in %v", name, err)
			}
		}
	}
	t.Run("with a master", check)
	if got := p.atMaster("no", "salt/job", "salt/auth", "auth"); len(got) > 0 && got[0].From == "web1" {
		t.Errorf("at the master: %+v", got)
	}
	if got := heard(t, p.minion.SockDir, minion.SocketName, "no", "fire_master"); len(got) != 0 {
		t.Errorf("on the minion's bus: %+v", got)
	}
	until(t, "the master knows of the refusals", func() bool { return len(p.atMaster("salt/audit/refused")) == 3 && p.status().Outbox == 0 })
	p.lose()
	t.Run("without a master", check)
	if s := p.status(); s.Outbox != 0 {
		t.Errorf("%d messages in the outbox", s.Outbox)
	}
}

func TestForwardWithoutAMaster(t *testing.T) {
	p := startPair(t, "")
	p.lose()
	for i := range 3 {
		fired, err := p.fire(fireEvent("fire_master", fmt.Sprintf(`{"events":[{"tag":"away","data":{"n":%d}},{"tag":"away","data":{"n":%d}}]}`, 2*i, 2*i+1)))
		if err != nil || fired.Outcome != protocol.Queued {
			t.Fatalf("fire: %+v, %v; want it in the outbox", fired, err)
		}
	}
	p.back()
	until(t, "the outbox is empty", func() bool { return p.status().Outbox == 0 })
	for i, e := range p.atMaster("away") {
		if want := fmt.Sprintf(`away from web1 {"n":%d}`, i); shown(t, e) != want {
			t.Errorf("event %d: %s, want %s", i, shown(t, e), want)
		}
	}
}

// A request that is made again, after an answer was lost, is not a second one.
func TestForwardARepetition(t *testing.T) {
	p := startPair(t, "")
	q := protocol.Fire{ID: "the-same", Events: []event.Item{fireEvent("fire_master", `{"tag":"again"}`), fireEvent("fire_master", `{"events":[{"tag":"again"}]}`)}}
	for range 3 {
		var fired protocol.Fired
		if err := p.local.Ask(t.Context(), protocol.OpFire, q, &fired); err != nil || fired.Outcome != protocol.Stored {
			t.Errorf("fired: %+v, %v", fired, err)
		}
	}
	if got := p.atMaster("again"); len(got) != 2 {
		t.Errorf("%d events at the master, want 2: %+v", len(got), got)
	}
}

// TestLiveEventsStayOnTheMinion: what is not stored is heard on the minion's bus and is
// not for the master, however it is asked for; who asks for that is told.
func TestLiveEventsStayOnTheMinion(t *testing.T) {
	p := startPair(t, "")
	s, err := p.local.Call(protocol.OpListen, protocol.Listen{Live: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var ready protocol.Ready
	if err := s.Decode(t.Context(), &ready); err != nil {
		t.Fatal(err)
	}
	for op, tags := range map[string][]string{protocol.OpFire: {"here/no", "fire_master"}, protocol.OpMaster: {"there"}} {
		q := protocol.Fire{Live: true}
		for _, tag := range tags {
			q.Events = append(q.Events, fireEvent(tag, `{"tag":"there"}`))
		}
		if err := p.local.Ask(t.Context(), op, q, nil); rpc.CodeOf(err) != rpc.Usage {
			t.Errorf("%s: %v", op, err)
		}
	}
	var fired protocol.Fired
	q := protocol.Fire{Live: true, Events: []event.Item{fireEvent("here/yes", "1")}}
	if err := p.local.Ask(t.Context(), protocol.OpFire, q, &fired); err != nil || fired.Outcome != protocol.Handed {
		t.Fatalf("fired: %+v, %v", fired, err)
	}
	var e protocol.Heard
	if err := s.Decode(t.Context(), &e); err != nil || e.Tag != "here/yes" || e.Seq != 0 {
		t.Errorf("heard %+v, %v", e, err)
	}
	if got := append(heard(t, p.minion.SockDir, minion.SocketName, "here"), p.atMaster("here", "there")...); len(got) != 0 {
		t.Errorf("stored: %+v", got)
	}
}
