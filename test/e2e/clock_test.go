package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/brinebus/brine/test/wrongclock"
)

// TestAMemberWithAWrongClock: the others report a member whose clock is three minutes ahead, until it is
// right again.
func TestAMemberWithAWrongClock(t *testing.T) {
	t.Parallel()
	s := newTrio(t)
	if !poll(func() bool { _, known := s.clockAhead(0, 1); return known }) {
		t.Fatal("m1 does not know the time of m2")
	}
	c, err := wrongclock.Of(s.find("m2").cmd.Process.Pid)
	if err == nil {
		err = c.Set(0)
	}
	if err != nil {
		t.Skipf("the clock of a process cannot be changed here: %v", err)
	}
	s.must(c.Set(180))
	for _, w := range []struct {
		at, of    int
		low, high float64
		logs      string
	}{
		{0, 1, 170, 190, `the clock of another member differs from that of this one.* member=127_0_0_2_\d+ ahead=(2m5\d|3m0)s hint=`},
		{1, 2, -190, -170, `the clock of another member differs from that of this one.* member=127_0_0_3_\d+ ahead=-(2m5\d|3m0)s hint=`},
	} {
		s.awaitClock(w.at, w.of, w.low, w.high)
		s.awaitLog(w.at, w.logs)
	}
	s.awaitMetric(0, `(?m)^salt_cluster_clock_ahead_seconds\{member="127_0_0_2_\d+"\} 1[78]\d`)
	if by, _ := s.clockAhead(0, 2); by < -5 || by > 5 {
		t.Errorf("the clock of m3 is right, and m1 says it is %v s ahead", by)
	}
	s.must(c.Set(0))
	s.awaitClock(0, 1, -5, 5)
	s.awaitLog(0, `the clock of another member is that of this one again.* member=127_0_0_2_`)
}

// clockAhead returns by how many seconds the clock of a member is ahead, as another one says.
func (s *trio) clockAhead(at, of int) (seconds float64, known bool) {
	out, err := s.tool("salt-run", "-c", filepath.Join(s.work, trioMaster(at)), "cluster.status", "--out=json")
	var status struct {
		Members map[string]map[string]any
	}
	if err != nil || json.Unmarshal([]byte(out), &status) != nil {
		return 0, false
	}
	seconds, known = status.Members[fmt.Sprintf("127_0_0_%d_%d", of+1, s.ports[1])]["clock_ahead"].(float64)
	return seconds, known
}

func (s *trio) awaitClock(at, of int, low, high float64) {
	s.t.Helper()
	var by float64
	if !poll(func() bool {
		var known bool
		by, known = s.clockAhead(at, of)
		return known && by >= low && by <= high
	}) {
		s.t.Fatalf("%s says that the clock of %s is %v s ahead, want %v to %v", trioMaster(at), trioMaster(of), by, low, high)
	}
}

func (s *trio) awaitLog(at int, pattern string) {
	s.t.Helper()
	want := regexp.MustCompile(pattern)
	if !poll(func() bool {
		b, err := os.ReadFile(s.find(trioMaster(at)).stderr)
		return err == nil && want.Match(b)
	}) {
		s.t.Fatalf("%s does not log %s", trioMaster(at), pattern)
	}
}

func (s *trio) awaitMetric(at int, pattern string) {
	s.t.Helper()
	want, text := regexp.MustCompile(pattern), ""
	client := behind(filepath.Join(s.work, trioMaster(at), "metrics.sock"))
	if !poll(func() bool {
		var err error
		text, err = fetch(client, "/metrics")
		return err == nil && want.MatchString(text)
	}) {
		s.t.Fatalf("%s serves no %s:\n%s", trioMaster(at), pattern, text)
	}
}
