package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/test/port"
)

var kills = flag.Int("kills", 6, "how many members are killed in the test of that")

const (
	// killBound is how long a minion may take to answer after its member was killed. On an idle machine
	// it takes a fraction of a second; an election takes four seconds at least.
	killBound = 2 * time.Second
)

// trio is a cluster of three masters on this machine, with a minion.
type trio struct {
	*system
	t     *testing.T
	ports [2]int
}

func trioMaster(i int) string { return fmt.Sprintf("m%d", i+1) }

// newTrio starts it; the key of the minion is accepted.
func newTrio(t *testing.T) *trio {
	t.Helper()
	s := &trio{&system{work: t.TempDir(), tb: t}, t, [2]int{port.Free(t), port.Free(t)}}
	t.Cleanup(s.close)
	pki := func(name string) string { return filepath.Join(s.work, name, "pki") }
	for i := range 3 {
		s.must(s.write(trioMaster(i), "master", fmt.Sprintf("interface: 127.0.0.%d\nret_port: %d\nauto_accept: True\ncluster_id: trio\ncluster_port: %d\ncluster_peers: [127.0.0.1, 127.0.0.2, 127.0.0.3]\nmaster_sign_pubkey: True\nmetrics_listen: unix:metrics.sock\n",
			i+1, s.ports[0], s.ports[1])))
		s.must(os.MkdirAll(pki(trioMaster(i)), 0o700))
	}
	s.must(s.write("web1", "minion", fmt.Sprintf("id: web1\nmaster: [127.0.0.1, 127.0.0.2, 127.0.0.3]\nmaster_port: %d\nmaster_type: failover\nverify_master_pubkey_sign: True\n", s.ports[0])))
	s.must(os.MkdirAll(pki("web1"), 0o700))
	_, err := s.tool("salt-key", "-q", "-c", filepath.Join(s.work, "m1"), "--gen-keys", "master_sign", "--gen-keys-dir", pki("m1"))
	s.must(err)
	for _, name := range []string{"m2/pki/master_sign.pem", "m2/pki/master_sign.pub", "m3/pki/master_sign.pem", "m3/pki/master_sign.pub", "web1/pki/master_sign.pub"} {
		b, err := os.ReadFile(filepath.Join(pki("m1"), filepath.Base(name)))
		s.must(errors.Join(err, os.WriteFile(filepath.Join(s.work, name), b, 0o400)))
	}
	for _, name := range []string{"m1", "m2", "m3"} {
		s.start(name, "salt-master")
	}
	s.start("web1", "salt-minion")
	return s
}

func (s *trio) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *trio) start(name, program string) {
	s.t.Helper()
	c := exec.Command(filepath.Join(bin, program), "-c", filepath.Join(s.work, name))
	c.Env = append(os.Environ(), "GORACE=halt_on_error=1 atexit_sleep_ms=0")
	_, err := s.launch(name, c)
	s.must(err)
}

func (s *trio) tool(program string, args ...string) (string, error) {
	c := exec.Command(filepath.Join(bin, program), args...)
	var out bytes.Buffer
	c.Stdout = &out
	err := c.Run()
	return out.String(), err
}

// settled waits until all members run, lead what they write, and reach the minion, and returns the
// number of the one that it is connected to.
func (s *trio) settled() (holder int) {
	s.t.Helper()
	for deadline := time.Now().Add(runTime); ; time.Sleep(10 * pollTime) {
		if time.Now().After(deadline) {
			s.t.Fatal("the cluster does not settle")
		}
		at, ok := s.holder()
		for i := range 3 {
			ok = ok && s.answers(i)
		}
		if ok {
			return at
		}
	}
}

// holder returns the number of the member that the minion is connected to, if all lead what they
// write.
func (s *trio) holder() (at int, ok bool) {
	out, err := s.tool("salt-run", "-c", filepath.Join(s.work, "m1"), "cluster.status", "--out=json")
	var status struct {
		Members map[string]struct {
			Leads   bool
			Minions int
		}
	}
	if err != nil || json.Unmarshal([]byte(out), &status) != nil {
		return 0, false
	}
	leads, minions := 0, 0
	for i := range 3 {
		m := status.Members[fmt.Sprintf("127_0_0_%d_%d", i+1, s.ports[1])]
		if m.Leads {
			leads++
		}
		if m.Minions > 0 {
			at = i
		}
		minions += m.Minions
	}
	return at, leads == 3 && minions == 1
}

func (s *trio) answers(i int) bool {
	out, err := s.tool("salt", "-c", filepath.Join(s.work, trioMaster(i)), "-t", "5", "web1", "test.ping", "--out", "json")
	return err == nil && strings.Contains(out, "true")
}

// fire makes the minion fire events, one after the other, until end is called.
func (s *trio) fire() (end func()) {
	s.t.Helper()
	c := exec.Command(filepath.Join(bin, "salt-event"), "fire", "-c", filepath.Join(s.work, "web1"), "--bus", "minion", "fire_master", "--stdin", "-t", "60s")
	in, err := c.StdinPipe()
	s.must(errors.Join(err, c.Start()))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
			if _, err := in.Write([]byte(`{"tag":"reading/web1","data":{"celsius":21}}` + "\n")); err != nil {
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-done
		s.must(errors.Join(in.Close(), c.Wait()))
	}
}

// TestAMinionOfAKilledMember: the member that holds a minion is killed, again and again, whatever it
// leads, and every other time while the minion fires events, of which nobody knows then which the killed
// member has stored. Jobs of another member are answered again within a moment, and run once.
func TestAMinionOfAKilledMember(t *testing.T) {
	t.Parallel()
	s := newTrio(t)
	var all []time.Duration
	for round := range *kills {
		holder := s.settled()
		at := (holder + 1 + round/3%2) % 3
		if !s.answers(at) { // after that, the minion has no return left for the member that is killed, which would have to wait
			t.Fatal("the minion does not answer")
		}
		end := func() {}
		switch {
		case round%2 == 0:
		case raced: // beside all other tests, such programs need more than the bound allows for what is measured
			t.Log("skipped: events of the minion meanwhile, since its program looks for data races")
		default:
			end = s.fire()
		}
		p := s.find(trioMaster(holder))
		p.seen = true
		began := time.Now()
		p.signal(syscall.SIGKILL)
		for !s.answers(at) && time.Since(began) < 10*killBound {
		}
		took := time.Since(began)
		all = append(all, took)
		t.Logf("kill %d, of %s: %s answers for the minion after %s", round+1, trioMaster(holder), trioMaster(at), took.Round(time.Millisecond))
		if took > killBound {
			t.Errorf("after kill %d of %s it took %s, more than %s", round+1, trioMaster(holder), took, killBound)
		}
		s.must(s.ranOnce(at))
		end()
		<-p.ended
		s.start(trioMaster(holder), "salt-master")
	}
	slices.Sort(all)
	t.Logf("%d kills: %s in the median, %s at most", len(all), all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
}

// ranOnce runs a job that leaves a mark, which must be there once.
func (s *trio) ranOnce(at int) error {
	file := filepath.Join(s.work, "mark")
	defer os.Remove(file)
	_, err := s.tool("salt", "-c", filepath.Join(s.work, trioMaster(at)), "-t", "5", "web1", "cmd.run", "echo ran >>"+file)
	b, bad := os.ReadFile(file)
	if string(b) != "ran\n" {
		err = errors.Join(err, fmt.Errorf("a job has left %q", b))
	}
	return errors.Join(err, bad)
}
