package minion_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
)

// manyJobs is more than what one sender may have under way at the master at a time.
const manyJobs = 150

// TestManyJobsOverKills kills the master while one minion runs more jobs than it may have
// requests under way: half of them end while there is no master, the others go on over it.
// Then it kills both, which ends such jobs. The last word of each is true.
func TestManyJobsOverKills(t *testing.T) {
	m, s, mcfg, scfg := startVictims(t)
	t.Cleanup(m.showLog)
	t.Cleanup(s.showLog)
	w := &manyWorld{t: t, socket: filepath.Join(mcfg.SockDir, master.SocketName), dir: scfg.CacheDir}
	w.comeBack()

	during, after := w.begin("while"), w.begin("behind")
	m.kill()
	during.open()
	m.start()
	w.comeBack()
	after.open()
	w.end(during, job.Done)
	w.end(after, job.Done)

	killed := w.begin("killed")
	m.kill()
	s.kill()
	m.start()
	s.start()
	w.comeBack()
	w.end(killed, job.Killed)
}

// manyWorld is a master and a minion that runs many jobs.
type manyWorld struct {
	t           *testing.T
	c           *rpc.Conn
	socket, dir string
}

// manyRuns are jobs that wait for a FIFO.
type manyRuns struct {
	fifo
	jobs []salt.JID
}

// begin starts jobs and returns when all are under way.
func (w *manyWorld) begin(name string) manyRuns {
	w.t.Helper()
	g := newFIFO(w.t, w.dir, name)
	runs := g.path + ".runs"
	jobs := publishMany(w.t, w.c, func(n int) string { return fmt.Sprintf("echo %d >> %s; read x < %s", n, runs, g.path) })
	until(w.t, "all jobs are under way", func() bool { return len(ranSoFar(w.t, runs)) == manyJobs })
	return manyRuns{g, jobs}
}

// comeBack waits until the master runs jobs on the minion.
func (w *manyWorld) comeBack() {
	w.t.Helper()
	w.c = await(w.t, w.socket)
	awaitMinion(w.t.Context(), w.t, w.c)
}

// end waits for the last word of each job, which must be this one.
func (w *manyWorld) end(r manyRuns, want job.State) {
	w.t.Helper()
	for n, jid := range r.jobs {
		until(w.t, "job "+string(jid)+" has ended", func() bool {
			state := job.State(standing(w.t, w.c, jid)["web1"])
			if state.Final() && state != want {
				w.t.Errorf("job %d (%s) ended as %q, want %q", n, jid, state, want)
			}
			return state.Final()
		})
	}
	for n, times := range ranEach(w.t, r.path+".runs") {
		if times != 1 {
			w.t.Errorf("job %s ran %d times", n, times)
		}
	}
}

// publishMany starts the jobs, some at a time.
func publishMany(t *testing.T, c *rpc.Conn, command func(n int) string) []salt.JID {
	t.Helper()
	jobs := make([]salt.JID, manyJobs)
	var wg sync.WaitGroup
	const atATime = 10
	for first := range atATime {
		wg.Go(func() {
			for n := first; n < manyJobs; n += atATime {
				start := publishSoon(t.Context(), c, "web1", command(n))
				if start == nil {
					t.Errorf("job %d was not begun", n)
					return
				}
				jobs[n] = start.JID
			}
		})
	}
	deadline.Call(t, wg.Wait, "wg")
	if t.Failed() {
		t.FailNow()
	}
	return jobs
}

// ranSoFar is ranEach of a file that need not be there yet.
func ranSoFar(t *testing.T, path string) map[string]int {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	return ranEach(t, path)
}

// fifo is a FIFO that holds whoever reads a line of it.
type fifo struct {
	t    *testing.T
	path string
	file *os.File // open both ways: nobody waits to open it
}

func newFIFO(t *testing.T, dir, name string) fifo {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return fifo{t, path, f}
}

// open lets all of them go.
func (g fifo) open() {
	g.t.Helper()
	if _, err := g.file.WriteString(strings.Repeat("\n", manyJobs)); err != nil {
		g.t.Fatal(err)
	}
}
