package master_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// nobodyID is a user whom no rule of these tests names.
const nobodyID = 65534

// otherUser connects as another user of this machine. The kernel names the user
// that the thread has when it connects.
func (w *world) otherUser() *rpc.Conn {
	w.t.Helper()
	if os.Geteuid() != 0 {
		w.t.Skip("needs root, to act as another user")
	}
	if err := os.Chmod(filepath.Dir(w.dir), 0o755); err != nil { // of the test; those of the master are as they should be
		w.t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w.become(nobodyID)
	defer w.become(0)
	c, err := rpc.Dial(filepath.Join(w.cfg.SockDir, master.SocketName))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

// become changes the user of this thread alone.
func (w *world) become(uid int) {
	w.t.Helper()
	keep := ^uintptr(0)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
		w.t.Fatal(errno)
	}
}

// operations are all requests that there are: the constants of package protocol.
func operations(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../protocol/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var ops []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Op") || len(spec.Values) != 1 {
				return true
			}
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
				op, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				ops = append(ops, op)
			}
			return true
		})
	}
	if len(ops) < 10 {
		t.Fatalf("found only %q", ops)
	}
	return ops
}

// wish is a body that every request finds something in.
var wish = map[string]any{
	"target": "*", "tgt": "*", "target_type": "glob", "tgt_type": "glob", "jid": "20261121113344286549",
	"commands": []any{map[string]any{"fun": "test.ping", "function": "test.ping"}}, "command": map[string]any{"fun": "test.arg", "function": "test.arg"},
	"events": []any{map[string]any{"tag": "a"}}, "do": "list", "act": "delete", "keys": []any{map[string]any{"id": "web1", "finger": "x"}},
	"name": "x", "durable": "x", "seq": 1,
}

// Whoever has no rule gets nothing from any request, also from those that are
// added one day: no answer but a refusal.
func TestEveryRequestOfAnUnacceptedKey(t *testing.T) {
	w := start(t, "auto_accept: true\n")
	w.minion("web1", pong)
	c := w.otherUser()
	for _, op := range operations(t) {
		if op == protocol.OpAsk {
			continue // it goes to the subject of a key, where the table of bus lets no user publish
		}
		s, err := c.Call(op, wish)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		b, err := s.Next(ctx)
		cancel()
		s.Close()
		switch code := rpc.CodeOf(err); {
		case op == protocol.OpComplete: // who presses a key is not refused: they are told no word
			if err != nil || string(b) != `{"words":null}` {
				t.Errorf("complete answers %s, %v", b, err)
			}
		case err == nil, errors.Is(err, io.EOF):
			t.Errorf("%s answers %s", op, b)
		case code != rpc.Denied && code != rpc.NotFound:
			t.Errorf("%s: %v (%s), want a refusal", op, err, code)
		}
	}
	root := w.user()
	if len(entries(t, root, map[string]any{"verdict": "refused"})) < 4 {
		t.Error("the audit log lacks refusals")
	}
	verified(t, root)
}
