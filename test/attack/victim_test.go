package attack

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	readyTime = 30 * time.Second // from the start of a daemon until it is ready
	stopTime  = 20 * time.Second // from SIGTERM to the end
	look      = 10 * time.Millisecond
)

// victim is a master with the minion web1 that it has accepted. The key of the minion evil is
// accepted too; that of the client broken may fire and hear events below client/.
type victim struct {
	t       *testing.T
	dir     string
	port    int
	master  *daemon
	web1    *daemon
	started []*daemon
	notes   map[string]string // for the attacker
}

// settings let each kind of attacker have the little that it has.
const settings = `
publisher_acl: {nobody: ['web1': [test.ping, test.echo]]}
event_acl: {nobody: {fire: 'nobody/*', listen: 'nobody/*'}, 'client:broken': {fire: 'client/*', listen: 'client/*'}}
peer: {evil: [test.ping]}
`

func start(t *testing.T, r row) *victim {
	v := &victim{t: t, dir: filepath.Join(bin, strconv.Itoa(rand.IntN(1<<30))), port: freePort(t)}
	t.Cleanup(v.clear)
	v.write("master/master", fmt.Sprintf("interface: 0.0.0.0\nret_port: %d\n", v.port)+home(v.dir, "master")+settings+r.config)
	v.write("web1/minion", v.minionConfig("web1")+r.minion)
	if err := os.MkdirAll(filepath.Join(v.dir, "master/pki/minions"), 0o700); err != nil {
		t.Fatal(err)
	}
	v.makeKey("evil", "minions/evil")
	v.makeKey("stolen", "")
	v.master = v.launch("salt-master", "master", r.files)
	v.mustRun("salt-event", "creds", "broken", "-c", filepath.Join(v.dir, "master"), "--dir", filepath.Join(v.dir, "broken"), "--address", fmt.Sprintf("127.0.0.1:%d", v.port))
	v.mustRun("chmod", "-R", "a+rX", filepath.Join(v.dir, "broken"))
	v.web1 = v.launch("salt-minion", "web1", 0)
	v.accept("web1")
	return v
}

func home(dir, name string) string {
	return "root_dir: " + filepath.Join(dir, name) + "\npki_dir: pki\ncachedir: cache\nsock_dir: run\npidfile: pid\nlog_file: log\nlog_level: warning\n"
}

// minionConfig gives each minion an address of its own, as its machine would have.
func (v *victim) minionConfig(id string) string {
	return fmt.Sprintf("id: %s\nmaster: 127.0.0.1\nmaster_port: %d\nsource_address: 127.9.%d.%d\n", id, v.port, len(id), id[len(id)-1]) + home(v.dir, id)
}

func (v *victim) write(name, text string) {
	v.t.Helper()
	path := filepath.Join(v.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		v.t.Fatal(err)
	}
}

// makeKey makes the key of an attacker, which the master knows if place says where.
func (v *victim) makeKey(id, place string) {
	v.t.Helper()
	k := newKey(id)
	v.write("keys/"+id, k.private())
	if place != "" {
		v.write("master/pki/"+place, k.public())
	}
}

// run runs a program of ours to its end and returns what it printed.
func (v *victim) run(program string, args ...string) (string, error) {
	if own := filepath.Join(bin, program); !strings.Contains(program, "/") {
		if _, err := os.Stat(own); err == nil {
			program = own
		}
	}
	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), "SALT_CONFIG_DIR="+filepath.Join(v.dir, "master"))
	out, err := c.CombinedOutput()
	return string(out), err
}

