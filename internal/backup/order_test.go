package backup_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/backup"
	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// openStore opens a store that a single master would open, until the test ends.
func openStore(t testing.TB, dir string) *broker.Broker {
	t.Helper()
	b, err := broker.Start(broker.Options{Name: "test", StoreDir: dir, Admit: func(broker.Peer) bus.Identity { return bus.Identity{} }, Log: bustest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	return b
}

// whole reports whether a member has all of each stream.
func whole(t testing.TB, m *bustest.Member) bool {
	t.Helper()
	return wholeOf(t, m, "EVENTS_m1", "EVENTS_m2", "EVENTS_m3", "AUDIT_m1", "KV_grains", "KV_plans-m1")
}

func wholeOf(t testing.TB, m *bustest.Member, streams ...string) bool {
	t.Helper()
	for _, name := range streams {
		answer, err := m.Conn().RequestWithContext(inTime(t), "$JS.API.STREAM.INFO."+name, nil)
		if err != nil {
			return false
		}
		var info struct {
			Cluster struct {
				Leader   string
				Replicas []struct {
					Name    string
					Current bool
					Lag     uint64
				}
			}
		}
		if err := json.Unmarshal(answer.Data, &info); err != nil {
			t.Fatal(err)
		}
		has := info.Cluster.Leader == m.Name
		for _, r := range info.Cluster.Replicas {
			has = has || r.Name == m.Name && r.Current && r.Lag == 0
		}
		if !has {
			return false
		}
	}
	return true
}

// TestTheLastOfThree: of a cluster whose other members are gone for good, the store that is left
// opens as that of a single master, with everything that it had got, and is itself left as it is.
func TestTheLastOfThree(t *testing.T) {
	t.Parallel()
	s, journals := startMembers(t, 10000)
	want := holds(t, journals[0], s.Members[0].Store())
	survivor := s.Members[2]
	bustest.Until(t, "the copies of m3 are whole", func() bool { return whole(t, survivor) })
	survivor.Kill(t)
	killed := time.Now()
	for _, m := range s.Members[:2] {
		m.Stop()
		if err := os.RemoveAll(m.Dir); err != nil {
			t.Fatal(err)
		}
	}
	cache := t.TempDir()
	cluster, own := backup.StoreDir(cache, true), backup.StoreDir(cache, false)
	if err := os.Rename(survivor.Dir, cluster); err != nil {
		t.Fatal(err)
	}
	if err := backup.CheckStore(cache, ""); !errors.Is(err, config.ErrMistake) || !strings.Contains(salt.Hint(err), "salt-master --restore "+cluster) {
		t.Errorf("a single master starts with nothing: %v, hint %q", err, salt.Hint(err))
	}
	r := backup.Request{CacheDir: cache, Source: cluster, Version: "1", Log: bustest.Log(t)}
	if _, err := r.Carry(inTime(t)); err == nil || !strings.Contains(salt.Hint(err), "--restore-as") {
		t.Errorf("it takes one of three journals by chance: %v", err)
	}
	r.From = "m1"
	unconfirmed := map[string]int{}
	r.Unconfirmed = func(table string, value []byte) []byte {
		unconfirmed[table]++
		return value
	}
	did, err := r.Carry(inTime(t))
	if err != nil {
		t.Fatal(err)
	}
	if age := killed.Sub(did.Manifest.Time); age < 0 || age > 5*time.Minute {
		t.Errorf("the store was written to until %s, and it is said to be of %s", killed, did.Manifest.Time)
	}
	if unconfirmed["plans"] == 0 || unconfirmed["grains"] == 0 {
		t.Errorf("entries that may have been removed are taken as they are: %v", unconfirmed)
	}
	b := openStore(t, own)
	j, err := journal.Open(inTime(t), b.Conn(), journal.Options{Store: b.Store(), Reserve: b.Reserve})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	holds(t, j, b.Store()).same(t, want)
	if left, _ := filepath.Glob(filepath.Join(cache, "*")); len(left) != 2 || did.Moved == "" {
		t.Errorf("left: %q, moved to %q", left, did.Moved)
	}
	if err := backup.CheckStore(cache, ""); err != nil {
		t.Error(err)
	}
}

// spoil changes one byte in the middle of a file.
func spoil(t testing.TB, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestADamagedBackupRestoresNothing: one wrong byte in one file is found before anything is done,
// and the error names the file.
func TestADamagedBackupRestoresNothing(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t)
	j := alone(t, b)
	fill(t, j, b, 1000)
	dir, m := write(t, b.Conn(), "")
	file := filepath.Join(dir, m.Streams[len(m.Streams)-1].File)
	spoil(t, file)
	cache := t.TempDir()
	r := backup.Request{CacheDir: cache, Source: dir, Version: "1", Log: b.Log}
	if _, err := r.Carry(inTime(t)); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("alone: %v", err)
	}
	if left, _ := os.ReadDir(cache); len(left) != 0 {
		t.Errorf("alone: left %v", left)
	}
	spoil(t, file) // it is as it was
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	r.Member = "m1"
	if _, err := r.Carry(inTime(t)); err != nil {
		t.Fatal(err)
	}
	spoil(t, file)
	one := s.Members[0]
	if _, err := backup.CarryOut(inTime(t), one.Conn(), cache, member(s, one)); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("as a member: %v", err)
	}
	answer, err := one.Conn().RequestWithContext(inTime(t), "$JS.API.STREAM.NAMES", nil)
	if err != nil || strings.Contains(string(answer.Data), "KV_") || strings.Contains(string(answer.Data), "EVENTS") {
		t.Errorf("as a member: %v, %s", err, answer.Data)
	}
}

