package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/journal"
)

// cluster implements Members: the other members are logs in the same store.
type cluster struct {
	said   func() string // the log of m1
	runs   map[string]*Log
	former map[string]bool
}

func (c *cluster) Runs(name string) bool   { return c.runs[name] != nil }
func (c *cluster) Former(name string) bool { return c.former[name] }

func (c *cluster) Ask(ctx context.Context, to, kind string, body, answer any) error {
	var handler func(ctx context.Context, from string, body []byte) (any, error)
	Server{c.runs[to]}.ServeMembers(func(k string, h func(ctx context.Context, from string, body []byte) (any, error)) {
		if k == kind {
			handler = h
		}
	})
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	got, err := handler(ctx, "m1", text)
	if err != nil {
		return err
	}
	if text, err = json.Marshal(got); err != nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// startMember starts the log of m1, which looks after the others only where a test tells it to.
func startMember(t *testing.T) (*world, *cluster) {
	others := &cluster{runs: map[string]*Log{}, former: map[string]bool{}}
	w := start(t, func(o *Options) {
		o.Name, o.Members = "m1", others
		o.Log, others.said = logged()
	})
	w.l.opts.SeenFile = filepath.Join(t.TempDir(), "seen")
	return w, others
}

// another opens the log of another member. Its journal is of no use to it.
func (w *world) another(name, dir string) *Log {
	w.Helper()
	o := w.opts
	o.Name, o.Members, o.HeadFile, o.KeyFile = name, nil, filepath.Join(dir, "head"), filepath.Join(dir, "key")
	var err error
	if o.Queue, err = journal.OpenQueue(w.Context(), w.bus.Conn(), QueueName+"_"+name, nil); err != nil {
		w.Fatal(err)
	}
	l, err := Open(w.Context(), o)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(l.Close)
	return l
}

// fill lets a member write n entries.
func (w *world) fill(l *Log, n int) {
	w.Helper()
	for i := range n {
		if err := l.Record(w.Context(), ping(fmt.Sprint(l.opts.Name, i))); err != nil {
			w.Fatal(err)
		}
	}
}

// chain returns the log of a member as m1 has it.
func (w *world) chain(name string) *Chain {
	w.Helper()
	all, err := Chains(w.Context(), w.l)
	if err != nil || !all[0].Own || all[0].Name != "m1" {
		w.Fatal(all, err)
	}
	i := slices.IndexFunc(all, func(c *Chain) bool { return c.Name == name })
	if i < 0 {
		w.Fatalf("%s has no log", name)
	}
	return all[i]
}

func (w *world) check(name string, words ...string) Report {
	w.Helper()
	r, err := w.chain(name).Verify(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	w.expect(r, words...)
	return r
}

func (w *world) look() map[string]string {
	w.Helper()
	all, err := Chains(w.Context(), w.l)
	if err != nil {
		w.Fatal(err)
	}
	wrong, err := look(w.Context(), w.l, all)
	if err != nil {
		w.Fatal(err)
	}
	return wrong
}

func (w *world) cut(member string, seqs ...uint64) {
	w.Helper()
	js := w.jetStream()
	s, err := js.Stream(w.Context(), QueueName+"_"+member)
	if err != nil {
		w.Fatal(err)
	}
	for _, seq := range seqs {
		if err := s.DeleteMsg(w.Context(), seq); err != nil {
			w.Fatal(err)
		}
	}
}

// TestLogsOfOthers: each member reads and checks the logs of the others, also of those that do not run. What it has seen, and
// what one that runs says, shows what was cut off.
func TestLogsOfOthers(t *testing.T) {
	w, others := startMember(t)
	w.write(2)
	m2, m3 := w.another("m2", t.TempDir()), w.another("m3", t.TempDir())
	w.fill(m2, 4)
	w.fill(m3, 3)
	others.runs["m2"] = m2
	m3.Close()
	var users []string
	if err := w.chain("m3").Each(t.Context(), Query{Last: 2}, func(line []byte) error {
		e, err := parse(line)
		users = append(users, e.User)
		return err
	}); err != nil || !slices.Equal(users, []string{"m31", "m32"}) {
		t.Errorf("%v, %v", users, err)
	}
	if r := w.check("m3"); len(r.Compared) != 0 || r.Entries != 3 || w.chain("m3").Running() {
		t.Errorf("%+v, want a log that was compared with nothing", r)
	}
	head := w.check("m3").Head
	if r := w.check("m2"); len(r.Compared) != 1 || !strings.Contains(r.Compared[0], "audit.head") || !w.chain("m2").Running() {
		t.Errorf("%+v, want a log that was compared with the head at m2", r)
	}
	if wrong := w.look(); len(wrong) != 0 {
		t.Error(wrong)
	}
	if r := w.check("m3"); len(r.Compared) != 1 || !strings.Contains(r.Compared[0], "entry 3, which was seen here") {
		t.Errorf("%+v, want a log that was compared with what was seen", r)
	}

	w.cut("m2", 4)
	w.check("m2", "entry 4 is missing at the end")
	w.cut("m3", 3)
	w.check("m3", "entry 3 is missing at the end")
	if r, err := w.chain("m3").Verify(t.Context(), head); err != nil || r.OK || !slices.Contains(r.Compared, keptHead) {
		t.Errorf("%+v, %v", r, err)
	}
	for range 2 {
		if wrong := w.look(); !strings.Contains(wrong["m3"], "entry 3 is missing") || !strings.Contains(wrong["m2"], "entry 4 is missing") {
			t.Errorf("%v, want what is missing, again and again", wrong)
		}
	}
	if err := w.jetStream().DeleteStream(t.Context(), "AUDIT_m3"); err != nil {
		t.Fatal(err)
	}
	w.check("m3", "nothing of it is stored, although entry 3 was seen here")
	if err := os.Remove(w.l.opts.SeenFile); err != nil { // by an operator who knows why
		t.Fatal(err)
	}
	if all, err := Chains(t.Context(), w.l); err != nil || len(all) != 2 {
		t.Errorf("%d logs, %v; want those of m1 and m2", len(all), err)
	}
	w.verify()
}

// TestAnEndThatWasReplacedIsNotSeen: entries behind the one that was seen count only if they follow it.
func TestAnEndThatWasReplacedIsNotSeen(t *testing.T) {
	w, others := startMember(t)
	m3 := w.another("m3", t.TempDir())
	w.fill(m3, 2)
	w.look()
	m3.Close()
	if err := w.jetStream().DeleteStream(t.Context(), "AUDIT_m3"); err != nil {
		t.Fatal(err)
	}
	w.fill(w.another("m3", t.TempDir()), 5)
	suspected := keepOthersOnce(t.Context(), w.l, nil)
	if text := others.said(); strings.Contains(text, "is not what it was") {
		t.Error("it is told at the first look: during an election a server may lack entries")
	}
	keepOthersOnce(t.Context(), w.l, suspected)
	if text := others.said(); !strings.Contains(text, "is not what it was") || !strings.Contains(text, "entry 2 is not the one") {
		t.Errorf("the log says %q", text)
	}
	w.check("m3", "entry 2 is not the one that was written")
}

// TestWhatWasSeenIsNotReplacedUnread: a file with a mistake in it, made by hand for example, does not make this member take
// what it finds now for what it has seen. Verify says so, and nothing of the log of a former member is pruned.
func TestWhatWasSeenIsNotReplacedUnread(t *testing.T) {
	w, others := startMember(t)
	m3 := w.another("m3", t.TempDir())
	w.fill(m3, 3)
	w.look()
	m3.Close()
	seen, err := os.ReadFile(w.l.opts.SeenFile)
	if err != nil {
		t.Fatal(err)
	}
	broken := strings.TrimSpace(string(seen)) + ","
	if err := os.WriteFile(w.l.opts.SeenFile, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.jetStream().DeleteStream(t.Context(), "AUDIT_m3"); err != nil {
		t.Fatal(err)
	}
	w.fill(w.another("m3", t.TempDir()), 2)
	for range 2 {
		keepOthersOnce(t.Context(), w.l, nil)
	}
	if now, err := os.ReadFile(w.l.opts.SeenFile); err != nil || string(now) != broken {
		t.Errorf("the file has %q, %v", now, err)
	}
	if text := others.said(); !strings.Contains(text, "it is not known what was seen") {
		t.Errorf("the log says %q", text)
	}
	w.check("m3", "it is not known what was seen")
	if err := os.WriteFile(w.l.opts.SeenFile, seen, 0o600); err != nil {
		t.Fatal(err)
	}
	w.check("m3", "entry 3 is missing at the end")
}

// TestDigestsOfOthers: each master has a key of its own for the digests of arguments.
func TestDigestsOfOthers(t *testing.T) {
	w, others := startMember(t)
	m2 := w.another("m2", t.TempDir())
	w.fill(m2, 1)
	args, kwargs := []any{"reboot"}, map[string]any{"cwd": "/"}
	if _, err := w.chain("m2").Digest(t.Context(), args, kwargs); !errors.Is(err, ErrNoKey) {
		t.Errorf("%v, want that the key is elsewhere", err)
	}
	others.runs["m2"] = m2
	want, err := m2.Digest(args, kwargs)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := w.chain("m2").Digest(t.Context(), args, kwargs); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if own, err := w.chain("m1").Digest(t.Context(), args, kwargs); err != nil || own == want {
		t.Errorf("%q, %v", own, err)
	}
}

// TestLogsOfFormerMembersArePruned: the limits apply to the log of one that is no member any more, not to that of one that is
// away. The log stays complete for whoever checks it, also for the member when it is back.
func TestLogsOfFormerMembersArePruned(t *testing.T) {
	w, others := startMember(t)
	hour := Options{MaxAge: time.Hour}
	dir := t.TempDir()
	m3 := w.another("m3", dir)
	w.fill(m3, 5)
	m3.Close()
	prune := func(later time.Duration) Report {
		t.Helper()
		if err := pruneFormer(t.Context(), w.chain("m3"), hour.limits(time.Now().Add(later))); err != nil {
			t.Fatal(err)
		}
		w.look()
		return w.check("m3")
	}
	if r := prune(2 * time.Hour); r.First != 1 || r.Last != 5 {
		t.Errorf("%+v: the log of a member that is away was pruned", r)
	}
	others.former["m3"] = true
	if r := prune(30 * time.Minute); r.First != 1 || r.Last != 5 {
		t.Errorf("%+v: nothing of it is too old", r)
	}
	if r := prune(2 * time.Hour); r.First != 6 || r.Last != 6 {
		t.Errorf("%+v, want only the entry about that", r)
	}
	if r := prune(4 * time.Hour); r.First != 6 || r.Last != 6 {
		t.Errorf("%+v, want nothing new", r)
	}
	line, told := "", 0
	_ = w.chain("m3").Each(t.Context(), Query{}, func(b []byte) error { line = string(b); return nil })
	if !strings.Contains(line, `"source":"the master m1"`) || !strings.Contains(line, `"upto":5`) {
		t.Errorf("the entry is %s", line)
	}
	for _, one := range w.lines(Query{}) {
		if strings.Contains(one, "the entries up to 5 of the audit log of m3") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("the own log tells it %d times", told)
	}
	w.verify()

	others.former["m3"] = false // it is let in again, with its head
	m3 = w.another("m3", dir)
	w.fill(m3, 2)
	if r, err := m3.Verify(t.Context()); err != nil || !r.OK || r.Last != 8 {
		t.Errorf("%+v, %v", r, err)
	}
	w.check("m3")
	m3.Close()
	others.former["m3"] = true
	if r := prune(2 * time.Hour); r.First != 9 || r.Last != 9 {
		t.Errorf("%+v, want only the entry about that", r)
	}
}

// TestAFormerMemberThatIsBackAlready: if one writes into the log of a member that is just back, that loses no entry, and refuses one
// decision at most.
func TestAFormerMemberThatIsBackAlready(t *testing.T) {
	w, others := startMember(t)
	others.former["m3"] = true
	m3 := w.another("m3", t.TempDir())
	w.fill(m3, 3)
	hour := Options{MaxAge: time.Hour}
	if err := pruneFormer(t.Context(), w.chain("m3"), hour.limits(time.Now().Add(2*time.Hour))); err != nil {
		t.Fatal(err)
	}
	if err := m3.Record(t.Context(), ping("fred")); !errors.Is(err, ErrUnwritten) {
		t.Errorf("%v, want a refusal, since the log does not end as it should", err)
	}
	w.fill(m3, 2)
	if r, err := m3.Verify(t.Context()); err != nil || !r.OK || r.First != 4 || r.Last != 6 {
		t.Errorf("%+v, %v", r, err)
	}
	w.check("m3")
}

// TestFewEntriesTellOfPruning: each time that a part is removed an entry is added, so this waits until it is worth it. The
// newest entry is removed with the others once all are too old.
func TestFewEntriesTellOfPruning(t *testing.T) {
	w, others := startMember(t)
	others.former["m3"] = true
	m3 := w.another("m3", t.TempDir())
	w.fill(m3, 6)
	m3.Close()
	fourth, err := m3.opts.Queue.Read(t.Context(), 4, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	k := limits{since: fourth[0].Stored, slack: time.Hour}
	if err := pruneFormer(t.Context(), w.chain("m3"), k); err != nil {
		t.Fatal(err)
	}
	if r := w.check("m3"); r.First != 1 || r.Last != 6 {
		t.Errorf("%+v: a few that have just become too old are removed", r)
	}
	k.slack = 0
	if err := pruneFormer(t.Context(), w.chain("m3"), k); err != nil {
		t.Fatal(err)
	}
	if r := w.check("m3"); r.First != 4 || r.Last != 7 {
		t.Errorf("%+v, want those that are not too old, and an entry about the others", r)
	}
	if err := pruneFormer(t.Context(), w.chain("m3"), limits{bytes: 1000}); err != nil {
		t.Fatal(err)
	}
	if r := w.check("m3"); r.First < 5 || r.Last != 8 {
		t.Errorf("%+v, want no more than audit_max_bytes allows, and an entry about the others", r)
	}
}

func FuzzQuestion(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"arguments":[[["reboot"],{}]]}`))
	dir := f.TempDir()
	key, err := openDigester(filepath.Join(dir, "key"))
	if err != nil {
		f.Fatal(err)
	}
	h, _, err := openHead(filepath.Join(dir, "head"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(h.close)
	s := Server{&Log{digest: key, head: h}}
	f.Fuzz(func(t *testing.T, body []byte) {
		s.ServeMembers(func(_ string, handle func(ctx context.Context, from string, body []byte) (any, error)) {
			got, err := handle(t.Context(), "m2", body)
			a, _ := got.(answer)
			if err != nil && a != (answer{}) || a.N != 0 {
				t.Errorf("%q: %+v, %v", body, got, err)
			}
		})
	})
}

// TestWhatWasSeenFollowsANewName: the audit log of another one is compared with what was seen of it when it has a new name.
func TestWhatWasSeenFollowsANewName(t *testing.T) {
	path := filepath.Join(t.TempDir(), SeenName)
	names := map[string]string{"m2": "m2_old1", "m3": "m3_old1"}
	read := func() string {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(text)), "")
	}
	for before, want := range map[string]string{
		"":  "",
		"{": "{",
		`{"m2":{"n":7,"hash":"h","time":"2026-01-01T00:00:00Z"},"m4":{"n":1,"hash":"i","time":"2026-01-01T00:00:00Z"}}`: `{"m2_old1":{"n":7,"hash":"h","time":"2026-01-01T00:00:00Z"},"m4":{"n":1,"hash":"i","time":"2026-01-01T00:00:00Z"}}`,
	} {
		if before != "" {
			if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
		} else if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		for range 2 { // a start that is repeated
			if err := RenameSeen(path, names); err != nil {
				t.Fatal(err)
			}
			if got := read(); got != want {
				t.Errorf("%s becomes %s, want %s", before, got, want)
			}
		}
	}
}

// TestWhatWasSeenOfManyFormerMembers: the end of the log of a new member is noted however many there were before it: nothing is
// known any more of logs of which only the entry about the pruning is left. A log that is left out is named in the daemon's log.
func TestWhatWasSeenOfManyFormerMembers(t *testing.T) {
	w, others := startMember(t)
	seen := map[string]sight{}
	for n := range maxSights - 1 {
		seen[fmt.Sprintf("former%d", n)] = sight{N: 1, Hash: "a"}
	}
	text, err := json.Marshal(seen)
	if err == nil {
		err = os.WriteFile(w.l.opts.SeenFile, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	old, young := w.another("m2", t.TempDir()), w.another("m3", t.TempDir())
	w.fill(old, 3)
	old.Close()
	w.look()
	w.fill(young, 2)
	noted := func(name string) uint64 {
		t.Helper()
		now, err := readSights(w.l)
		if err != nil {
			t.Fatal(err)
		}
		return now[name].N
	}
	keepOthersOnce(t.Context(), w.l, nil)
	if noted("m2") != 3 || noted("m3") != 0 || !strings.Contains(others.said(), "member=m3") {
		t.Errorf("noted of m2 is %d, of m3 %d; the log says %q", noted("m2"), noted("m3"), others.said())
	}
	others.former["m2"] = true
	hour := Options{MaxAge: time.Hour}
	if err := pruneFormer(t.Context(), w.chain("m2"), hour.limits(time.Now().Add(2*time.Hour))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		w.look()
	}
	if noted("m2") != 0 || noted("m3") != 2 {
		t.Errorf("after m2 was pruned, noted of it is %d, and of m3 %d", noted("m2"), noted("m3"))
	}
	w.check("m2")
	young.Close()
	w.cut("m3", 2)
	w.check("m3", "entry 2 is missing at the end")
}
