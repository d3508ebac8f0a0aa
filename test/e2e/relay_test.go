package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/brinebus/brine/internal/cli/client"
)

// relay stands between a program and the master's socket, and counts what the program asks.
type relay struct {
	listener net.Listener
	master   string
	work     sync.WaitGroup

	mu          sync.Mutex
	connections int
	requests    int
}

// asked runs a program with a relay in front of the master, again and again until its standard
// output matches: it says nothing where it had no time. It connects once at most each time, and
// asks so often when it has its answer.
func asked(s *system, ts *testscript.TestScript, args []string) error {
	if len(args) < 3 {
		return errUsage
	}
	most, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	want, err := regexp.Compile(args[1])
	if err != nil {
		return err
	}
	v, err := parseInvocation(args[2:])
	if err != nil {
		return err
	}
	config := ts.Getenv("SALT_CONFIG_DIR")
	defer ts.Setenv("SALT_CONFIG_DIR", config)
	ts.Setenv("SALT_CONFIG_DIR", s.relayDir())
	var out []byte
	answered := poll(func() bool {
		var connections, requests int
		out, connections, requests, err = s.relayed(ts, v)
		found := want.Match(out)
		if err == nil && (connections > 1 || requests > most || found && requests != most) {
			err = fmt.Errorf("%s connected %d times and asked %d times, want %d", strings.Join(v.args, " "), connections, requests, most)
		}
		return found || err != nil
	})
	if err == nil && !answered {
		err = fmt.Errorf("%s prints no %q:\n%s", strings.Join(v.args, " "), want, out)
	}
	return err
}

// relayed runs a program once, and says what it asked.
func (s *system) relayed(ts *testscript.TestScript, v *invocation) (out []byte, connections, requests int, err error) {
	r, err := s.relay()
	if err != nil {
		return nil, 0, 0, err
	}
	out, errs, err := v.run(ts)
	connections, requests = r.close()
	if err == nil && len(errs) > 0 {
		err = fmt.Errorf("%s says: %s", strings.Join(v.args, " "), errs)
	}
	return out, connections, requests, err
}

// cheap runs a program of ours some times, and wants the least of its processor time to be at
// most so often the least of what it takes to print its version. Neither depends on what
// else the machine does.
func cheap(_ *system, ts *testscript.TestScript, args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	most, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	cost, err := leastTime(ts, args[1:])
	if err != nil {
		return err
	}
	start, err := leastTime(ts, []string{args[1], "--version"})
	if err != nil {
		return err
	}
	if cost > time.Duration(most)*start {
		return fmt.Errorf("%s takes %s of the processor; that is more than %d times %s, the time of --version", strings.Join(args[1:], " "), cost, most, start)
	}
	ts.Logf("%s of the processor; --version takes %s", cost, start)
	return nil
}

// leastTime is the least processor time of five runs.
func leastTime(ts *testscript.TestScript, words []string) (least time.Duration, err error) {
	for range 5 {
		v := &invocation{args: words}
		c, err := v.cmd(context.Background(), ts)
		if err != nil {
			return 0, err
		}
		if err := c.Run(); err != nil {
			return 0, err
		}
		if took := c.ProcessState.UserTime() + c.ProcessState.SystemTime(); least == 0 || took < least {
			least = took
		}
	}
	return least, nil
}

// relayDir has settings and socket of a relay. All paths are below root_dir, that of the master.
func (s *system) relayDir() string { return filepath.Join(s.work, "master", "relayed") }

// relay begins one, with the settings of a master whose socket it is.
func (s *system) relay() (*relay, error) {
	settings, err := os.ReadFile(filepath.Join(s.work, "master", "master"))
	if err != nil {
		return nil, err
	}
	dir := s.relayDir()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	settings = bytes.Replace(settings, []byte("sock_dir: run\n"), []byte("sock_dir: relayed\n"), 1)
	if err := os.WriteFile(filepath.Join(dir, "master"), settings, 0o644); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", filepath.Join(dir, client.MasterSocket))
	if err != nil {
		return nil, err
	}
	r := &relay{listener: l, master: filepath.Join(s.work, "master", "run", client.MasterSocket)}
	r.work.Go(r.serve)
	return r, nil
}

func (r *relay) serve() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return // it was closed
		}
		r.mu.Lock()
		r.connections++
		r.mu.Unlock()
		r.work.Go(func() { r.pass(c) })
	}
}

// pass passes on what both ends say until one of them has ended.
func (r *relay) pass(c net.Conn) {
	defer c.Close()
	m, err := net.Dial("unix", r.master)
	if err != nil {
		return // which the program says
	}
	defer m.Close()
	r.work.Go(func() {
		_, _ = io.Copy(c, m) // ends with either of them
		c.Close()
	})
	r.count(io.TeeReader(c, m))
}

// count counts the lines by which a client of NATS publishes. Bodies of requests are JSON,
// which begins no line so.
func (r *relay) count(said io.Reader) {
	lines := bufio.NewReader(said)
	for {
		line, err := lines.ReadString('\n')
		if strings.HasPrefix(line, "PUB ") || strings.HasPrefix(line, "HPUB ") {
			r.mu.Lock()
			r.requests++
			r.mu.Unlock()
		}
		if err != nil {
			return // the client has ended
		}
	}
}

// close ends it, and says what was counted.
func (r *relay) close() (connections, requests int) {
	_ = r.listener.Close() // which is open
	r.work.Wait()
	return r.connections, r.requests
}
