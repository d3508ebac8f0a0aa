package accord

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/pki"
)

// copied returns a copy of the key directory as it is now.
func (at *seat) copied() string {
	at.t.Helper()
	dir := at.t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(at.dir)); err != nil {
		at.t.Fatal(err)
	}
	return dir
}

// TestAnOldKeyDirectoryDeletesNothing: an older copy of the key directory lacks what was accepted since,
// whether it was accepted here or elsewhere; nothing but acceptances has happened meanwhile.
func TestAnOldKeyDirectoryDeletesNothing(t *testing.T) {
	for _, here := range []bool{true, false} {
		j := openStore(t)
		a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
		key := newKey(t).Public()
		a.act(Accept, "web1", key)
		settled(a, b)
		old := a.copied()
		if here {
			a.act(Accept, "later", key)
		} else {
			b.act(Accept, "later", key)
		}
		settled(b, a)
		a.is("later", key, pki.Accepted)
		a.openKeys(old)
		a.begin()
		if !a.shared.directory.fresh {
			t.Errorf("accepted here: %v: an older copy is taken for the present directory", here)
		}
		settled(a, b)
		for _, at := range []*seat{a, b} {
			at.is("later", key, pki.Accepted)
			at.is("web1", key, pki.Accepted)
		}
	}
}

// TestAKilledAcceptanceIsKept: the daemon is killed after each number of writes while a key is accepted here
// or elsewhere. When it starts again with the same directory, nothing is lost, and what was deleted while it
// did not run is deleted everywhere.
func TestAKilledAcceptanceIsKept(t *testing.T) {
	for _, here := range []bool{true, false} {
		for writes := range 4 {
			j := openStore(t)
			a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
			key := newKey(t).Public()
			a.act(Accept, "web1", key)
			a.act(Accept, "gone", key)
			settled(a, b)
			accepts := b
			if here {
				accepts = a
			}
			accepts.act(Accept, "later", key)
			b.rounds()
			a.hears()
			a.agreed.left = writes
			a.killed()
			a.agreed.left = -1
			a.does(Delete, "gone", key)
			a.begin()
			if a.shared.directory.fresh {
				t.Errorf("accepted here: %v, after %d writes: the present directory is taken for another one", here, writes)
			}
			settled(a, b)
			for _, at := range []*seat{a, b} {
				at.is("later", key, pki.Accepted)
				at.is("web1", key, pki.Accepted)
				at.is("gone", key, pki.Unknown)
			}
		}
	}
}

// killed is rounds that may end in their middle.
func (at *seat) killed() {
	at.t.Helper()
	defer func() {
		if r := recover(); r != nil && r != errKilled {
			panic(r)
		}
	}()
	at.rounds()
}

// unsure is a table that does not answer when the stamp of the directory is stored; it may be stored.
type unsure struct {
	*line
	stored bool
}

func (u unsure) Keep(ctx context.Context, key string, value []byte) error {
	if key != directoryKey {
		return u.line.Keep(ctx, key, value)
	}
	if u.stored {
		if err := u.line.Keep(ctx, key, value); err != nil {
			return err
		}
	}
	return errCut
}

// options are those of begin.
func (at *seat) options(agreed Table) SharedOptions {
	return SharedOptions{Name: at.name, Dir: at.dir, Table: at.table, Agreed: agreed, Keys: at.keys, Log: slog.New(slog.NewTextHandler(at.t.Output(), nil))}
}

