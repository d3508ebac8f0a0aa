// Package netlab makes hosts of their own on one machine, each a network namespace,
// with cables between them that a test can pull or make slow: what happens when packets
// vanish or are late is another thing than what happens when a process ends.
//
// It is for tests and benchmarks as root; it is not a simulation: programs in its
// hosts use the kernel's own network.
package netlab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/brinebus/brine/test/watchdog"
)

// Lab is some hosts. The end of the test removes them.
type Lab struct {
	tb     testing.TB
	prefix string
	cables int
}

// Host is one of them.
type Host struct {
	lab     *Lab
	name    string // of the namespace
	plugged *Host  // the switch, if there is one
	cable   string // to it
	relay   *relay // through which the cable leads while it is slow
}

// namespaces has a file for each, by ip-netns(8).
const namespaces = "/run/netns"

var count atomic.Int64

// New returns a lab without hosts. Where the machine does not allow one it skips
// the test and says why.
func New(tb testing.TB) *Lab {
	tb.Helper()
	l := &Lab{tb: tb, prefix: fmt.Sprintf("brine%d-%d-", os.Getpid(), count.Add(1))}
	if err := l.try(); err != nil {
		tb.Skipf("no network namespaces here: %v", err)
	}
	watchdog.Start(tb, remains, namespaces, l.prefix)
	return l
}

// remains removes what is left of a lab whose process was killed, with all that runs on its hosts. Links go with
// their hosts.
const remains = `cd "$1" || exit
for name in "$2"*; do
	for _ in 1 2 3 4 5; do
		pids=$(ip netns pids "$name") && [ -n "$pids" ] || break
		kill -9 $pids
	done
	ip netns del "$name"
	rm -rf "/etc/netns/$name"
done
rmdir /etc/netns`

func (l *Lab) try() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("they are for root")
	}
	for _, program := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	name := l.prefix + "try"
	defer func() { _ = run("ip", "netns", "del", name) }()
	if err := run("ip", "netns", "add", name); err != nil {
		return err
	}
	return run("ip", "netns", "exec", name, "nft", "add", "table", "inet", "cut")
}

func run(words ...string) error {
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(words, " "), err, out)
	}
	return nil
}

// Host adds a host that knows nobody yet, and has a file of names of its own.
func (l *Lab) Host(name string) *Host {
	l.tb.Helper()
	h := &Host{lab: l, name: l.prefix + name}
	l.must(run("ip", "netns", "add", h.name))
	l.tb.Cleanup(func() { _ = run("ip", "netns", "del", h.name) })
	dir := filepath.Join("/etc/netns", h.name)
	l.must(os.MkdirAll(dir, 0o755))
	l.tb.Cleanup(func() { os.RemoveAll(dir); os.Remove(filepath.Dir(dir)) })
	h.SetNames("")
	h.Run("ip", "link", "set", "lo", "up")
	return h
}

func (l *Lab) must(err error) {
	l.tb.Helper()
	if err != nil {
		l.tb.Fatal(err)
	}
}

// Connect lays a cable between two hosts, each with its addresses, written with the
// length of the prefix.
func (l *Lab) Connect(a, b *Host, addressesOfA, addressesOfB []string) {
	l.tb.Helper()
	l.cables++
	name := fmt.Sprintf("cable%d", l.cables)
	l.must(run("ip", "link", "add", name, "netns", a.name, "type", "veth", "peer", "name", name, "netns", b.name))
	for h, addresses := range map[*Host][]string{a: addressesOfA, b: addressesOfB} {
		for _, address := range addresses {
			words := []string{"ip", "addr", "add", address, "dev", name}
			if strings.Contains(address, ":") {
				words = append(words, "nodad")
			}
			h.Run(words...)
		}
		h.Run("ip", "link", "set", name, "up")
	}
}

// Command is a program that will run on this host.
func (h *Host) Command(program string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", h.name, program}, args...)...)
}

// Run runs a program on this host, which must succeed.
func (h *Host) Run(words ...string) {
	h.lab.tb.Helper()
	h.lab.must(run(append([]string{"ip", "netns", "exec", h.name}, words...)...))
}

// SetNames sets the names that programs on this host resolve, as /etc/hosts has
// them. A program that runs sees the change.
func (h *Host) SetNames(lines string) {
	h.lab.tb.Helper()
	h.lab.must(os.WriteFile(filepath.Join("/etc/netns", h.name, "hosts"), []byte("127.0.0.1 localhost\n"+lines), 0o644))
}

// What Cut drops.
const (
	Incoming = "input"
	Outgoing = "output"
)

// Cut drops all packets in these directions, but those of the host with itself. No
// side hears of it.
func (h *Host) Cut(directions ...string) {
	h.lab.tb.Helper()
	for _, d := range directions {
		h.rule(d, map[string]string{Incoming: "iifname", Outgoing: "oifname"}[d], "!=", "lo", "drop")
	}
}

// rule adds a rule for the packets of one direction.
func (h *Host) rule(direction string, words ...string) {
	h.lab.tb.Helper()
	h.Run("nft", "add", "table", "inet", "cut")
	h.Run("nft", "add", "chain", "inet", "cut", direction, fmt.Sprintf("{ type filter hook %s priority 0; }", direction))
	h.Run(append([]string{"nft", "add", "rule", "inet", "cut", direction}, words...)...)
}

// Mend undoes Cut, CutPeer and Lose.
func (h *Host) Mend() {
	h.lab.tb.Helper()
	h.Run("nft", "delete", "table", "inet", "cut")
}

// Switch adds a host that joins the cables that are plugged into it to one network.
func (l *Lab) Switch(name string) *Host {
	l.tb.Helper()
	h := l.Host(name)
	h.Run("ip", "link", "add", bridge, "type", "bridge")
	h.Run("ip", "link", "set", bridge, "up")
	return h
}

// bridge is the device of a switch.
const bridge = "bridge"

// Plug lays a cable between a host and a switch. All hosts with an address of the same network
// reach each other then. A host has one such cable.
func (l *Lab) Plug(h, into *Host, address string) {
	l.tb.Helper()
	l.Connect(h, into, []string{address}, nil)
	h.plugged, h.cable = into, fmt.Sprintf("cable%d", l.cables)
	into.Run("ip", "link", "set", h.cable, "master", bridge)
	l.tb.Cleanup(h.Unslow)
}

// CutPeer drops all packets that come from an address, or go to it, as Cut does.
func (h *Host) CutPeer(address string, directions ...string) {
	h.lab.tb.Helper()
	for _, d := range directions {
		h.rule(d, "ip", map[string]string{Incoming: "saddr", Outgoing: "daddr"}[d], address, "drop")
	}
}

// Lose drops so many of a hundred packets that come in, at random.
func (h *Host) Lose(percent int) {
	h.lab.tb.Helper()
	h.rule(Incoming, "iifname", "!=", "lo", "numgen", "random", "mod", "100", "<", fmt.Sprint(percent), "drop")
}

// Queue gives the cable to the switch a queue for what the host sends, as tc calls it: "tbf
// rate 1mbit burst 8k latency 1s", for one. It is an error where the kernel has none of that kind.
func (h *Host) Queue(discipline string) error {
	return run(append([]string{"ip", "netns", "exec", h.name, "tc", "qdisc", "replace", "dev", h.cable, "root"}, strings.Fields(discipline)...)...)
}

// Unqueue undoes Queue.
func (h *Host) Unqueue() {
	h.lab.tb.Helper()
	h.Run("tc", "qdisc", "del", "dev", h.cable, "root")
}
