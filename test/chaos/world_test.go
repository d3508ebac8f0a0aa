package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/test/netlab"
	"github.com/brinebus/brine/test/port"
	"github.com/brinebus/brine/test/watchdog"
)

// world is a master, or the members of a cluster, with minions and durable listeners, and with
// what was ever seen of them.
type world struct {
	t         *testing.T
	dir       string
	port      int
	lab       bool // machines have networks of their own
	disks     bool // and disks
	masters   []*machine
	master    *machine // the first of them
	minions   []*machine
	guest     *machine // a minion of a cluster that gets no work; nil with one master
	decided   decision // the last one about its key that all members know
	listeners []*listener
	users     []*user
	sequences map[string]sequences // by the bus, and its journal if there are several
	turn      atomic.Int64

	diary   *os.File // what happened, shown when something was wrong
	writing sync.Mutex
}

// newWorld makes all and starts it: a master with two minions, or a cluster with three. What the
// machine does not allow is left out.
func newWorld(t *testing.T, masters int) *world {
	w := &world{t: t, dir: t.TempDir(), port: port.Free(t), sequences: map[string]sequences{}}
	watchdog.Start(t, remains, bin, w.dir)
	var err error
	w.diary, err = os.Create(filepath.Join(w.dir, "diary"))
	w.must(err)
	t.Cleanup(func() { w.diary.Close() })
	t.Run("cut cables", func(t *testing.T) {
		netlab.New(t) // it may skip this
		w.lab = true
	})
	t.Run("disks of their own", func(t *testing.T) {
		if err := tryDisk(diskDir(t)); err != nil {
			t.Skipf("no full disks and no power cuts: %v", err)
		}
		w.disks = true
	})
	if w.disks {
		w.must(shareMounts(w.dir))
		t.Cleanup(func() { unmount(w.dir) })
	}
	if masters > 1 {
		w.makeCluster(masters)
	} else {
		w.masters = []*machine{w.machine("master", "salt-master")}
		w.master = w.masters[0]
		w.minions = []*machine{w.machine("web1", "salt-minion"), w.machine("web2", "salt-minion")}
		w.connect()
		w.listeners = []*listener{{w: w, name: "chaos", at: w.master}}
	}
	t.Cleanup(w.clear)
	w.must(startAll(w.masters))
	w.must(startAll(w.minions))
	if w.guest != nil {
		w.must(w.guest.launch()) // it is ready when its key is accepted
	}
	w.must(w.back())
	for _, l := range w.listeners {
		w.must(l.start())
	}
	return w
}

// remains removes what is left of a world whose process was killed: all that runs of the programs, the disks, and the
// files. What is in a namespace of its own sees the disks go, too.
const remains = `for exe in /proc/[0-9]*/exe; do
	case $(readlink "$exe") in
	"${1:?}"/*) pid=${exe%/exe}; kill -9 "${pid#/proc/}" ;;
	esac
done
umount -R -l "$2"
rm -rf "$1" "${2%/*}"`