func (v *victim) mustRun(program string, args ...string) string {
	v.t.Helper()
	out, err := v.run(program, args...)
	if err != nil {
		v.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return out
}

// accept accepts the key of a minion, once it is there, and waits until it takes jobs.
func (v *victim) accept(id string) {
	v.t.Helper()
	pending := filepath.Join(v.dir, "master/pki/minions_pre", id)
	v.await("the key of "+id, readyTime, func() bool { _, err := os.Stat(pending); return err == nil })
	v.mustRun("salt-key", "-q", "-y", "-a", id)
	o := v.operator()
	defer o.Close()
	v.await(id+" to run jobs", readyTime, func() bool { return o.ping(id) == nil })
}

// await looks until f is true.
func (v *victim) await(what string, limit time.Duration, f func() bool) {
	v.t.Helper()
	for end := time.Now().Add(limit); !f(); time.Sleep(look) {
		if time.Now().After(end) {
			v.t.Fatalf("%s: not within %s\n%s", what, limit, v.logs())
		}
	}
}

func (v *victim) logs() string {
	var b strings.Builder
	for _, d := range v.started {
		fmt.Fprintf(&b, "--- %s says:\n%s\n", d.name, d.said())
	}
	return b.String()
}

// attackedDaemon is the one whose memory counts.
func (v *victim) attackedDaemon(r row) *daemon {
	if r.onMinion {
		return v.web1
	}
	return v.master
}

// joining is a new minion on its way.
type joining struct {
	done chan struct{}
	took time.Duration
	err  error
}

// join starts a new minion, which is accepted, and pings it until it answers.
func (v *victim) join(id string) *joining {
	v.write(id+"/minion", v.minionConfig(id))
	j := &joining{done: make(chan struct{})}
	begun := time.Now()
	v.launch("salt-minion", id, 0)
	go func() {
		defer close(j.done)
		j.err = v.joined(id, begun.Add(3*mostJoin))
		j.took = time.Since(begun)
	}()
	return j
}

func (v *victim) joined(id string, until time.Time) error {
	pending, accepted := filepath.Join(v.dir, "master/pki/minions_pre", id), filepath.Join(v.dir, "master/pki/minions", id)
	for ; time.Now().Before(until); time.Sleep(look) {
		if _, err := os.Stat(pending); err == nil {
			break
		}
	}
	if err := os.Rename(pending, accepted); err != nil { // as salt-key does, without the wait for its process
		return err
	}
	o, err := v.dialOperator()
	if err != nil {
		return err
	}
	defer o.Close()
	for ; time.Now().Before(until); time.Sleep(look) {
		if err = o.ping(id); err == nil {
			return nil
		}
	}
	return err
}

// recovers measures how long it takes until the operator is served as before: by a new
// connection, ten times in a row.
func (v *victim) recovers(quiet latency) time.Duration {
	begun := time.Now()
	good := max(mostLatency, mostSlower*quiet.p99)
	if !*full {
		good = 10 * time.Second // others work on this machine: served is as before
	}
	for time.Since(begun) < 3*mostRecover {
		if v.serves(10, good) {
			return time.Since(begun)
		}
		time.Sleep(look)
	}
	v.t.Errorf("the master does not serve any more\n%s", v.logs())
	return time.Since(begun)
}

func (v *victim) serves(times int, within time.Duration) bool {
	o, err := v.dialOperator()
	if err != nil {
		return false
	}
	defer o.Close()
	for range times {
		begun := time.Now()
		if o.ping("web1") != nil || time.Since(begun) > within {
			return false
		}
	}
	return true
}

// accident is what no daemon may ever say.
var accident = regexp.MustCompile(`(?m)^(panic: |fatal error: |goroutine \d+ \[)|panic=`)

// stop ends all and looks at how they end.
func (v *victim) stop() {
	for _, d := range slices.Backward(v.started) {
		if !d.running() {
			v.t.Errorf("%s ended by itself: %s\n%s", d.name, d.cmd.ProcessState, d.said())
			continue
		}
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		if !d.awaitEnd(stopTime) {
			v.t.Errorf("%s did not end within %s of SIGTERM", d.name, stopTime)
		}
	}
	for _, d := range v.started {
		if accident.MatchString(d.said()) {
			v.t.Errorf("%s had an accident:\n%s", d.name, d.said())
		}
	}
}

// clear kills what is left, whatever came before.
func (v *victim) clear() {
	for _, d := range v.started {
		_ = d.cmd.Process.Kill()
		<-d.ended
	}
	if v.t.Failed() {
		v.t.Log(v.logs())
	}
	_ = os.RemoveAll(v.dir) // with bin at the latest
}

// daemon is a process of ours.
type daemon struct {
	name   string
	cmd    *exec.Cmd
	log    string
	ended  chan struct{}
	most   atomic.Int64 // bytes resident, at most
	killed atomic.Bool  // since it took too much
}

var notices atomic.Int64

// launch starts a daemon and waits until it is ready.
func (v *victim) launch(program, name string, files int) *daemon {
	v.t.Helper()
	address := fmt.Sprintf("@brine-attack-%d-%d", os.Getpid(), notices.Add(1))
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		v.t.Fatal(err)
	}
	defer l.Close()
	d := &daemon{name: name, log: filepath.Join(v.dir, name, "stderr"), ended: make(chan struct{})}
	limit := "unlimited"
	if files > 0 {
		limit = strconv.Itoa(files)
	}
	script := `test "$0" = unlimited || ulimit -n "$0"; exec "$@"`
	d.cmd = exec.Command("sh", "-c", script, limit, filepath.Join(bin, program), "-c", filepath.Join(v.dir, name))
	d.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+address)
	f, err := os.Create(d.log)
	if err != nil {
		v.t.Fatal(err)
	}
	defer f.Close()
	d.cmd.Stdout, d.cmd.Stderr = f, f
	if err := d.cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	v.started = append(v.started, d)
	go func() {
		_ = d.cmd.Wait() // its state is in cmd.ProcessState
		close(d.ended)
	}()
	go d.watch()
	d.awaitReady(v.t, l)
	return d
}