// cutter is a logger's handler that calls cut when a stream was restored.
type cutter struct {
	slog.Handler
	stream string
	cut    func()
}

func (c cutter) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if r.Message == "a stream was restored" && a.Key == "stream" && a.Value.String() == c.stream {
			c.cut()
		}
		return true
	})
	return c.Handler.Handle(ctx, r)
}

// TestARestoreAloneIsWholeOrNotThere: a restore that ends too early leaves no store, and can be
// done again.
func TestARestoreAloneIsWholeOrNotThere(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t)
	j := alone(t, b)
	fill(t, j, b, 1000)
	want := holds(t, j, b.Store())
	dir, _ := write(t, b.Conn(), "")
	cache := t.TempDir()
	store := backup.StoreDir(cache, false)
	ctx, cancel := context.WithCancel(inTime(t))
	r := backup.Request{CacheDir: cache, Source: dir, Version: "1", Log: slog.New(cutter{b.Log.Handler(), "KV_grains", cancel})}
	if _, err := r.Carry(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended too early: %v", err)
	}
	if _, err := os.Lstat(store); err == nil {
		t.Error("there is a store in part")
	}
	if err := os.CopyFS(store+".restored", os.DirFS(dir)); err != nil { // of one that was killed
		t.Fatal(err)
	}
	r.Log = b.Log
	if _, err := r.Carry(inTime(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Carry(inTime(t)); err == nil || salt.Hint(err) == "" {
		t.Errorf("it restores over a store that is in use: %v", err)
	}
	o := openStore(t, store)
	k, err := journal.Open(inTime(t), o.Conn(), journal.Options{Store: o.Store(), Reserve: o.Reserve})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	holds(t, k, o.Store()).same(t, want)
}

// TestARestoreGoesOnAfterAKill: a member that is killed while it takes over the store of a single
// master goes on at its next start; then that store is moved away.
func TestARestoreGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	old := backup.StoreDir(cache, false)
	b := openStore(t, old)
	bus := &bustest.Bus{Broker: b, Log: bustest.Log(t)}
	j := alone(t, bus)
	fill(t, j, bus, 20000)
	want := holds(t, j, b.Store())
	j.Close()
	b.Stop()
	if err := backup.CheckStore(cache, "m2"); !errors.Is(err, config.ErrMistake) || !strings.Contains(salt.Hint(err), "salt-master --restore "+old) || !strings.HasPrefix(salt.Hint(err), "after 'salt-master --repair' take cluster_id and cluster_peers out") {
		t.Errorf("a member starts with nothing: %v, hint %q", err, salt.Hint(err))
	}
	if _, err := (backup.Request{CacheDir: cache, Source: old, Member: "m2", Version: "1", Log: bus.Log}).Carry(inTime(t)); err != nil {
		t.Fatal(err)
	}
	if err := backup.CheckStore(cache, "m2"); err != nil {
		t.Error(err)
	}
	if err := backup.CheckStore(cache, ""); !errors.Is(err, config.ErrMistake) {
		t.Errorf("a single master ignores what is ordered for a member: %v", err)
	}
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	m := s.Members[1]
	to := member(s, m)
	to.Log = slog.New(cutter{bus.Log.Handler(), "KV_plans-m2", func() { m.Kill(t) }}) // it is not noted as done
	if _, err := backup.CarryOut(inTime(t), m.Conn(), cache, to); err == nil {
		t.Fatal("it was not killed")
	}
	s.Rejoin(m)
	m.Start(t)
	s.Linked(t)
	s.Leader(t)
	to.Log = bus.Log
	did, err := backup.CarryOut(inTime(t), m.Conn(), cache, to)
	if err != nil || did == nil {
		t.Fatal(did, err)
	}
	holds(t, open(t, m), m.Store()).same(t, want)
	if again, err := backup.CarryOut(inTime(t), m.Conn(), cache, to); again != nil || err != nil {
		t.Errorf("it restores twice: %v, %v", again, err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "*")); len(left) != 2 || !strings.Contains(left[1], "journal.") {
		t.Errorf("left: %q", left)
	}
	if err := backup.CheckStore(cache, "m2"); err != nil {
		t.Error(err)
	}
	if err := backup.CheckStore(cache, "m3"); !errors.Is(err, config.ErrMistake) {
		t.Errorf("a member opens the store of another: %v", err)
	}
}

