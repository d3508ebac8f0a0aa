package minion_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/minion"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/deadline"
	"github.com/brinebus/brine/test/port"
	"github.com/brinebus/brine/test/programs"
)

// victim is a daemon in a process of its own, which can be killed.
type victim struct {
	t       *testing.T
	program string
	dir     string
	mu      sync.Mutex
	cmd     *exec.Cmd
}

func newVictim(t *testing.T, bin, name, dir string) *victim {
	v := &victim{t: t, program: filepath.Join(bin, name), dir: dir}
	v.start()
	t.Cleanup(v.kill)
	deadline.Guard(t, v.kill, name)
	return v
}

func (v *victim) start() {
	v.mu.Lock()
	defer v.mu.Unlock()
	log, err := os.OpenFile(filepath.Join(v.dir, "stderr"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		v.t.Fatal(err)
	}
	defer log.Close()
	v.cmd = exec.Command(v.program, "-c", v.dir, "-l", "warning")
	v.cmd.Stderr = log
	if err := v.cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
}

func (v *victim) kill() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cmd == nil {
		return
	}
	_ = v.cmd.Process.Signal(syscall.SIGKILL) // fails only if it has ended, which Wait tells
	_ = v.cmd.Wait()                          // "signal: killed"
	v.cmd = nil
}

// showLog prints what a daemon has said, for a test that fails.
func (v *victim) showLog() {
	if b, err := os.ReadFile(filepath.Join(v.dir, "stderr")); err == nil && v.t.Failed() {
		lines := strings.Split(string(b), "\n")
		v.t.Logf("%s said:\n%s", filepath.Base(v.program), strings.Join(lines[max(0, len(lines)-60):], "\n"))
	}
}

// build returns a directory with the daemons.
func build(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	if err := programs.Put(bin, "salt-master", "salt-minion"); err != nil {
		t.Fatal(err)
	}
	return bin
}

// startVictims starts a master that accepts every key, and a minion.
func startVictims(t *testing.T) (m, s *victim, mcfg *config.Master, scfg *config.Minion) {
	t.Helper()
	bin, mdir, sdir, port := build(t), t.TempDir(), t.TempDir(), port.Free(t)
	write(t, filepath.Join(mdir, "master"), fmt.Sprintf("root_dir: %s\ninterface: 127.0.0.1\nret_port: %d\nauto_accept: True\n", mdir, port))
	write(t, filepath.Join(sdir, "minion"), fmt.Sprintf("root_dir: %s\nid: web1\nmaster: 127.0.0.1\nmaster_port: %d\nrecon_max: 100\n", sdir, port))
	var err error
	if mcfg, _, err = config.LoadMaster(mdir); err != nil {
		t.Fatal(err)
	}
	if scfg, _, err = config.LoadMinion(sdir); err != nil {
		t.Fatal(err)
	}
	return newVictim(t, bin, "salt-master", mdir), newVictim(t, bin, "salt-minion", sdir), mcfg, scfg
}

// emitted is how many events emit fires at once: a kill may come between any two.
const emitted = 20

// emit fires the numbers from 0 on the minion's bus, to be forwarded, until enough
// says so. Each is repeated under its name until it is confirmed. It returns how
// many were.
func emit(ctx context.Context, t *testing.T, cfg *config.Minion, name string, enough func() bool) int {
	socket := filepath.Join(cfg.SockDir, minion.SocketName)
	var c *rpc.Conn
	defer func() {
		if c != nil {
			c.Close()
		}
	}()
	n := 0
	for !enough() {
		items := make([]string, emitted)
		for i := range items {
			items[i] = fmt.Sprintf(`{"tag":"kill/%s","data":{"n":%d}}`, name, emitted*n+i)
		}
		data := `{"events":[` + strings.Join(items, ",") + `]}`
		q := protocol.Fire{ID: name + "-" + strconv.Itoa(n), Events: []event.Item{fireEvent("fire_master", data)}}
		for ctx.Err() == nil {
			var err error
			if c == nil {
				c, err = rpc.Dial(socket)
			}
			if err == nil {
				ask, cancel := context.WithTimeout(ctx, 20*time.Second)
				err = c.Ask(ask, protocol.OpFire, q, nil)
				cancel()
			}
			if err == nil {
				n++
				break
			}
			if code := rpc.CodeOf(err); code == rpc.Usage || code == rpc.Denied {
				t.Errorf("%s %d: %v", name, n, err)
				return n
			}
			if c != nil {
				c.Close()
				c = nil
			}
			time.Sleep(2 * time.Millisecond) // until the daemon is there again; nothing depends on its length
		}
		if ctx.Err() != nil {
			t.Errorf("%s: number %d was never confirmed", name, n)
			return n
		}
	}
	return n
}

// TestKill fires numbered events on the minion while minion and master are killed
// at random: at the end all are in the master's journal, once, and in order.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("a kill checker takes its time")
	}
	m, s, mcfg, scfg := startVictims(t)
	defer m.showLog()
	defer s.showLog()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	const senders, kills = 4, 24
	done := make(chan struct{})
	var wg sync.WaitGroup
	counts := [senders]int{}
	for i := range senders {
		wg.Go(func() {
			counts[i] = emit(ctx, t, scfg, string(rune('a'+i)), func() bool {
				select {
				case <-done:
					return true
				default:
					return false
				}
			})
		})
	}
	for range kills {
		<-time.After(time.Duration(20+rand.IntN(400)) * time.Millisecond) // when to kill is the very thing that is random
		switch v := rand.IntN(3); v {
		case 0:
			m.kill()
			<-time.After(time.Duration(rand.IntN(300)) * time.Millisecond)
			m.start()
		default:
			s.kill()
			s.start()
		}
	}
	close(done)
	deadline.Call(t, wg.Wait, "wg")
	c := await(t, filepath.Join(scfg.SockDir, minion.SocketName))
	until(t, "the outbox is empty", func() bool {
		var st protocol.Status
		return c.Ask(ctx, protocol.OpStatus, nil, &st) == nil && st.Connected && st.Outbox == 0
	})
	total := 0
	for i, n := range counts {
		name := string(rune('a' + i))
		events := heard(t, mcfg.SockDir, master.SocketName, "kill/"+name)
		total += len(events)
		if len(events) != emitted*n {
			t.Errorf("%s: %d events in the journal, %d were confirmed", name, len(events), emitted*n)
		}
		for want, e := range events {
			var data struct{ N int }
			if err := json.Unmarshal(e.Data, &data); err != nil || data.N != want || e.From != "web1" {
				t.Errorf("%s: event %d from %s has number %d, %v", name, want, e.From, data.N, err)
				break
			}
		}
	}
	t.Logf("%d events over %d kills", total, kills)
	if total < 1000 {
		t.Errorf("only %d events: too few to tell anything", total)
	}
}

// await connects to a daemon that may just be starting.
func await(t *testing.T, socket string) (c *rpc.Conn) {
	t.Helper()
	until(t, "the daemon answers at "+socket, func() (ok bool) {
		var err error
		c, err = rpc.Dial(socket)
		return err == nil
	})
	t.Cleanup(c.Close)
	return c
}