// tryDisk makes and cuts a disk.
func tryDisk(dir string) error {
	d, err := newDisk(filepath.Join(dir, "try"), true)
	if err != nil {
		return err
	}
	defer d.remove()
	return d.cut()
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// machines are those that work.
func (w *world) machines() []*machine { return append(slices.Clone(w.masters), w.minions...) }

// all are the guest, too.
func (w *world) all() []*machine {
	if w.guest == nil {
		return w.machines()
	}
	return append(w.machines(), w.guest)
}

func (w *world) machine(name, program string) *machine {
	m := &machine{t: w.t, name: name, program: program, etc: filepath.Join(w.dir, name), effects: filepath.Join(w.dir, name+".effects"), repeated: map[string]int{}}
	w.must(os.MkdirAll(m.etc, 0o755))
	var err error
	m.disk, err = newDisk(filepath.Join(w.dir, name+".disk"), w.disks)
	w.must(err)
	return m
}

// connect lays the cables and writes the settings.
func (w *world) connect() {
	address := "127.0.0.1"
	var lab *netlab.Lab
	if w.lab {
		lab = netlab.New(w.t)
		w.master.host = lab.Host("master")
	}
	for i, m := range w.minions {
		if w.lab {
			address = fmt.Sprintf("10.99.%d.1", i)
			m.host = lab.Host(m.name)
			lab.Connect(w.master.host, m.host, []string{address + "/24"}, []string{fmt.Sprintf("10.99.%d.2/24", i)})
		}
		w.write(m, "minion", fmt.Sprintf("id: %s\nmaster: %s\nmaster_port: %d\n", m.name, address, w.port))
	}
	w.write(w.master, "master", fmt.Sprintf("interface: 0.0.0.0\nret_port: %d\nauto_accept: true\n%s", w.port, w.makeUsers()))
}

func (w *world) write(m *machine, name, text string) {
	w.must(os.WriteFile(filepath.Join(m.etc, name), []byte(text+m.settings()), 0o644))
}

// note writes into the diary.
func (w *world) note(format string, args ...any) {
	w.writing.Lock()
	defer w.writing.Unlock()
	fmt.Fprintf(w.diary, time.Now().Format("15:04:05.000 ")+format+"\n", args...)
}

// clear ends all, whatever came before.
func (w *world) clear() {
	for _, l := range w.listeners {
		if l.cmd != nil {
			l.kill()
		}
	}
	for _, m := range w.all() {
		m.signal(syscall.SIGCONT)
		if m.running() {
			_ = m.end(syscall.SIGKILL)
		}
		m.disk.remove()
	}
	if w.t.Failed() {
		w.keep()
	}
}

// keep leaves what was written for whoever has to find out why.
func (w *world) keep() {
	to, err := os.MkdirTemp("", "chaos-failed-")
	w.must(err)
	paths, _ := filepath.Glob(filepath.Join(w.dir, "*", "*"))
	heard, _ := filepath.Glob(filepath.Join(w.dir, "*-heard-*"))
	for _, from := range append(append(paths, heard...), filepath.Join(w.dir, "diary")) {
		b, err := os.ReadFile(from)
		if err == nil {
			_ = os.WriteFile(filepath.Join(to, strings.ReplaceAll(strings.TrimPrefix(from, w.dir+"/"), "/", "-")), b, 0o600)
		}
	}
	w.t.Logf("logs, settings and a diary are in %s", to)
}

// back waits until all minions run jobs of all masters.
func (w *world) back() error {
	if err := healAll(w.machines()); err != nil {
		return err
	}
	for _, m := range w.masters {
		if err := w.reached(m); err != nil {
			return err
		}
	}
	return nil
}

// reached waits until all minions run jobs of a master. What ends by itself meanwhile is started again,
// as by a service manager.
func (w *world) reached(from *machine) error {
	var last result
	for end := time.Now().Add(readyTime); time.Now().Before(end); time.Sleep(look) {
		if err := healAll(w.machines()); err != nil {
			return err
		}
		if last = from.tool("", "salt", "-L", w.targets(), "-t", "3", "--out", "quiet", "test.ping"); last.code == 0 {
			return nil
		}
	}
	return fmt.Errorf("%s has not reached its minions after %s: %s", from.name, readyTime, last.err)
}

// targets are the ids of all minions.
func (w *world) targets() string {
	var names []string
	for _, m := range w.minions {
		names = append(names, m.name)
	}
	return strings.Join(names, ",")
}

// next is another master each time.
func (w *world) next() *machine { return w.masters[int(w.turn.Add(1))%len(w.masters)] }

func (w *world) isMaster(m *machine) bool { return slices.Contains(w.masters, m) }

// shared names the bus of a machine: all members of a cluster have one.
func (w *world) shared(m *machine) string {
	if w.isMaster(m) {
		return w.master.name
	}
	return m.name
}

// buses are machines with all the buses there are.
func (w *world) buses() []*machine { return append([]*machine{w.master}, w.minions...) }

// end is the sequence at which a bus ends now.
func (w *world) end(m *machine) string {
	if s := strings.TrimSpace(m.tool("", "salt-event", "token", "--bus", w.bus(m)).out); s != "" && s != "0" {
		return s
	}
	return "1"
}

func (w *world) bus(m *machine) string {
	if w.isMaster(m) {
		return "master"
	}
	return "minion"
}

// shown is what a bus has of a round, from a sequence on.
func (w *world) shown(m *machine, since, tag string) ([]stored, error) {
	l, err := w.listen(m, toolTime, "--since", since, "--tag", tag, "--until-end")
	return l.of(tag), err
}

// everything is what a bus has of all rounds.
func (w *world) everything(m *machine) (*lines, error) {
	return w.listen(m, historyTime, "--since", "1", "--tag", chaosTag, "--until-end")
}

// historyTime is how long it may take to read all rounds.
const historyTime = 15 * time.Minute

func (w *world) listen(m *machine, limit time.Duration, args ...string) (*lines, error) {
	l := newLines(m.member)
	res := m.toolTo(l, limit, os.Getenv("HOME"), "", "salt-event", append([]string{"listen", "--bus", w.bus(m)}, args...)...)
	if res.code != 0 {
		return l, fmt.Errorf("listen on %s: exit code %d: %s", m.name, res.code, res.err)
	}
	return l, nil
}

// loss is what a bus tells of itself.
type loss struct{ From, To int }

// losses are what the bus has reported by now.
func (w *world) losses(m *machine) ([]loss, error) {
	res := m.tool("", "salt-event", "listen", "--bus", w.bus(m), "--since", "1", "--until-end", "--tag", "salt/journal/lost", "--format", "raw")
	if res.code != 0 {
		return nil, fmt.Errorf("listen on %s: exit code %d: %s", m.name, res.code, res.err)
	}
	var out []loss
	d := json.NewDecoder(strings.NewReader(res.out))
	for d.More() {
		var l struct {
			loss
			Stream string
		}
		if err := d.Decode(&l); err != nil {
			return nil, err
		}
		if l.Stream == "EVENTS" {
			out = append(out, l.loss)
		}
	}
	return out, nil
}

// listener is salt-event listen --durable at a master, which is started again when it was killed.
type listener struct {
	w     *world
	name  string
	at    *machine
	cmd   *exec.Cmd
	ended chan struct{}
	lives []*life
}

// life is what a listener has written between its start and its end, and where.
type life struct {
	file, member string
	read         int64 // so much of it is in lines
	lines        *lines
}

func (l *listener) start() error {
	name := filepath.Join(l.w.dir, l.name+"-heard-"+strconv.Itoa(len(l.lives)))
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	ready := name + ".ready"
	c := l.at.command(l.w.t.Context(), "salt-event", "listen", "--durable", l.name, "--tag", chaosTag, "--since", "1", "--ready-file", ready)
	c.Stdout, c.Stderr = f, f
	if err := c.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	l.cmd, l.ended, l.lives = c, ended, append(l.lives, &life{file: name, member: l.at.member, lines: newLines(l.at.member)})
	go func() {
		_ = c.Wait()
		close(ended)
	}()
	for end := time.Now().Add(readyTime); time.Now().Before(end); time.Sleep(look) {
		if _, err := os.Stat(ready); err == nil {
			return nil
		}
		if l.over() {
			break
		}
	}
	return fmt.Errorf("the durable listener %s does not listen at %s: %s", l.name, l.at.name, l.last())
}

func (l *listener) over() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

func (l *listener) kill() {
	_ = l.cmd.Process.Kill()
	<-l.ended
}

// heard is what it has ever written of events with a tag.
func (l *listener) heard(tag string) []stored {
	var out []stored
	for _, one := range l.lives {
		out = append(out, one.heard(tag)...)
	}
	return out
}

// heard reads on where it has stopped the last time: the file becomes long.
func (l *life) heard(tag string) []stored {
	f, err := os.Open(l.file)
	if err != nil {
		return l.lines.of(tag)
	}
	defer f.Close()
	n, _ := io.Copy(l.lines, io.NewSectionReader(f, l.read, 1<<40)) // what cannot be read was not heard
	l.read += n
	return l.lines.of(tag)
}

func (l *listener) last() string {
	b, _ := os.ReadFile(l.lives[len(l.lives)-1].file)
	return string(b[max(0, len(b)-500):])
}
