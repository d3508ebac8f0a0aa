package minion_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/minion"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
)

// number is the n of an event in Salt's single form.
func number(t *testing.T, e protocol.Heard) int {
	t.Helper()
	var body struct{ Data struct{ N int } }
	if err := json.Unmarshal(e.Data, &body); err != nil {
		t.Fatal(err)
	}
	return body.Data.N
}

// pairWith is startPair with a configuration that set has changed: smaller limits
// than a file may give.
func pairWith(t *testing.T, set func(*config.Minion)) (*pair, *daemonUnderTest) {
	t.Helper()
	p := &pair{t: t}
	var d *daemonUnderTest
	p.master, p.addr, d = startMaster(t)
	p.stop = d.stop
	p.minion = minionConfig(t, p.addr, "")
	set(p.minion)
	m := startMinion(t, p.minion)
	connected(t, p.minion)
	p.local = dial(t, p.minion.SockDir, minion.SocketName)
	return p, m
}

// restart starts the minion again.
func (p *pair) restart(m *daemonUnderTest) {
	p.t.Helper()
	m.stop()
	startMinion(p.t, p.minion)
	p.local = dial(p.t, p.minion.SockDir, minion.SocketName)
	until(p.t, "the minion answers", func() bool {
		var s protocol.Status
		return p.local.Ask(p.t.Context(), protocol.OpStatus, nil, &s) == nil
	})
}

// TestOutboxIsFull: the oldest go, a counter says how many, and the master is told. The journal of
// the minion's own bus has the same limit for itself.
func TestOutboxIsFull(t *testing.T) {
	p, _ := pairWith(t, func(cfg *config.Minion) { cfg.OutboxMaxBytes = 256 << 10 })
	p.lose()
	const n = 200
	for i := range n {
		data := fmt.Sprintf(`{"tag":"full","data":{"n":%d,"text":%q}}`, i, strings.Repeat("x", 5000))
		if fired, err := p.fire(fireEvent("fire_master", data)); err != nil || fired.Outcome != protocol.Queued {
			t.Fatalf("fire %d: %+v, %v", i, fired, err)
		}
	}
	s := p.status()
	if s.OutboxLost == 0 || s.Outbox < 30 || s.Outbox+s.OutboxLost < n || s.Outbox+s.OutboxLost > n+2 { // the two events of the start may be among them
		t.Errorf("%d messages wait, %d are lost; %d were fired", s.Outbox, s.OutboxLost, n)
	}
	p.back()
	until(t, "the outbox is empty", func() bool { return p.status().Outbox == 0 })
	events := p.atMaster("full")
	for i, e := range events {
		if want := n - len(events) + i; number(t, e) != want {
			t.Fatalf("event %d has number %d, want %d: the newest, in order", i, number(t, e), want)
		}
	}
	reported := p.atMaster("salt/minion/web1/outbox/lost")
	if len(reported) != 1 || !strings.Contains(string(reported[0].Data), fmt.Sprintf(`"data":{"lost":%d,"total":%d}`, s.OutboxLost, s.OutboxLost)) {
		t.Errorf("the master is told %+v, want %d lost", reported, s.OutboxLost)
	}
	if got := int(s.OutboxLost) + len(events); got < n || got > n+2 {
		t.Errorf("%d events arrived and %d are lost; %d were fired", len(events), s.OutboxLost, n)
	}
	here, size := heard(t, p.minion.SockDir, minion.SocketName, "fire_master"), 0
	for _, e := range here {
		size += len(e.Data)
	}
	if len(here) == 0 || len(here) == n || size > 256<<10+256<<10/8 {
		t.Errorf("the journal of the own bus has %d of %d events, of %d bytes: the limit is for it, too", len(here), n, size)
	}
}