// TestWhatFollowsARestoreIsDoneAgainAfterAKill: what a master keeps elsewhere of those that have new names is changed before the order
// is removed. A start that is killed meanwhile, or fails, is followed by one that does it.
func TestWhatFollowsARestoreIsDoneAgainAfterAKill(t *testing.T) {
	t.Parallel()
	three, _ := startMembers(t, 10)
	of, _ := write(t, three.Members[0].Conn(), "m1")
	cache := t.TempDir()
	old := backup.StoreDir(cache, false)
	b := openStore(t, old)
	restore(t, b.Conn(), of, backup.Target{})
	b.Stop()
	if _, err := (backup.Request{CacheDir: cache, Source: old, Member: "m1", Version: "1", Log: bustest.Log(t)}).Carry(inTime(t)); err != nil {
		t.Fatal(err)
	}
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	to := member(s, s.Members[0])
	to.Log = bustest.Log(t)
	killed := errors.New("killed")
	var told []map[string]string
	to.Follow = func(did *backup.Restored) error {
		told = append(told, did.Renamed)
		if len(told) == 1 {
			return killed
		}
		return nil
	}
	for _, want := range []error{killed, nil, nil} {
		if _, err := backup.CarryOut(inTime(t), s.Members[0].Conn(), cache, to); !errors.Is(err, want) {
			t.Errorf("a start ends with %v, want %v", err, want)
		}
	}
	names := map[string]string{"m2": "m2_old1", "m3": "m3_old1"}
	if len(told) != 2 || !maps.Equal(told[0], names) || !maps.Equal(told[1], names) {
		t.Errorf("told %v, want %v, and again after the kill", told, names)
	}
}

