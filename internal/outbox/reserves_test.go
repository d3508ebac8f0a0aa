package outbox

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

func openReserves(t *testing.T, dir string) *Reserves {
	t.Helper()
	r, err := OpenReserves(dir, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func take(t *testing.T, r *Reserves, jid salt.JID, function salt.Function) {
	t.Helper()
	if err := r.Take(&job.Envelope{JID: jid, Commands: []job.Command{{Function: function}}}, "box"); err != nil {
		t.Fatal(err)
	}
}

// recovered is what the next daemon finds, by job.
func recovered(t *testing.T, dir string) map[salt.JID]protocol.Return {
	t.Helper()
	found := map[salt.JID]protocol.Return{}
	err := openReserves(t, dir).Recover(func(of Reserved, ret protocol.Return) error {
		found[of.JID] = ret
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func files(t *testing.T, folders ...string) (n int) {
	t.Helper()
	for _, folder := range folders {
		list, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		n += len(list)
	}
	return n
}

const (
	jidA salt.JID = "20260102030405060701"
	jidB salt.JID = "20260102030405060702"
	jidC salt.JID = "20260102030405060703"
)

// The file of a job that has ended serves the next one, and nothing of the first is found in it, whichever
// of the two first lines is longer.
func TestSpaceIsUsedAgain(t *testing.T) {
	dir := t.TempDir()
	r := openReserves(t, dir)
	take(t, r, jidA, "a_module_with_a_long_name.and_a_function_with_one")
	before, err := os.Stat(r.path(jidA))
	if err != nil {
		t.Fatal(err)
	}
	for _, next := range []struct {
		jid      salt.JID
		function salt.Function
	}{{jidB, "a.b"}, {jidC, "another_module_with_a_long_name.and_a_function_with_one"}} {
		was := jidA
		if next.jid == jidC {
			was = jidB
		}
		r.Drop(was)
		take(t, r, next.jid, next.function)
		after, err := os.Stat(r.path(next.jid))
		if err != nil {
			t.Fatal(err)
		}
		if !os.SameFile(before, after) || after.Size() < reserveSize {
			t.Errorf("%s has a file of its own, or too little space: %d bytes", next.jid, after.Size())
		}
	}
	found := recovered(t, dir)
	if len(found) != 1 || found[jidC].State != job.Killed || found[jidC].Commands[0].Function != "another_module_with_a_long_name.and_a_function_with_one" {
		t.Errorf("after a kill: %+v", found)
	}
}

// After a kill a shorter first line is read without the rest of the longer one before it.
func TestSpaceOfAShorterJob(t *testing.T) {
	dir := t.TempDir()
	r := openReserves(t, dir)
	take(t, r, jidA, "a_module_with_a_long_name.and_a_function_with_one")
	r.Drop(jidA)
	take(t, r, jidB, "a.b")
	b, err := os.ReadFile(r.path(jidB))
	if err != nil {
		t.Fatal(err)
	}
	end := 0
	for end < len(b) && b[end] != '\n' {
		end++
	}
	for _, c := range b[end+1:] {
		if c != 0 {
			t.Fatalf("behind its first line the file has %q", b[end+1:end+100])
		}
	}
	if found := recovered(t, dir); len(found) != 1 || found[jidB].State != job.Killed {
		t.Errorf("after a kill: %+v", found)
	}
}

// A return that had to be kept is not found again as that of another job.
func TestSpaceOfAKeptReturn(t *testing.T) {
	dir := t.TempDir()
	r := openReserves(t, dir)
	take(t, r, jidA, "a.b")
	ret := protocol.Return{Report: job.Report{State: job.Done, Return: value.Value{V: "secret"}}}
	if err := r.Keep(jidA, ret); err != nil {
		t.Fatal(err)
	}
	r.Drop(jidA)
	take(t, r, jidB, "a.b")
	take(t, r, jidC, "a.b")
	if err := r.Keep(jidC, ret); err != nil {
		t.Fatal(err)
	}
	if found := recovered(t, dir); len(found) != 2 || found[jidB].State != job.Killed || found[jidC].Return.V != "secret" {
		t.Errorf("after a kill: %+v", found)
	}
}

// What is spare is bounded, and the next daemon has none of it.
func TestSpareSpaceIsBounded(t *testing.T) {
	dir := t.TempDir()
	r := openReserves(t, dir)
	var jids []salt.JID
	for i := range 3 * maxSpare {
		jids = append(jids, salt.JID(fmt.Sprintf("202601020304050607%02d", i)))
		take(t, r, jids[i], "a.b")
	}
	for _, jid := range jids {
		r.Drop(jid)
		r.Drop(jid) // more than once does nothing
	}
	running, spare := filepath.Join(dir, reserveFolder), filepath.Join(dir, spareFolder)
	if n := files(t, running, spare); n != maxSpare {
		t.Errorf("%d files are there when nothing runs, want %d", n, maxSpare)
	}
	if found := recovered(t, dir); len(found) != 0 || files(t, running, spare) != 0 {
		t.Errorf("after the next start: %+v, and %d files", found, files(t, running, spare))
	}
}