// TestOutboxOfLargeMessages: they lie in files, count for the limit, outlive a
// restart, and leave nothing behind.
func TestOutboxOfLargeMessages(t *testing.T) {
	p, m := pairWith(t, func(cfg *config.Minion) { cfg.OutboxMaxBytes = 4 << 20 })
	p.lose()
	large := func(i int) string {
		return fmt.Sprintf(`{"tag":"large","data":{"n":%d,"text":%q}}`, i, strings.Repeat("x", 900_000))
	}
	for i := range 6 {
		if _, err := p.fire(fireEvent("fire_master", large(i))); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(p.minion.CacheDir, "outbox")
	files := func() int {
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if s := p.status(); files() != 4 || s.OutboxLost < 2 {
		t.Errorf("%d files, %d lost; want 4 and 2", files(), s.OutboxLost)
	}
	write(t, filepath.Join(dir, "orphan"), "of a message that was never put")
	p.restart(m)
	if files() != 4 {
		t.Errorf("%d files after a restart, want 4", files())
	}
	if _, err := p.fire(fireEvent("fire_master", large(6))); err != nil {
		t.Fatal(err)
	}
	if files() != 4 {
		t.Errorf("%d files, want 4: those of before the restart count for the limit", files())
	}
	p.back()
	until(t, "the outbox is empty", func() bool { return p.status().Outbox == 0 })
	events := p.atMaster("large")
	if len(events) != 4 {
		t.Fatalf("%d events", len(events))
	}
	until(t, "the files are removed", func() bool { return files() == 0 })
	for i, e := range events {
		if number(t, e) != 3+i || len(e.Data) < 900_000 {
			t.Errorf("event %d has number %d and %d bytes", i, number(t, e), len(e.Data))
		}
	}
}

// TestOutboxAge: what is older than the limit goes, and is counted.
func TestOutboxAge(t *testing.T) {
	p, m := pairWith(t, func(*config.Minion) {})
	p.lose()
	for range 3 {
		if _, err := p.fire(fireEvent("fire_master", `{"events":[{"tag":"old"},{"tag":"old"}]}`)); err != nil {
			t.Fatal(err)
		}
	}
	p.minion.OutboxMaxAge = time.Nanosecond
	p.restart(m)
	until(t, "what is old has gone", func() bool { s := p.status(); return s.Outbox == 0 && s.OutboxLost >= 6 })
	p.back()
	until(t, "the master is told", func() bool { return len(p.atMaster("salt/minion/web1/outbox/lost")) == 1 })
	if got := p.atMaster("old"); len(got) != 0 {
		t.Errorf("%d old events arrived", len(got))
	}
}

// A message that is larger than the whole outbox is refused.
func TestOutboxRefusesAMessageBeyondItsLimit(t *testing.T) {
	p, _ := pairWith(t, func(cfg *config.Minion) { cfg.OutboxMaxBytes = 100 << 10 })
	_, err := p.fire(fireEvent("fire_master", fmt.Sprintf(`{"tag":"huge","data":%q}`, strings.Repeat("x", 200<<10))))
	if err == nil || !strings.Contains(err.Error(), "outbox") {
		t.Errorf("a message beyond the limit: %v", err)
	}
}

// A large return arrives whole; one that cannot be kept is told as a failure.
func TestLargeReturns(t *testing.T) {
	p, _ := pairWith(t, func(cfg *config.Minion) { cfg.OutboxMaxBytes = 10_000_000 })
	c := dial(t, p.master.SockDir, master.SocketName)
	zeros := func(n int) protocol.Publish {
		return protocol.Publish{Commands: call("cmd.run", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", n)), Timeout: 60}
	}
	const large = 5_000_000
	u, _ := publish(t, c, zeros(large))
	if text, _ := u.Return.V.(string); u.State != job.Done || len(text) != large {
		t.Errorf("a large return: %s with %d bytes (%s)", u.State, len(text), u.Text)
	}
	u, _ = publish(t, c, zeros(3*large))
	if text, _ := u.Return.V.(string); u.State != job.Failed || !strings.HasPrefix(text, "ERROR: the return was not delivered") {
		t.Errorf("a return that is too large: %s with %.200s (%s)", u.State, text, u.Text)
	}
}

// TestADamagedOutboxIsReported: what of an outbox cannot be read any more is counted, the
// master is told, and what is readable behind it is delivered.
func TestADamagedOutboxIsReported(t *testing.T) {
	p, m := pairWith(t, func(*config.Minion) {})
	p.lose()
	for n := range 6 {
		data := fmt.Sprintf(`{"tag":"kept","data":{"n":%d,"text":"message-%d"}}`, n, n)
		if _, err := p.fire(fireEvent("fire_master", data)); err != nil {
			t.Fatal(err)
		}
	}
	m.stop()
	files, err := filepath.Glob(filepath.Join(p.minion.CacheDir, "journal/jetstream/*/streams/OUTBOX/msgs/*.blk"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 2, 4} {
		at := bytes.Index(b, fmt.Appendf(nil, "message-%d", n))
		if at < 0 {
			t.Fatal("the message is not in the file")
		}
		b[at] ^= 1
	}
	write(t, files[0], string(b))
	p.restart(m)
	p.back()
	until(t, "the outbox is empty", func() bool { return p.status().Outbox == 0 })
	reported := p.atMaster("salt/minion/web1/outbox/lost")
	if len(reported) != 1 {
		t.Fatalf("the master is told %+v", reported)
	}
	var loss struct {
		Data struct {
			Lost, Total int
			Damaged     []outbox.Damage
		}
	}
	if err := json.Unmarshal(reported[0].Data, &loss); err != nil {
		t.Fatal(err)
	}
	d := loss.Data.Damaged
	if loss.Data.Lost != 3 || loss.Data.Total != 3 || len(d) != 2 {
		t.Fatalf("the master is told %s", reported[0].Data)
	}
	for i, want := range [][2]uint64{{1, 2}, {4, 4}} { // the first message has the number 0
		first := d[0].From - 1 // of the six
		if d[i].From-first != want[0] || d[i].To-first != want[1] || d[i].After.IsZero() || !d[i].Before.After(d[i].After) {
			t.Errorf("run %d is %+v, want the messages %v", i, d[i], want)
		}
	}
	var have []int
	for _, e := range p.atMaster("kept") {
		have = append(have, number(t, e))
	}
	if fmt.Sprint(have) != "[0 3 5]" {
		t.Errorf("at the master are %v", have)
	}
}

// TestUnreadableMessagesAreReported: messages that are whole on the disk and say nothing that
// this minion understands count as lost, and the master is told of all in a row at once.
func TestUnreadableMessagesAreReported(t *testing.T) {
	p, m := pairWith(t, func(*config.Minion) {})
	p.lose()
	m.stop()
	b, err := broker.Start(broker.Options{
		Name: "test", StoreDir: filepath.Join(p.minion.CacheDir, "journal"), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Admit: func(broker.Peer) bus.Identity { return bus.Identity{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	q, err := journal.OpenQueue(t.Context(), b.Conn(), "OUTBOX", b.Store())
	if err != nil {
		t.Fatal(err)
	}
	var seqs []uint64
	for range 3 {
		seq, err := q.Put(t.Context(), []byte("no message\n"))
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, seq)
	}
	b.Stop()
	p.restart(m)
	p.back()
	want := fmt.Sprintf(`"lost":3,"total":3,"damaged":[{"from":%d,"to":%d,`, seqs[0], seqs[2])
	var reported []protocol.Heard
	until(t, "the master is told", func() bool {
		reported = p.atMaster("salt/minion/web1/outbox/lost")
		return len(reported) > 0
	})
	if len(reported) != 1 || !strings.Contains(string(reported[0].Data), want) {
		t.Errorf("the master is told %s", reported[0].Data)
	}
}
