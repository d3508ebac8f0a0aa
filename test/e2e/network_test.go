package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/test/netlab"
)

var rounds = flag.Int("rounds", 3, "how often packets are dropped in the test of many failovers; from 50 on it also holds the time to its bound")

// aliveInterval is master_alive_interval in these tests: a loss must be seen within
// two of them.
const aliveInterval = time.Second

// site is a minion with a cable to each of two masters.
type site struct {
	*system
	t       *testing.T
	lab     *netlab.Lab
	minion  *netlab.Host
	masters []*netlab.Host
}

// names of the daemons and their folders.
var siteMasters = []string{"m1", "m2"}

// newSite starts two masters that sign with one pair of keys, and a minion with
// these settings; the masters have some too.
func newSite(t *testing.T, settings string, ofMasters ...string) *site {
	t.Helper()
	lab := netlab.New(t)
	s := &site{system: &system{work: t.TempDir(), tb: t}, t: t, lab: lab, minion: lab.Host("minion")}
	t.Cleanup(s.close)
	for i, name := range siteMasters {
		h := lab.Host(name)
		s.masters = append(s.masters, h)
		n := i + 1
		lab.Connect(h, s.minion, []string{fmt.Sprintf("10.77.%d.1/24", n), fmt.Sprintf("fd77:%d::1/64", n)}, []string{fmt.Sprintf("10.77.%d.2/24", n), fmt.Sprintf("fd77:%d::2/64", n)})
		s.must(s.write(name, "master", "interface: '::'\nauto_accept: True\nmaster_sign_pubkey: True\n"+strings.Join(ofMasters, "")))
		s.must(os.MkdirAll(s.path(name, "pki"), 0o700))
		if i > 0 {
			s.copy(siteMasters[0]+"/pki/master_sign.pem", name+"/pki/master_sign.pem")
			s.copy(siteMasters[0]+"/pki/master_sign.pub", name+"/pki/master_sign.pub")
		}
		s.startMaster(i)
	}
	s.must(s.write("web1", "minion", fmt.Sprintf("id: web1\nmaster_alive_interval: %d\nverify_master_pubkey_sign: True\n%s", aliveInterval/time.Second, settings)))
	s.must(os.MkdirAll(s.path("web1", "pki"), 0o700))
	s.copy(siteMasters[0]+"/pki/master_sign.pub", "web1/pki/master_sign.pub")
	s.startMinion()
	return s
}

// failover are the settings of most of these tests.
const failover = "master: [10.77.1.1, 10.77.2.1]\nmaster_type: failover\n"

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) path(words ...string) string {
	return filepath.Join(append([]string{s.work}, words...)...)
}

func (s *site) copy(from, to string) {
	s.t.Helper()
	b, err := os.ReadFile(s.path(from))
	s.must(err)
	s.must(os.WriteFile(s.path(to), b, 0o400))
}

// startOn starts a daemon on a host.
func (s *site) startOn(h *netlab.Host, name, program string) {
	s.t.Helper()
	c := h.Command(filepath.Join(bin, program), "-c", s.path(name), "-l", "debug")
	c.Env = append(os.Environ(), "WORK="+s.work, "GORACE=halt_on_error=1 atexit_sleep_ms=0")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	_, err := s.launch(name, c)
	s.must(err)
}

func (s *site) startMaster(i int) {
	s.t.Helper()
	name := siteMasters[i]
	s.startOn(s.masters[i], name, "salt-master")
	s.until("the master "+name+" answers", func() bool {
		_, err := s.tool("salt-key", "-c", s.path(name), "-F")
		if err != nil {
			return false
		}
		_, err = s.tool("salt-run", "-c", s.path(name), "manage.up")
		return err == nil
	})
}

func (s *site) startMinion() { s.t.Helper(); s.startOn(s.minion, "web1", "salt-minion") }

// tool runs a command-line tool to its end. It reaches its daemon by a file, on
// whichever host that is.
func (s *site) tool(program string, args ...string) (string, error) {
	c := exec.Command(filepath.Join(bin, program), args...)
	c.Env = append(os.Environ(), "WORK="+s.work)
	var out bytes.Buffer
	c.Stdout = &out
	err := c.Run()
	return out.String(), err
}

func (s *site) until(what string, ok func() bool) {
	s.t.Helper()
	if !poll(ok) {
		s.t.Fatalf("it did not happen: %s", what)
	}
}