// TestAStartThatEndsBringsNothingBack: a master starts with an older or an empty key directory, and ends before
// it has applied what the table says, once or several times: since the servers do not answer, or for any
// other reason. All masters have one name, as at NATS servers of others. After the next start with either
// directory the keys are as they were decided.
func TestAStartThatEndsBringsNothingBack(t *testing.T) {
	ends := map[string]func(t *testing.T, at *seat){
		"not at all": func(*testing.T, *seat) {},
		"no answer": func(t *testing.T, at *seat) {
			if _, err := OpenShared(t.Context(), at.options(unsure{at.agreed, false})); err == nil {
				t.Fatal("it starts without an answer")
			}
		},
		"stored without an answer": func(t *testing.T, at *seat) {
			if _, err := OpenShared(t.Context(), at.options(unsure{at.agreed, true})); err == nil {
				t.Fatal("it starts without an answer")
			}
		},
		"right after its start": func(_ *testing.T, at *seat) { at.begin() },
		"after some keys": func(_ *testing.T, at *seat) {
			at.begin()
			at.hears()
			at.agreed.left = 1
			at.killed()
			at.agreed.left = -1
		},
	}
	for name, ends := range ends {
		for _, empty := range []bool{true, false} {
			for _, back := range []bool{true, false} {
				t.Run(name, func(t *testing.T) {
					j := openStore(t)
					first, second := newSeat(t, j, "nats"), &seat{side: &side{t: t, name: "nats"}, table: openLine(t, j, "keys"), agreed: openLine(t, j, "agreed-nats")}
					key := newKey(t).Public()
					want := map[string]pki.State{"deleted": pki.Unknown, "rejected": pki.Rejected, "stays": pki.Accepted}
					for id := range want {
						first.act(Accept, id, key)
					}
					settled(first)
					old := t.TempDir()
					if !empty {
						old = first.copied()
					}
					first.act(Delete, "deleted", key)
					first.act(Reject, "rejected", key)
					settled(first)
					second.openKeys(old)
					ends(t, second)
					ends(t, second)
					last := second
					if back {
						last = first
					}
					last.begin()
					settled(last)
					for id, state := range want {
						last.is(id, key, state)
					}
				})
			}
		}
	}
}

// TestTheMarkOfADirectoryIsCertain: answers are lost when the directory gets another mark, and the daemon is
// killed meanwhile. It is the same directory.
func TestTheMarkOfADirectoryIsCertain(t *testing.T) {
	j := openStore(t)
	a := newSeat(t, j, "a")
	d := a.shared.directory
	for range 3 {
		d.table = unsure{a.agreed, true}
		if err := d.renew(t.Context()); err == nil {
			t.Fatal("there was no answer")
		}
		d.table = unsure{a.agreed, false}
		if err := d.renew(t.Context()); err == nil {
			t.Fatal("there was no answer")
		}
		if !a.recognised() {
			t.Fatal("the directory is taken for another one")
		}
	}
	d.table = a.agreed
	if err := d.renew(t.Context()); err != nil || !a.recognised() || !d.present() {
		t.Errorf("after an answer: %v", err)
	}
}

// recognised reports whether the directory would be the known one at a start now.
func (at *seat) recognised() bool {
	at.t.Helper()
	var stored []byte
	err := at.agreed.Each(at.t.Context(), func(key string, value []byte) {
		if key == directoryKey {
			stored = bytes.Clone(value)
		}
	})
	if err != nil {
		at.t.Fatal(err)
	}
	d, err := openDirectory(filepath.Join(at.dir, directoryFile), stored, at.agreed)
	if err != nil {
		at.t.Fatal(err)
	}
	return !d.fresh
}

// uses makes a master use another key directory from its next start on.
func (s *side) uses(dir string) {
	s.t.Helper()
	cfg := config.NewMaster()
	cfg.PKIDir = dir
	var err error
	if s.keys, err = keyring.Open(cfg, slog.New(slog.DiscardHandler)); err != nil {
		s.t.Fatal(err)
	}
}