func (d *daemon) awaitReady(t *testing.T, l *net.UnixConn) {
	t.Helper()
	_ = l.SetReadDeadline(time.Now().Add(readyTime))
	b := make([]byte, 4096)
	for {
		n, err := l.Read(b)
		if err != nil {
			t.Fatalf("%s is not ready: %v\n%s", d.name, err, d.said())
		}
		if slices.Contains(strings.Split(string(b[:n]), "\n"), "READY=1") {
			return
		}
	}
}

func (d *daemon) running() bool {
	select {
	case <-d.ended:
		return false
	default:
		return true
	}
}

func (d *daemon) awaitEnd(limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-d.ended:
		return true
	case <-t.C:
		return false
	}
}

func (d *daemon) said() string {
	b, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	const most = 8000
	if len(b) > most {
		b = slices.Concat(b[:most/2], []byte("\n...\n"), b[len(b)-most/2:])
	}
	return string(b)
}

// cpu is what the daemon has used of the processors.
func (d *daemon) cpu() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
	if err != nil {
		return 0 // it has ended
	}
	words := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // its name may have blanks
	user, err1 := strconv.ParseInt(words[11], 10, 64)
	system, err2 := strconv.ParseInt(words[12], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0
	}
	return time.Duration(user+system) * time.Second / 100 // a tick of the kernel's, on every platform of ours
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// watch notes how much memory the daemon has had, and ends one that takes too much.
func (d *daemon) watch() {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-d.ended:
			return
		case <-tick.C:
		}
		d.look()
		if d.most.Load() > killAt && !d.killed.Swap(true) {
			_ = d.cmd.Process.Kill()
		}
	}
}

func (d *daemon) look() {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if m := highWater.FindSubmatch(text); err == nil && m != nil {
		if kib, err := strconv.ParseInt(string(m[1]), 10, 64); err == nil {
			d.most.Store(max(d.most.Load(), kib<<10))
		}
	}
}

// peak is the most that was resident.
func (d *daemon) peak() int64 {
	d.look()
	return d.most.Load()
}

// freePort returns a port below those that the kernel gives to outgoing connections, and below
// those of other tests.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		n := 12000 + rand.IntN(8000)
		l, err := net.Listen("tcp", fmt.Sprintf("0.0.0.0:%d", n))
		if err == nil {
			l.Close()
			return n
		}
	}
	t.Fatal("no free port")
	return 0
}