// answers says whether the minion answers a job of a master in time.
func (s *site) answers(i int, within time.Duration) bool {
	out, err := s.tool("salt", "-c", s.path(siteMasters[i]), "-t", fmt.Sprint(within.Seconds()), "web1", "test.ping", "--out", "json")
	return err == nil && strings.Contains(out, "true")
}

// awaitAnswer waits for the first answer to a job of a master, and returns how long
// after begin it came. The patience with each job is short at first, since a job
// that went to a connection that is dead must not hold up the next one.
func (s *site) awaitAnswer(i int, begin time.Time) time.Duration {
	s.t.Helper()
	patience := time.Second / 2
	s.until("the minion answers "+siteMasters[i], func() bool {
		patience = min(patience*5/4, 10*time.Second)
		return s.answers(i, patience)
	})
	return time.Since(begin)
}

// begin starts a job on a master that ends when the file is there.
func (s *site) begin(i int, name string) (jid string) {
	s.t.Helper()
	script := fmt.Sprintf("touch %s.runs; while [ ! -e %s.go ]; do sleep 0.05; done; echo %s", s.path(name), s.path(name), name)
	out, err := s.tool("salt", "-c", s.path(siteMasters[i]), "--async", "web1", "cmd.run", script, "python_shell=True")
	s.must(err)
	words := strings.Fields(out)
	if len(words) == 0 {
		s.t.Fatalf("salt --async printed %q", out)
	}
	s.until("the job runs", func() bool { _, err := os.Stat(s.path(name + ".runs")); return err == nil })
	return words[len(words)-1]
}

func (s *site) finish(name string) {
	s.t.Helper()
	s.must(os.WriteFile(s.path(name+".go"), nil, 0o644))
}

// returns are the returns of a job in the journal of a master.
func (s *site) returns(i int, jid string) (values []string) {
	s.t.Helper()
	out, err := s.tool("salt-event", "listen", "--until-end", "-c", s.path(siteMasters[i]), "--since", "1h", "--tag", "salt/job/"+jid+"/ret/", "--format", "json")
	s.must(err)
	for line := range strings.Lines(out) {
		var e struct {
			Data struct{ Return any }
		}
		s.must(json.Unmarshal([]byte(line), &e))
		values = append(values, fmt.Sprint(e.Data.Return))
	}
	return values
}

// TestLossOfAMaster takes the master of a minion away in every way there is. The
// next one is in use soon, and gets the return of the job that was running, once.
func TestLossOfAMaster(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(*site)
		heal func(*site)
	}{
		"process stopped": {lose: func(s *site) { s.kill(0, syscall.SIGTERM) }, heal: func(s *site) { s.startMaster(0) }},
		"kill -9":         {lose: func(s *site) { s.kill(0, syscall.SIGKILL) }, heal: func(s *site) { s.startMaster(0) }},
		"process hangs":   {lose: func(s *site) { s.find("m1").signal(syscall.SIGSTOP) }, heal: func(s *site) { s.find("m1").signal(syscall.SIGCONT) }},
		"packets dropped both ways": {
			lose: func(s *site) { s.masters[0].Cut(netlab.Incoming, netlab.Outgoing) }, heal: func(s *site) { s.masters[0].Mend() },
		},
		"packets to the master dropped": {
			lose: func(s *site) { s.masters[0].Cut(netlab.Incoming) }, heal: func(s *site) { s.masters[0].Mend() },
		},
		"packets from the master dropped": {
			lose: func(s *site) { s.masters[0].Cut(netlab.Outgoing) }, heal: func(s *site) { s.masters[0].Mend() },
		},
		"address unreachable": {
			lose: func(s *site) { s.minion.Run("ip", "addr", "del", "10.77.1.2/24", "dev", "cable1") },
			heal: func(s *site) { s.minion.Run("ip", "addr", "add", "10.77.1.2/24", "dev", "cable1") },
		},
		"cable pulled": {
			lose: func(s *site) { s.masters[0].Run("ip", "link", "set", "cable1", "down") },
			heal: func(s *site) { s.masters[0].Run("ip", "link", "set", "cable1", "up") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, failover+"master_failback: True\nmaster_failback_interval: 1\n")
			s.awaitAnswer(0, time.Now())
			jid := s.begin(0, "job")
			began := time.Now()
			c.lose(s)
			t.Logf("answered by the next master after %s", s.awaitAnswer(1, began).Round(time.Millisecond))
			s.finish("job")
			s.until("the return is in the journal of the next master", func() bool { return len(s.returns(1, jid)) > 0 })
			began = time.Now()
			c.heal(s)
			t.Logf("back at the first master after %s", s.awaitAnswer(0, began).Round(time.Millisecond))
			if got := s.returns(1, jid); len(got) != 1 || got[0] != "job" {
				t.Errorf("returns in the journal of the next master: %q", got)
			}
			if got := s.returns(0, jid); len(got) != 0 {
				t.Errorf("returns in the journal of the master that was lost: %q", got)
			}
		})
	}
}