// TestALostKeyDirectoryOfTwoMasters: the key directory of one of two masters is away while it runs, is lost, or
// is an older copy. Nothing is deleted at the other one, keys come back, and what was refused stays refused.
func TestALostKeyDirectoryOfTwoMasters(t *testing.T) {
	a, b := newSide(t, "a"), newSide(t, "b")
	key := newKey(t).Public()
	a.start(true)
	b.start(true)
	a.follow(b)
	b.follow(a)
	both := func(want map[string]pki.State) {
		t.Helper()
		fence := fmt.Sprint("fence", newN())
		a.does(Reject, fence, key)
		b.comes(fence, key, pki.Rejected)
		for id, state := range want {
			a.comes(id, key, state)
			b.comes(id, key, state)
		}
	}
	a.does(Accept, "of-a", key)
	a.does(Reject, "bad", key)
	a.does(Accept, "deleted", key)
	b.does(Accept, "deleted-by-b", key)
	b.does(Accept, "of-b", key)
	both(map[string]pki.State{"of-a": pki.Accepted, "of-b": pki.Accepted, "bad": pki.Rejected, "deleted": pki.Accepted, "deleted-by-b": pki.Accepted})
	a.stop()
	dir := a.keys.Store.Dir()
	old := t.TempDir()
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	restart := func(dir string) {
		t.Helper()
		a.stop()
		a.uses(dir)
		a.start(true)
		a.follower.Follow(b.name, a.table)
	}
	restart(dir)
	a.does(Accept, "later", key)
	a.does(Delete, "deleted", key)
	b.does(Accept, "later-at-b", key)
	b.does(Delete, "deleted-by-b", key)
	want := map[string]pki.State{
		"of-a": pki.Accepted, "of-b": pki.Accepted, "bad": pki.Rejected, "deleted": pki.Unknown, "deleted-by-b": pki.Unknown,
		"later": pki.Accepted, "later-at-b": pki.Accepted,
	}
	both(want)

	// It is away while the master runs.
	a.stop()
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	a.follower.due.markAll()
	a.round()
	for _, id := range []string{"of-a", "of-b"} {
		if own, _, _, _ := a.follower.at(named(id, key)); own.Act == Delete {
			t.Errorf("%s counts as deleted while the directory is away", id)
		}
	}
	if err := errors.Join(os.RemoveAll(dir), os.Rename(dir+"-away", dir)); err != nil {
		t.Fatal(err)
	}
	restart(dir)
	both(want)

	// An older copy takes its place while the master runs.
	a.stop()
	if err := errors.Join(os.Rename(dir, dir+"-away"), os.CopyFS(dir, os.DirFS(old))); err != nil {
		t.Fatal(err)
	}
	a.follower.due.markAll()
	var log strings.Builder
	a.follower.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	a.round()
	if n := strings.Count(log.String(), "stays refused"); n != 2 || !strings.Contains(log.String(), errDirectory.Error()) {
		t.Errorf("why two keys stay refused is said %d times:\n%s", n, &log)
	}
	for _, id := range []string{"deleted", "deleted-by-b"} {
		if own, _, _, _ := a.follower.at(named(id, key)); own.Act == Accept || a.entry(id, key).State != pki.Unknown {
			t.Errorf("%s is %s here, and %s for the other master", id, a.entry(id, key).State, own.Act)
		}
	}
	if err := errors.Join(os.RemoveAll(dir), os.Rename(dir+"-away", dir)); err != nil {
		t.Fatal(err)
	}
	restart(dir)
	both(want)

	// An older copy, and an empty directory; the other master is not linked at first.
	for _, other := range []string{old, t.TempDir()} {
		a.stop()
		a.uses(other)
		a.start(true)
		a.stop()
		a.round()
		if got := a.entry("later", key).State; got != pki.Accepted {
			t.Errorf("what was accepted here is %s", got)
		}
		restart(other)
		both(want)
		a.does(Delete, "of-b", key)
		both(map[string]pki.State{"of-b": pki.Unknown})
		a.does(Accept, "of-b", key)
		both(want)
	}

	// The present one: what was deleted while the daemon did not run is deleted at both.
	a.stop()
	a.does(Delete, "of-a", key)
	restart(a.keys.Store.Dir())
	want["of-a"] = pki.Unknown
	both(want)
}
