package attack

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// orderVariable makes a process of this test the attacker that it describes.
const orderVariable = "BRINE_ATTACK"

// order is what the attacker is to do.
type order struct {
	Row   string
	Count int
	Full  bool
	Dir   string
	Port  int
	Ops   []string          // all operations that there are
	Notes map[string]string // of the row's prepare
}

// mostAttack bounds how long an attack is made.
func mostAttack() time.Duration {
	if *full {
		return 5 * time.Minute
	}
	return 40 * time.Second
}

// attacking is the attacker's process, as the test has it. It has a low priority:
// elsewhere it would have a machine of its own.
type attacking struct {
	v    *victim
	cmd  *exec.Cmd
	in   io.Closer
	was  chan struct{} // closed when it has done what it was told, and goes on with it
	errs bytes.Buffer
	said bytes.Buffer  // written until all is closed
	all  chan struct{} // closed when it has said everything
}

func (v *victim) attack(r row) *attacking {
	v.t.Helper()
	text, err := json.Marshal(order{Row: r.name, Count: r.count(), Full: *full, Dir: v.dir, Port: v.port, Ops: operations(v.t), Notes: v.notes})
	if err != nil {
		v.t.Fatal(err)
	}
	a := &attacking{v: v, was: make(chan struct{}), all: make(chan struct{})}
	a.cmd = exec.Command("nice", "-n", "10", filepath.Join(bin, "attacker"))
	a.cmd.Dir = "/"
	a.cmd.Env = append(os.Environ(), orderVariable+"="+string(text))
	a.cmd.Stderr = &a.errs
	if r.user != "" {
		a.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential(v.t, r.user)}
	}
	a.in, err = a.cmd.StdinPipe()
	if err != nil {
		v.t.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		v.t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = a.cmd.Process.Kill() })
	go a.listen(out)
	return a
}

// listen takes what the attacker says: a line when it has done its work, and then words.
func (a *attacking) listen(out io.Reader) {
	defer close(a.all)
	lines := bufio.NewScanner(out)
	for first := true; lines.Scan(); first = false {
		if first {
			close(a.was)
			continue
		}
		fmt.Fprintln(&a.said, lines.Text())
	}
}

func (a *attacking) sent() bool { return isClosed(a.was) }

// letGo ends the attack and returns what the attacker has to say.
func (a *attacking) letGo() string {
	a.in.Close()
	select {
	case <-a.all:
	case <-time.After(stopTime):
		_ = a.cmd.Process.Kill()
		<-a.all
	}
	if err := a.cmd.Wait(); err != nil {
		a.v.t.Errorf("the attacker: %v\n%s", err, &a.errs)
	}
	return strings.TrimSpace(a.said.String())
}

func credential(t *testing.T, name string) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// operations are all requests that there are, also those that are added one day: the
// constants of package protocol.
func operations(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../internal/protocol/*.go")
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
				if op, err := strconv.Unquote(lit.Value); err == nil {
					ops = append(ops, op)
				}
			}
			return true
		})
	}
	if len(ops) < 10 {
		t.Fatalf("found only %q", ops)
	}
	return ops
}

// attack is an attack from within: what the attacker's process has.
type attack struct {
	order
	until time.Time
	again bool
	over  chan struct{} // closed when it is to let go
	wg    sync.WaitGroup

	tried, refused, cut atomic.Int64
	mu                  sync.Mutex
	why                 map[string]int // refusals, by their words
	open                []*wire
}

// attacker is the main function of the attacker's process.
func attacker(text string) int {
	debug.SetMemoryLimit(1 << 30)
	a := &attack{over: make(chan struct{}), why: map[string]int{}}
	if err := json.Unmarshal([]byte(text), &a.order); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*full = a.Full
	a.until = time.Now().Add(mostAttack() * 3 / 4)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends when the test wants it
		close(a.over)
	}()
	r := rowNamed(a.Row)
	a.again = r.again
	r.attack(a)
	fmt.Println("sent")
	for r.again && !a.ended() {
		r.attack(a)
	}
	<-a.over
	for _, w := range a.open {
		w.Close()
	}
	a.wg.Wait()
	fmt.Printf("%d tried, %d refused, %d connections cut\n", a.tried.Load(), a.refused.Load(), a.cut.Load())
	for words, n := range a.why {
		fmt.Printf("%d times: %.200s\n", n, words)
	}
	return 0
}

func (a *attack) address() string { return "127.0.0.1:" + strconv.Itoa(a.Port) }

// ended says that there is no more time.
func (a *attack) ended() bool { return isClosed(a.over) || time.Now().After(a.until) }

// key reads a key that the attacker has.
func (a *attack) key(name string) key {
	text, err := os.ReadFile(filepath.Join(a.Dir, "keys", name))
	if err == nil {
		var k key
		if k, err = parseKey(name, text); err == nil {
			return k
		}
	}
	panic(err)
}

// clientKey is that of a program with credentials of salt-event creds.
func (a *attack) clientKey() key {
	text, err := os.ReadFile(filepath.Join(a.Dir, "broken/key.pem"))
	if err == nil {
		var k key
		if k, err = parseKey("client:broken", text); err == nil {
			return k
		}
	}
	panic(err)
}

// dialer connects an attacker again.
type dialer func() (*wire, error)

func (a *attack) asMinion() (*wire, error) { return dialKey(a.address(), "127.66.6.6", a.evil()) }
func (a *attack) evil() key                { return a.key("evil") }
func (a *attack) asClient() (*wire, error) {
	return dialKey(a.address(), "127.66.6.7", a.clientKey())
}

func (a *attack) asUser() (*wire, error) {
	return dialSocket(filepath.Join(a.Dir, "master/run/master.sock"), os.Geteuid())
}

func (a *attack) asMinionsUser() (*wire, error) {
	return dialSocket(filepath.Join(a.Dir, "web1/run/minion.sock"), os.Geteuid())
}

// failed notes a refusal, or the end of a connection.
func (a *attack) failed(err error) {
	if err == nil {
		return
	}
	a.refused.Add(1)
	words := err.Error()
	for _, known := range []string{"i/o timeout", "connection reset", "EOF", "broken pipe", "Authorization Violation", "refused", "closed", "handshake failure", "Slow Consumer", "cannot assign", "too many open files"} {
		if strings.Contains(words, known) {
			words = known
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.why[words]++
}

// hold keeps a connection until the end.
func (a *attack) hold(w *wire) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = append(a.open, w)
}

// many does f so many times, some of them at once, while there is time.
func (a *attack) many(n, atOnce int, f func(i int) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && !a.ended(); i = next.Add(1) - 1 {
				a.tried.Add(1)
				a.failed(f(int(i)))
			}
		})
	}
	wg.Wait()
}

// flood sends n messages, as fast as they are taken. A connection that is cut is replaced.
// What comes back is read, or else left lying there.
func (a *attack) flood(dial dialer, n int, read bool, send func(w *wire, i int) error) {
	for i := 0; i < n && !a.ended(); {
		w, err := dial()
		if err != nil {
			a.failed(err)
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if read {
			go w.drain()
		}
		for ; i < n && !a.ended(); i++ {
			a.tried.Add(1)
			if err := errors.Join(send(w, i), flushAt(w, i, n)); err != nil {
				a.cut.Add(1)
				a.failed(err)
				i++
				break
			}
		}
		if i < n || a.again {
			w.Close()
			continue
		}
		a.hold(w)
	}
}

// flushAt sends what is buffered now and then.
func flushAt(w *wire, i, n int) error {
	if i%64 == 63 || i == n-1 {
		return w.w.Flush()
	}
	return nil
}