// kill ends a master by a signal.
func (s *site) kill(i int, sig syscall.Signal) {
	s.t.Helper()
	p := s.find(siteMasters[i])
	p.seen = true
	p.signal(sig)
	if !p.awaitEnd(stopTime) {
		s.t.Fatalf("%s does not end", p.name)
	}
}

// TestLossOfAMinion has the packets of a minion vanish: its master says so within
// four of the intervals at which it tries the connection out, and takes it back.
func TestLossOfAMinion(t *testing.T) {
	for name, interval := range map[string]time.Duration{"every second": time.Second, "as usual": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			setting := ""
			if interval > 0 {
				setting = fmt.Sprintf("minion_alive_interval: %d\n", interval/time.Second)
			}
			s := newSite(t, "master: 10.77.1.1\n", setting)
			s.awaitAnswer(0, time.Now())
			s.masters[0].Cut(netlab.Incoming, netlab.Outgoing)
			began := time.Now()
			s.until("the master misses the minion", func() bool {
				out, err := s.tool("salt", "-c", s.path("m1"), "-t", "1", "web1", "test.ping")
				return err != nil && strings.Contains(out, "Not connected")
			})
			took := time.Since(began)
			t.Logf("the master has missed the minion after %s", took.Round(100*time.Millisecond))
			if most := 4 * cmp.Or(interval, 5*time.Second); took > most+30*time.Second {
				t.Errorf("it took %s, four intervals are %s", took, most)
			}
			s.masters[0].Mend()
			s.awaitAnswer(0, time.Now())
		})
	}
}

// TestManyLosses drops the packets of the master in use, again and again, while
// jobs are running: no return is lost or doubled.
func TestManyLosses(t *testing.T) {
	t.Parallel()
	s := newSite(t, failover)
	s.awaitAnswer(0, time.Now())
	jids := map[string]string{}
	worst := time.Duration(0)
	for round := range *rounds {
		now, next := round%2, (round+1)%2
		name := fmt.Sprintf("job%d", round)
		jids[name] = s.begin(now, name)
		began := time.Now()
		s.masters[now].Cut(netlab.Incoming, netlab.Outgoing)
		took := s.awaitAnswer(next, began)
		worst = max(worst, took)
		t.Logf("round %d: answered by the next master after %s", round, took.Round(time.Millisecond))
		s.finish(name)
		s.masters[now].Mend()
		s.until("the return of "+name+" is there", func() bool { return len(s.returns(next, jids[name])) > 0 })
	}
	t.Logf("the longest of %d failovers took %s", *rounds, worst.Round(time.Millisecond))
	if *rounds >= 50 && worst > 2*aliveInterval {
		t.Errorf("the longest failover took %s, more than two intervals", worst)
	}
	for name, jid := range jids {
		if got := append(s.returns(0, jid), s.returns(1, jid)...); len(got) != 1 || got[0] != name {
			t.Errorf("%s returned %q", name, got)
		}
	}
}

// TestNamesOfMasters changes what a name means: it is asked for at each attempt.
func TestNamesOfMasters(t *testing.T) {
	t.Parallel()
	s := newSite(t, "master: salt.test\nretry_dns: 1\n")
	s.until("the name has no address, and the minion stays", func() bool {
		b, _ := os.ReadFile(s.find("web1").stderr)
		return bytes.Contains(b, []byte("the name of the master has no address"))
	})
	s.minion.SetNames("10.77.1.1 salt.test\n")
	s.awaitAnswer(0, time.Now())
	s.minion.SetNames("10.77.2.1 salt.test\n")
	s.kill(0, syscall.SIGKILL)
	s.awaitAnswer(1, time.Now())

	// Two addresses, one of which takes packets and says nothing.
	s.startMaster(0)
	s.masters[1].Cut(netlab.Incoming, netlab.Outgoing)
	s.minion.SetNames("10.77.2.1 salt.test\n10.77.1.1 salt.test\nfd77:2::1 salt.test\n")
	s.awaitAnswer(0, time.Now())
}

