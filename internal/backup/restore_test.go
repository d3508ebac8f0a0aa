package backup_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/backup"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// write backs a store up.
func write(t testing.TB, nc *nats.Conn, member string) (dir string, m *backup.Manifest) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "backup")
	if _, err := backup.Write(inTime(t), nc, backup.Options{Dir: dir, Member: member, Version: "1", Log: bustest.Log(t)}); err != nil {
		t.Fatal(err)
	}
	m, err := backup.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(inTime(t), dir); err != nil {
		t.Fatal(err)
	}
	return dir, m
}

// restore restores a backup as the start of a master does.
func restore(t testing.TB, nc *nats.Conn, dir string, to backup.Target) *backup.Restored {
	t.Helper()
	m, err := backup.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	to.Log = bustest.Log(t)
	did, err := backup.Restore(inTime(t), nc, m, dir, to, &backup.Progress{}, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return did
}

// member returns what a member of the system restores into.
func member(s *bustest.System, m *bustest.Member) backup.Target {
	to := backup.Target{Member: m.Name, Copies: 3}
	for _, one := range s.Members {
		to.Members = append(to.Members, one.Name)
	}
	return to
}

// reader is a journal or a mirror.
type reader interface {
	Read(ctx context.Context, q journal.Query, f func(event.Event) error) error
}

// contents returns all events, as text.
func contents(t testing.TB, j reader) (list []string) {
	t.Helper()
	err := j.Read(inTime(t), journal.Query{}, func(e event.Event) error {
		list = append(list, fmt.Sprintf("%d %s", e.Seq, e.Text()))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// entries returns a table, as text.
func entries(t testing.TB, table *journal.Table, err error) (list []string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	err = table.Each(inTime(t), func(key string, value []byte) { list = append(list, key+": "+string(value)) })
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// queued returns a queue, as text.
func queued(t testing.TB, q *journal.Queue, err error) (list []string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	span, err := q.Span(inTime(t))
	if err != nil {
		t.Fatal(err)
	}
	for seq := span.First; ; { // one call may return less than there is, if the machine is busy
		some, err := q.Read(inTime(t), seq, 1000, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if len(some) == 0 {
			return list
		}
		for _, e := range some {
			list = append(list, fmt.Sprintf("%d %s %s", e.Seq, e.Stored, e.Body))
		}
		seq = some[len(some)-1].Seq + 1
	}
}

// held is what a master has in its store.
type held struct{ events, own, shared, queue []string }

func holds(t testing.TB, j *journal.Journal, store journal.Store) held {
	t.Helper()
	ctx := inTime(t)
	own, err := j.OwnTable(ctx, "plans")
	h := held{events: contents(t, j), own: entries(t, own, err)}
	shared, err := j.Table(ctx, "grains")
	h.shared = entries(t, shared, err)
	q, err := j.Queue(ctx, "AUDIT", store)
	h.queue = queued(t, q, err)
	return h
}

// same compares what a master has with what it had.
func (h held) same(t testing.TB, want held) {
	t.Helper()
	for name, pair := range map[string][2][]string{"events": {h.events, want.events}, "own table": {h.own, want.own}, "shared table": {h.shared, want.shared}, "queue": {h.queue, want.queue}} {
		got, want := pair[0], pair[1]
		if len(got) != len(want) || len(want) == 0 {
			t.Errorf("%s: there are %d, want %d", name, len(got), len(want))
			continue
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: %.200q, want %.200q", name, got[i], want[i])
				break
			}
		}
	}
}

// sameEvents compares the events only.
func (h held) sameEvents(t testing.TB, want held) {
	t.Helper()
	h.own, h.shared, h.queue = want.own, want.shared, want.queue
	h.same(t, want)
}

// copied reads events of another member from the copy that this one has, as those do who follow them.
func copied(t testing.TB, m *bustest.Member, of string, events int) (list []string) {
	t.Helper()
	peers, err := journal.Peers(journal.Starting(inTime(t)), m.Conn(), m.Name, m.Store())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(peers, func(p *journal.Mirror) bool { return p.Name == of })
	if at < 0 {
		t.Fatalf("%s has no journal of %s", m.Name, of)
	}
	c, err := peers[at].Open(inTime(t), journal.Query{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	all := errors.New("all")
	err = c.Each(inTime(t), func(e event.Event) error {
		if list = append(list, fmt.Sprintf("%d %s", e.Seq, e.Text())); len(list) == events {
			return all
		}
		return nil
	})
	if !errors.Is(err, all) {
		t.Errorf("%s: %d of %d events, %v", m.Name, len(list), events, err)
	}
	return list
}

// TestOneBecomesThree: all that a single master has is there when it is a member, with the same
// sequences and times, in three copies; its journal goes on after its last event.
func TestOneBecomesThree(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t)
	j := alone(t, b)
	fill(t, j, b, 100000)
	want := holds(t, j, b.Store())
	dir, _ := write(t, b.Conn(), "")
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	m := s.Members[1]
	begun := time.Now()
	did := restore(t, m.Conn(), dir, member(s, m))
	t.Log(time.Since(begun), did)
	for _, one := range s.Members {
		if !wholeOf(t, one, "EVENTS_m2", "AUDIT_m2", "KV_grains", "KV_plans-m2") {
			t.Errorf("the restore is done, and %s does not have all", one.Name)
		}
	}
	k := open(t, m)
	holds(t, k, m.Store()).same(t, want)
	for _, one := range s.Members {
		if one != m {
			held{events: copied(t, one, m.Name, len(want.events))}.sameEvents(t, want)
		}
	}
	if seq, err := k.Append(inTime(t), newEvent(t, "app/next", 1), ""); err != nil || seq != 100002 { // behind the mark of the start
		t.Errorf("the next event: %d, %v", seq, err)
	}
}

// open opens the journal of a member.
func open(t testing.TB, m *bustest.Member) *journal.Journal {
	t.Helper()
	j, err := journal.Open(inTime(t), m.Conn(), journal.Options{Store: m.Store(), MaxAge: time.Hour, Copies: 3, Name: m.Name, Server: m.Name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j
}

// startMembers starts three members, each with events, tables and a queue of its own.
func startMembers(t testing.TB, events int) (*bustest.System, []*journal.Journal) {
	t.Helper()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	var journals []*journal.Journal
	for i, m := range s.Members {
		j := open(t, m)
		if i == 0 {
			fill(t, j, m.Bus, events)
		}
		if _, err := j.Append(inTime(t), newEvent(t, "app/"+m.Name, i), ""); err != nil {
			t.Fatal(err)
		}
		journals = append(journals, j)
	}
	return s, journals
}

// TestThreeBecomeOne: a single master goes on with all that the member had; the journals of the
// other members are kept like those of other masters.
func TestThreeBecomeOne(t *testing.T) {
	t.Parallel()
	s, journals := startMembers(t, 10000)
	want, others := holds(t, journals[0], s.Members[0].Store()), contents(t, journals[1])
	dir, _ := write(t, s.Members[0].Conn(), "m1")
	b := bustest.StartStore(t)
	restore(t, b.Conn(), dir, backup.Target{Unconfirmed: func(table string, value []byte) []byte {
		t.Errorf("an entry of %s is unconfirmed, in a backup of members that ran: %s", table, value)
		return value
	}, Entry: func(table, key string, value []byte, from, to string) (string, []byte) {
		if table == "grains" && key == "web 3" && from == "m1" && to == "" {
			return "moved 3", []byte("moved")
		}
		return key, value
	}})
	for i, text := range want.shared {
		if strings.HasPrefix(text, "web 3:") {
			want.shared[i] = "moved 3: moved"
		}
	}
	slices.Sort(want.shared)
	j := alone(t, b)
	holds(t, j, b.Store()).same(t, want)
	if seq, err := j.Append(inTime(t), newEvent(t, "app/next", 1), ""); err != nil || seq != 10002 {
		t.Errorf("the next event: %d, %v", seq, err)
	}
	mirrors, err := journal.Mirrors(inTime(t), b.Conn(), b.Store())
	if err != nil || len(mirrors) != 2 || mirrors[0].Name != "m2" {
		t.Fatal(mirrors, err)
	}
	if got := contents(t, mirrors[0]); !slices.Equal(got, others) {
		t.Errorf("the journal of m2 is %q, want %q", got, others)
	}
}

// TestOneOfThreeBecomesThreeAgain: what a single master has kept of the other members of its cluster is kept by the next cluster,
// too. Members of the same names have new journals, and positions name the old ones by their new names.
func TestOneOfThreeBecomesThreeAgain(t *testing.T) {
	t.Parallel()
	s, journals := startMembers(t, 100)
	events, log := contents(t, journals[1]), func(j *journal.Journal, m *bustest.Member) []string {
		q, err := j.Queue(inTime(t), "AUDIT", m.Store())
		if err == nil {
			_, err = q.Put(inTime(t), []byte("by "+m.Name))
		}
		return queued(t, q, err)
	}
	audited := log(journals[1], s.Members[1])
	dir, _ := write(t, s.Members[0].Conn(), "m1")
	b := bustest.StartStore(t)
	restore(t, b.Conn(), dir, backup.Target{})
	dir, _ = write(t, b.Conn(), "")

	s = bustest.StartSystem(t, 3)
	s.Leader(t)
	open(t, s.Members[1])
	m := s.Members[0]
	to := member(s, m)
	to.Renamed = func(table, key string, value []byte, from, to string) (string, []byte) {
		if table == "grains" && key == "web 3" {
			value = append(value, ", "+from+" is "+to...)
		}
		return key, value
	}
	did := restore(t, m.Conn(), dir, to)
	if want := map[string]string{"m2": "m2_old1", "m3": "m3_old1"}; !maps.Equal(did.Renamed, want) || len(did.Left) != 0 {
		t.Errorf("renamed %v, want %v; left %q", did.Renamed, want, did.Left)
	}
	if got := copied(t, m, "m2_old1", len(events)); !slices.Equal(got, events) {
		t.Errorf("the former journal of m2 is %q, want %q", got, events)
	}
	q, err := journal.PeerQueue(journal.Starting(inTime(t)), open(t, m), "AUDIT", "m2_old1")
	if got := queued(t, q, err); !slices.Equal(got, audited) {
		t.Errorf("the former audit log of m2 is %q, want %q", got, audited)
	}
	shared, err := open(t, m).Table(inTime(t), "grains")
	for _, name := range []string{"m2 is m2_old1", "m3 is m3_old1"} {
		if text := strings.Join(entries(t, shared, err), "\n"); !strings.Contains(text, name) {
			t.Errorf("nothing says that %s: %s", name, text)
		}
	}
}

// TestATableThatOthersHaveAlready: a member brings into a shared table what the others lack;
// what they have changed or deleted counts, and what is outdated stays out.
func TestATableThatOthersHaveAlready(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t)
	j := alone(t, b)
	fill(t, j, b, 10)
	deleted := nats.Header{"KV-Operation": {"DEL"}}
	for _, m := range []*nats.Msg{ // as a kill leaves them, before the older ones were removed
		{Subject: "$KV.grains.twice", Data: []byte("older")}, {Subject: "$KV.grains.twice", Data: []byte("newer")},
		{Subject: "$KV.grains.gone", Data: []byte("older")}, {Subject: "$KV.grains.gone", Header: deleted},
	} {
		if _, err := b.Conn().RequestMsgWithContext(inTime(t), m); err != nil {
			t.Fatal(err)
		}
	}
	dir, _ := write(t, b.Conn(), "")
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	other, err := open(t, s.Members[0]).Table(inTime(t), "grains")
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"web 1": "newer", "web 2": "", "db": "other"} {
		if err := other.Put(inTime(t), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Delete(inTime(t), "web 2"); err != nil {
		t.Fatal(err)
	}
	to := member(s, s.Members[1])
	to.Outdated = func(table, key string, value []byte) bool {
		return table == "grains" && key == "web 3" && string(value) == "grains of web 3"
	}
	did := restore(t, s.Members[1].Conn(), dir, to)
	if !slices.Equal(did.Merged, []string{"KV_grains"}) || len(did.Streams) != 3 {
		t.Errorf("merged %q, restored %q", did.Merged, did.Streams)
	}
	if want := map[string]int{"KV_grains": 2}; !maps.Equal(did.There, want) { // web 1, and web 2 that was deleted
		t.Errorf("it says that %v were there, want %v", did.There, want)
	}
	var want []string
	for n := range 50 {
		if n != 1 && n != 2 && n != 3 && n != 7 { // 3 is outdated, 7 was deleted before
			want = append(want, fmt.Sprintf("web %d: grains of web %d", n, n))
		}
	}
	want = append(want, "web 1: newer", "db: other", "twice: newer")
	slices.Sort(want)
	if got := entries(t, other, nil); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestWhoseStreamsAre: what belongs to other members of the present cluster is left to them, and
// what belongs to nobody is kept.
func TestWhoseStreamsAre(t *testing.T) {
	t.Parallel()
	stream := func(name string) backup.Stream {
		return backup.Stream{Name: name, Settings: []byte(`{"name": "` + name + `", "metadata": {"own": "` + strings.Repeat("true", strings.Count(name, "plans")) + `"}}`)}
	}
	var list []backup.Stream
	for _, name := range strings.Fields("AUDIT_a AUDIT_b AUDIT_old KV_grains KV_plans-a KV_plans-b KV_plans-old EVENTS_a EVENTS_b EVENTS_old") {
		list = append(list, stream(name))
	}
	cluster := &backup.Manifest{Mode: backup.ModeCluster, Member: "a", Streams: list}
	named := *cluster
	named.Cluster = "prod"
	alone := &backup.Manifest{Mode: backup.ModeAlone, Streams: []backup.Stream{stream("AUDIT"), stream("AUDIT_b"), stream("KV_grains"), stream("KV_plans"), stream("EVENTS"), stream("MIRROR_b")}}
	again := &backup.Manifest{Mode: backup.ModeAlone, Streams: []backup.Stream{stream("EVENTS"), stream("AUDIT_b"), stream("MIRROR_b"), stream("MIRROR_b_old1")}}
	long := &backup.Manifest{Mode: backup.ModeAlone, Streams: []backup.Stream{stream("EVENTS"), stream("MIRROR_" + strings.Repeat("b", 62))}}
	for name, c := range map[string]struct {
		from *backup.Manifest
		to   backup.Target
		want string
	}{
		"the same member":     {cluster, backup.Target{Member: "a", Members: []string{"a", "b"}}, "AUDIT_a AUDIT_old KV_grains KV_plans-a KV_plans-old EVENTS_a EVENTS_old"},
		"another member":      {cluster, backup.Target{Member: "b", Members: []string{"a", "b"}}, "AUDIT_b KV_grains KV_plans-b EVENTS_b"},
		"beside a new member": {cluster, backup.Target{Member: "a", Members: []string{"a", "b", "d"}}, "AUDIT_a KV_grains KV_plans-a EVENTS_a"},
		"in place of another": {cluster, backup.Target{Member: "d", Members: []string{"a", "b", "d"}, From: "old"}, "AUDIT_d KV_grains KV_plans-d EVENTS_d"},
		"under new names":     {cluster, backup.Target{Member: "x", Members: []string{"x", "y"}, From: "b"}, "AUDIT_x KV_grains KV_plans-x EVENTS_x"},
		"alone":               {cluster, backup.Target{}, "AUDIT AUDIT_b AUDIT_old KV_grains KV_plans EVENTS MIRROR_b MIRROR_old"},
		"alone, from another": {cluster, backup.Target{From: "b"}, "AUDIT_a AUDIT AUDIT_old KV_grains KV_plans MIRROR_a EVENTS MIRROR_old"},
		"the same cluster":    {&named, backup.Target{Member: "x", Members: []string{"x"}, From: "b", Cluster: "prod"}, "AUDIT_x KV_grains KV_plans-x EVENTS_x"},
		"another cluster":     {&named, backup.Target{Member: "x", Members: []string{"x"}, From: "b", Cluster: "test"}, ""},
		"an older backup":     {cluster, backup.Target{Member: "x", Members: []string{"x"}, From: "b", Cluster: "test"}, "AUDIT_x KV_grains KV_plans-x EVENTS_x"},
		"a cluster, alone":    {&named, backup.Target{From: "b"}, "AUDIT_a AUDIT AUDIT_old KV_grains KV_plans MIRROR_a EVENTS MIRROR_old"},
		"unknown":             {cluster, backup.Target{Member: "x", Members: []string{"x"}}, ""},
		"unknown, alone":      {cluster, backup.Target{From: "x"}, ""},
		"alone to alone":      {alone, backup.Target{}, "AUDIT AUDIT_b KV_grains KV_plans EVENTS MIRROR_b"},
		"alone to a member":   {alone, backup.Target{Member: "a", Members: []string{"a", "b"}}, "AUDIT_a AUDIT_b_old1 KV_grains KV_plans-a EVENTS_a EVENTS_b_old1"},
		"alone, others gone":  {alone, backup.Target{Member: "a", Members: []string{"a", "c"}}, "AUDIT_a AUDIT_b KV_grains KV_plans-a EVENTS_a EVENTS_b"},
		"alone, under b":      {alone, backup.Target{Member: "b", Members: []string{"a", "b"}}, "AUDIT_b AUDIT_b_old1 KV_grains KV_plans-b EVENTS_b EVENTS_b_old1"},
		"alone, for the 2nd":  {again, backup.Target{Member: "a", Members: []string{"a", "b"}}, "EVENTS_a AUDIT_b_old2 EVENTS_b_old2 EVENTS_b_old1"},
		"a name too long":     {long, backup.Target{Member: "a", Members: []string{"a", strings.Repeat("b", 62)}}, "EVENTS_a"},
		"alone to servers":    {alone, backup.Target{Member: "a", Hosted: true}, "AUDIT_a KV_grains KV_plans-a EVENTS_a"},
		"a member of one":     {alone, backup.Target{From: "a"}, ""},
	} {
		got, left, err := backup.Plan(c.from, c.to)
		if strings.Join(got, " ") != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
		if err == nil && len(got)+len(left) != len(c.from.Streams) {
			t.Errorf("%s: %q and %q are not all", name, got, left)
		}
	}
}

// TestEachStreamHasOneMember: members that restore one backup together, each by itself, get no stream twice. What belongs
// to none of them is there afterwards if no member has a new name.
func TestEachStreamHasOneMember(t *testing.T) {
	t.Parallel()
	var list []backup.Stream
	for _, name := range strings.Fields("AUDIT_a AUDIT_b AUDIT_c KV_grains KV_plans-a KV_plans-b KV_plans-c EVENTS_a EVENTS_b EVENTS_c") {
		list = append(list, backup.Stream{Name: name, Settings: []byte(`{"name": "` + name + `"}`)})
	}
	m := &backup.Manifest{Mode: backup.ModeCluster, Member: "a", Streams: list}
	for name, c := range map[string]struct {
		members map[string]string // and whose place each takes
		want    int
	}{
		"one has left":     {map[string]string{"a": "", "b": ""}, len(list)},
		"one is new":       {map[string]string{"a": "", "b": "", "d": "c"}, len(list)},
		"two are new":      {map[string]string{"a": "", "d": "b", "e": "c"}, len(list)},
		"all are there":    {map[string]string{"a": "", "b": "", "c": ""}, len(list)},
		"one is left over": {map[string]string{"a": "", "d": "b"}, len(list) - 3},
	} {
		seen := map[string]string{}
		to := backup.Target{Members: slices.Sorted(maps.Keys(c.members))}
		for member, from := range c.members {
			to.Member, to.From = member, from
			got, _, err := backup.Plan(m, to)
			if err != nil {
				t.Fatal(err)
			}
			for _, stream := range got {
				if other := seen[stream]; other != "" && stream != "KV_grains" {
					t.Errorf("%s: both %s and %s restore %s", name, other, member, stream)
				}
				seen[stream] = member
			}
		}
		if len(seen) != c.want {
			t.Errorf("%s: restored are %d streams, want %d: %v", name, len(seen), c.want, seen)
		}
	}
}

// TestAStreamOfNobodyThatIsThere: the journal of a member that has left may be in the cluster already. It stays as it is, and
// the member restores its own.
func TestAStreamOfNobodyThatIsThere(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t)
	j := alone(t, b)
	if _, err := j.Append(inTime(t), newEvent(t, "app/own", 1), ""); err != nil {
		t.Fatal(err)
	}
	want := contents(t, j)
	dir, m := write(t, b.Conn(), "")
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	one := s.Members[0]
	asCluster(t, dir, m, one.Name, "old")
	old, err := journal.Open(inTime(t), one.Conn(), journal.Options{Store: one.Store(), MaxAge: time.Hour, Copies: 3, Name: "old", Server: one.Name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(old.Close)
	if _, err := old.Append(inTime(t), newEvent(t, "app/kept", 1), ""); err != nil {
		t.Fatal(err)
	}
	kept := contents(t, old)
	to := member(s, one)
	to.Members = []string{one.Name}
	did := restore(t, one.Conn(), dir, to)
	if !slices.Equal(did.Left, []string{"EVENTS_old"}) {
		t.Errorf("left is %q", did.Left)
	}
	if got := contents(t, open(t, one)); !slices.Equal(got, want) {
		t.Errorf("its own journal is %q, want %q", got, want)
	}
	if got := contents(t, old); !slices.Equal(got, kept) {
		t.Errorf("the other journal is %q, want %q", got, kept)
	}
}

// asCluster makes of the backup of a single master one of the journals of two members of a cluster, of which one has left.
func asCluster(t testing.TB, dir string, m *backup.Manifest, member, gone string) {
	t.Helper()
	events := m.Streams[len(m.Streams)-1]
	text, err := os.ReadFile(filepath.Join(dir, events.File))
	if err != nil {
		t.Fatal(err)
	}
	m.Mode, m.Member, m.Streams = backup.ModeCluster, member, nil
	for _, name := range []string{"EVENTS_" + gone, "EVENTS_" + member} {
		events.Name, events.File = name, name+".snapshot"
		m.Streams = append(m.Streams, events)
		if err := os.WriteFile(filepath.Join(dir, events.File), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if text, err = json.Marshal(m); err == nil {
		err = os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