// TestARestoreOverAJournalIsRefused: a journal that is there already, such as that of a member whose
// directory was lost, or one at the NATS servers of others, is not replaced, however often the
// master is started. Nothing is left that an operator has to remove.
func TestARestoreOverAJournalIsRefused(t *testing.T) {
	t.Parallel()
	s, journals := startMembers(t, 100)
	m := s.Members[0]
	want := holds(t, journals[0], m.Store())
	cache := t.TempDir()
	old := backup.StoreDir(cache, false)
	b := openStore(t, old)
	bus := &bustest.Bus{Broker: b, Log: bustest.Log(t)}
	j := alone(t, bus)
	fill(t, j, bus, 10)
	j.Close()
	b.Stop()
	if _, err := (backup.Request{CacheDir: cache, Source: old, Member: m.Name, Version: "1", Log: bus.Log}).Carry(inTime(t)); err != nil {
		t.Fatal(err)
	}
	to := member(s, m)
	to.Log = bus.Log
	_, err := backup.CarryOut(inTime(t), m.Conn(), cache, to)
	if !errors.Is(err, config.ErrMistake) || !strings.Contains(err.Error(), "AUDIT_"+m.Name+": the stream exists already") || !strings.Contains(salt.Hint(err), "nothing was restored") || !strings.Contains(salt.Hint(err), "move "+old+" away") {
		t.Errorf("the first start: %v, hint %q", err, salt.Hint(err))
	}
	for _, name := range []string{"restore.json", "restore"} {
		if _, err := os.Lstat(filepath.Join(cache, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
	if did, err := backup.CarryOut(inTime(t), m.Conn(), cache, to); did != nil || err != nil {
		t.Errorf("the second start: %v, %v", did, err)
	}
	holds(t, journals[0], m.Store()).same(t, want)
}

// TestARestoreThatFailsLeavesNoCopy: a store is copied to be read, and the copy is as large as the store. That of an
// order which counts is kept until another order takes its place.
func TestARestoreThatFailsLeavesNoCopy(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	old := backup.StoreDir(cache, false)
	b := openStore(t, old)
	bus := &bustest.Bus{Broker: b, Log: bustest.Log(t)}
	j := alone(t, bus)
	fill(t, j, bus, 10)
	j.Close()
	b.Stop()
	copies := func() (list []string) {
		t.Helper()
		all, err := filepath.Glob(filepath.Join(cache, "restore*", "*", "manifest.json"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	wrong := backup.Request{CacheDir: cache, Source: old, Member: "m1", From: "m9", Version: "1", Log: bus.Log}
	right := wrong
	right.From = ""
	refused := func() {
		t.Helper()
		if _, err := wrong.Carry(inTime(t)); err == nil || !strings.Contains(err.Error(), "not of a member") {
			t.Errorf("a store of a single master is restored as that of a member: %v", err)
		}
	}
	refused()
	if left := copies(); len(left) > 0 {
		t.Errorf("copies are left: %q", left)
	}
	for range 3 {
		if _, err := right.Carry(inTime(t)); err != nil {
			t.Fatal(err)
		}
		ordered := copies()
		if len(ordered) != 1 {
			t.Fatalf("ordered: %q", ordered)
		}
		refused()
		if left := copies(); !slices.Equal(left, ordered) {
			t.Errorf("left: %q, ordered %q", left, ordered)
		}
		text, err := os.ReadFile(filepath.Join(cache, "restore.json"))
		if err != nil || !strings.Contains(string(text), `"`+filepath.Dir(ordered[0])+`"`) {
			t.Errorf("the order is %s: %v, the copy %s", text, err, ordered[0])
		}
	}
}

// TestAStartRemovesTheCopyOfAKilledRestore: it is as large as the store. That of an order stays, and what is not of a restore.
func TestAStartRemovesTheCopyOfAKilledRestore(t *testing.T) {
	t.Parallel()
	for name, check := range map[string]func(string) error{
		"alone":    func(cache string) error { return backup.CheckStore(cache, "") },
		"a member": func(cache string) error { return backup.CheckStore(cache, "m1") },
		"hosted":   backup.CheckHosted,
	} {
		cache := t.TempDir()
		file := func(parts ...string) string {
			t.Helper()
			path := filepath.Join(append([]string{cache}, parts...)...)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			return path
		}
		left := []string{file("restore", "backup", "manifest.json"), file("restore", "store", "x"), file("restore.next", ".backup.unfinished-1", "x")}
		there := func() (n int) {
			for _, path := range left {
				if _, err := os.Lstat(path); err == nil {
					n++
				}
			}
			return n
		}
		if err := check(cache); err != nil || there() != 0 {
			t.Errorf("%s: left are %d, %v", name, there(), err)
		}
		left = []string{file("restore", "manifest.json")} // a backup that somebody has put there
		if err := check(cache); err != nil || there() != 1 {
			t.Errorf("%s: a backup is gone: %v", name, err)
		}
		if name == "alone" {
			continue
		}
		left = []string{file("restore.next", "backup", "manifest.json")}
		if err := os.WriteFile(filepath.Join(cache, "restore.json"), []byte(`{"dir":"`+filepath.Dir(left[0])+`"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := check(cache); err != nil || there() != 1 {
			t.Errorf("%s: the copy of an order is gone: %v", name, err)
		}
	}
}

// TestAMemberBeforeIsNotJoined: a store that has only what the server keeps about a cluster is not empty.
func TestAMemberBeforeIsNotJoined(t *testing.T) {
	cache := t.TempDir()
	if err := backup.CheckJoin(cache); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(backup.StoreDir(cache, true), "jetstream", "SYS", "_js_", "_meta_"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := backup.CheckJoin(cache); err == nil || salt.Hint(err) != "move it away" {
		t.Errorf("%v, %q", err, salt.Hint(err))
	}
}

// TestAMemberDoesNotOpenTheStoreOfAnotherCluster: the member of the same address in another cluster has the same name, and streams of the same
// names. A store that does not say its cluster, since an earlier version has made it, says it from the next start on.
func TestAMemberDoesNotOpenTheStoreOfAnotherCluster(t *testing.T) {
	cache := t.TempDir()
	start := func(cluster string) error {
		t.Helper()
		if err := errors.Join(backup.CheckStore(cache, "m1"), backup.CheckCluster(cache, cluster)); err != nil {
			return err
		}
		_, err := backup.CarryOut(inTime(t), nil, cache, backup.Target{Member: "m1", Cluster: cluster, Log: bustest.Log(t)})
		return err
	}
	for range 2 {
		if err := start("old"); err != nil {
			t.Fatal(err)
		}
	}
	store := backup.StoreDir(cache, true)
	err := start("new")
	if !errors.Is(err, config.ErrMistake) || !strings.Contains(err.Error(), store+" is the store of a member of the cluster old") || !strings.Contains(salt.Hint(err), "salt-master --restore") {
		t.Errorf("a member of another cluster: %v, hint %q", err, salt.Hint(err))
	}
	if err := os.Remove(filepath.Join(store, "cluster_id")); err != nil {
		t.Fatal(err)
	}
	if err := start("new"); err != nil {
		t.Error(err)
	}
	if err := start("old"); !errors.Is(err, config.ErrMistake) {
		t.Errorf("an earlier store does not say its cluster after a start: %v", err)
	}
}