// TestPortsAndIPv6 names masters by their IPv6 addresses, with and without ports.
func TestPortsAndIPv6(t *testing.T) {
	t.Parallel()
	s := newSite(t, "master: ['[fd77:1::1]:4506', 'fd77:2::1']\nmaster_type: failover\n")
	s.awaitAnswer(0, time.Now())
	s.kill(0, syscall.SIGKILL)
	s.awaitAnswer(1, time.Now())
}

// TestRestartOfAll ends everything at once, and starts it again.
func TestRestartOfAll(t *testing.T) {
	t.Parallel()
	s := newSite(t, failover)
	s.awaitAnswer(0, time.Now())
	web1 := s.find("web1")
	web1.seen = true
	web1.signal(syscall.SIGKILL)
	web1.awaitEnd(stopTime)
	s.kill(0, syscall.SIGKILL)
	s.kill(1, syscall.SIGKILL)
	s.startMinion()
	s.startMaster(1)
	s.awaitAnswer(1, time.Now())
	s.startMaster(0)
	s.kill(1, syscall.SIGTERM)
	s.awaitAnswer(0, time.Now())
}

// TestNoFlapping has a first master that takes calls and says nothing, and a minion
// that would go back to it at every look.
func TestNoFlapping(t *testing.T) {
	t.Parallel()
	s := newSite(t, failover+"master_failback: True\nmaster_failback_interval: 1\nauth_timeout: 1\n")
	s.awaitAnswer(0, time.Now())
	s.find("m1").signal(syscall.SIGSTOP)
	s.awaitAnswer(1, time.Now())
	looks := func() int {
		b, _ := os.ReadFile(s.find("web1").stderr)
		return bytes.Count(b, []byte("the first master is not back"))
	}
	s.until("it was looked at three times", func() bool { return looks() >= 3 })
	out, err := s.tool("salt-event", "listen", "--until-end", "-c", s.path("web1"), "--bus", "minion", "--since", "1h", "--tag", "__master_")
	s.must(err)
	if n := strings.Count(out, "__master_connected"); n != 2 {
		t.Errorf("the minion was connected %d times:\n%s", n, out)
	}
	if !s.answers(1, waitTime) {
		t.Error("the second master is not answered")
	}
	s.find("m1").signal(syscall.SIGCONT)
	s.awaitAnswer(0, time.Now())
}

// TestAllMastersAtOnce loses one of two masters that are both in use: the other is
// not affected, and what was for the first reaches it later.
func TestAllMastersAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, "master: [10.77.1.1, 10.77.2.1]\n")
	s.awaitAnswer(0, time.Now())
	s.awaitAnswer(1, time.Now())
	jid := s.begin(0, "job")
	s.masters[0].Cut(netlab.Incoming, netlab.Outgoing)
	began := time.Now()
	if !s.answers(1, waitTime) {
		t.Error("the other master is not answered")
	}
	t.Logf("the other master was answered within %s", time.Since(began).Round(time.Millisecond))
	s.until("the loss is noticed", func() bool {
		out, _ := s.tool("salt-call", "-c", s.path("web1"), "status.master", "10.77.1.1")
		return strings.Contains(out, "False")
	})
	out, err := s.tool("salt-call", "-c", s.path("web1"), "event.fire_master", "{a: 1}", "my/tag", "--out", "json")
	s.must(err)
	if !strings.Contains(out, `"10.77.1.1": "outbox"`) || !strings.Contains(out, `"10.77.2.1": true`) {
		t.Errorf("event.fire_master: %s", out)
	}
	s.finish("job")
	if got := s.returns(1, jid); len(got) != 0 {
		t.Errorf("the other master has the return: %q", got)
	}
	s.masters[0].Mend()
	s.until("its master has the return", func() bool { return len(s.returns(0, jid)) > 0 })
	for i, name := range siteMasters {
		out, err := s.tool("salt-event", "listen", "--until-end", "-c", s.path(name), "--since", "1h", "--tag", "my/tag", "--format", "json")
		s.must(err)
		if n := strings.Count(out, "\n"); n != 1 {
			t.Errorf("the master %d has the event %d times", i+1, n)
		}
	}
}
