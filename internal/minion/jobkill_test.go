package minion_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
)

// publishSoon starts a job on all minions and returns what the master says at once; nil
// where it is killed meanwhile.
func publishSoon(ctx context.Context, c *rpc.Conn, target, command string) *job.Start {
	s, err := c.Call(protocol.OpPublish, protocol.Publish{
		Target: target, TargetType: "list", Async: true, Timeout: 5, Commands: []job.Command{{Function: "cmd.run", Args: []any{command}}},
	})
	if err != nil {
		return nil
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var start job.Start
	if s.Decode(ctx, &start) != nil {
		return nil
	}
	return &start
}

// standing is where a job stands on each minion, as the runner tells.
func standing(t *testing.T, c *rpc.Conn, jid salt.JID) map[string]string {
	t.Helper()
	s, err := c.Call(protocol.OpRun, protocol.Run{Command: job.Command{Function: "jobs.list_job", Args: []any{string(jid)}}, Timeout: 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var begun protocol.RunStart
	var r protocol.RunResult
	if err := s.Decode(t.Context(), &begun); err != nil {
		t.Fatal(err)
	}
	if err := s.Decode(t.Context(), &r); err != nil {
		t.Fatal(err)
	}
	if !r.Success {
		t.Fatalf("job %s, whose id was shown: %s %v", jid, r.Error, r.Return.V)
	}
	b, err := json.Marshal(r.Return)
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		States map[string]struct {
			State string `json:"state"`
		} `json:"States"`
	}
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for id, s := range all.States {
		states[id] = s.State
		if s.State == "sent" { // as Standing.Data shows the zero value
			states[id] = string(job.Sent)
		}
	}
	return states
}

// TestJobsOverKillsOfTheMaster kills the master again and again while jobs begin: each
// whose id was shown is known, ends as done, and ran once.
func TestJobsOverKillsOfTheMaster(t *testing.T) {
	m, s, mcfg, scfg := startVictims(t)
	defer m.showLog()
	defer s.showLog()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	socket := filepath.Join(mcfg.SockDir, master.SocketName)
	runs := filepath.Join(scfg.CacheDir, "runs")
	jobs := map[int]salt.JID{} // whose id was shown
	tries := 0
	began := time.Now()
	for range 5 {
		c := await(t, socket)
		awaitMinion(ctx, t, c)
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			<-time.After(time.Duration(50+rand.IntN(250)) * time.Millisecond) // when to kill is the very thing that is random
			m.kill()
		}()
		for start := new(job.Start); start != nil; {
			if start = publishSoon(ctx, c, "web1", fmt.Sprintf("echo %d >> %s; sleep 0.2", tries, runs)); start != nil {
				jobs[tries] = start.JID
			}
			tries++                             // what was not answered may have begun, too
			<-time.After(10 * time.Millisecond) // more than a hundred at once would be too many
		}
		deadline.Receive(t, killed, "killed")
		m.start()
	}
	c := await(t, socket)
	awaitMinion(ctx, t, c)
	t.Logf("%d jobs, the last master is there after %s", len(jobs), time.Since(began))
	for _, jid := range jobs {
		until(t, "job "+string(jid)+" has ended", func() bool {
			state := job.State(standing(t, c, jid)["web1"])
			if state.Final() && state != job.Done {
				t.Errorf("job %s ended as %q", jid, state)
			}
			return state.Final()
		})
	}
	ran := ranEach(t, runs)
	for n := range tries {
		if times := ran[fmt.Sprint(n)]; times > 1 || times == 0 && jobs[n] != "" {
			t.Errorf("job %d (%s) ran %d times", n, jobs[n], times)
		}
	}
	t.Logf("%d jobs", len(jobs))
	if len(jobs) < 10 {
		t.Error("too few jobs to tell anything")
	}
}

// awaitMinion returns when the master can run jobs on web1.
func awaitMinion(ctx context.Context, t *testing.T, c *rpc.Conn) {
	t.Helper()
	until(t, "web1 is ready for jobs", func() bool {
		s, err := c.Call(protocol.OpPublish, protocol.Publish{Target: "web1", TargetType: "list", Timeout: 5, Commands: []job.Command{{Function: "test.ping"}}})
		if err != nil {
			return false
		}
		defer s.Close()
		var start job.Start
		if s.Decode(ctx, &start) != nil {
			return false
		}
		for {
			var u job.Update
			if s.Decode(ctx, &u) != nil {
				return false
			}
			if u.State.Final() {
				return u.State == job.Done
			}
		}
	})
}

// ranEach counts the lines of a file.
func ranEach(t *testing.T, path string) map[string]int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string]int{}
	for line := range strings.Lines(string(b)) {
		ran[strings.TrimSpace(line)]++
	}
	return ran
}
