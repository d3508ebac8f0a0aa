package broker

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/blockfile"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/test/deadline"
)

// streamsUnderTest are streams like ours: with and without a limit, a table, a queue. Those
// with a limit have blocks of 32 kB.
func streamsUnderTest() []*nats.StreamConfig {
	return []*nats.StreamConfig{
		{Name: "EVENTS", Subjects: []string{"e.>"}, MaxBytes: 120_000},
		{Name: "WIDE", Subjects: []string{"w.>"}},
		{Name: "KV_T", Subjects: []string{"$KV.T.>"}, MaxMsgsPerSubject: 1, AllowRollup: true, MaxBytes: 125_000},
		{Name: "QUEUE", Subjects: []string{"q"}, MaxBytes: 125_000},
	}
}

// history does random operations of the daemons on the streams, for that many steps.
func history(js nats.JetStreamContext, r *rand.Rand, steps int) error {
	for _, c := range streamsUnderTest() {
		if _, err := js.AddStream(c); err != nil {
			return err
		}
	}
	var last [4]uint64
	for range steps {
		var err error
		switch n := r.IntN(100); {
		case n < 50:
			err = put(js, fmt.Sprintf("e.%d", r.IntN(30)), r.IntN(600), &last[0])
		case n < 60:
			err = put(js, fmt.Sprintf("w.%d", r.IntN(300)), r.IntN(40_000), &last[1])
		case n < 75:
			err = put(js, fmt.Sprintf("$KV.T.%d", r.IntN(200)), r.IntN(400), &last[2])
		case n < 85:
			err = put(js, "q", r.IntN(300), &last[3])
		case n < 92:
			err = js.DeleteMsg("EVENTS", last[0]-min(last[0], uint64(r.IntN(300))))
		case n < 96:
			err = js.DeleteMsg("WIDE", last[1]-min(last[1], uint64(r.IntN(300))))
		case n < 98:
			err = js.PurgeStream("QUEUE", &nats.StreamPurgeRequest{Sequence: last[3] - min(last[3], uint64(r.IntN(50)))})
		case n < 99:
			err = js.PurgeStream("EVENTS", &nats.StreamPurgeRequest{Subject: fmt.Sprintf("e.%d", r.IntN(30)), Keep: uint64(r.IntN(3))})
		default:
			err = js.PurgeStream("KV_T", &nats.StreamPurgeRequest{Subject: fmt.Sprintf("$KV.T.%d", r.IntN(200))})
		}
		var refused *nats.APIError
		if err != nil && !errors.As(err, &refused) { // a message to be deleted may be gone
			return err
		}
	}
	return nil
}

func put(js nats.JetStreamContext, subject string, size int, last *uint64) error {
	a, err := js.Publish(subject, bytes.Repeat([]byte("x"), size))
	if err == nil {
		*last = a.Sequence
	}
	return err
}

// content is what a server reports about a stream.
type content struct {
	State    nats.StreamState
	Messages map[uint64]string
}

// openBare opens a store with only the server, and returns its content and the server's
// warnings.
func openBare(t *testing.T, dir string) (map[string]content, string) {
	t.Helper()
	a := server.NewAccount(account)
	s, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, JetStream: true, StoreDir: dir, DisableJetStreamBanner: true,
		Accounts: []*server.Account{a, server.NewAccount(system)}, SystemAccount: system,
		Users: []*server.User{{Username: "u", Password: "p", Account: a}}})
	if err != nil {
		t.Fatal(err)
	}
	said := &warnings{}
	s.SetLoggerV2(said, false, false, false)
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if a, err = s.LookupAccount(account); err == nil {
		err = a.EnableJetStream(nil, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.UserInfo("u", "p"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	return contents(t, js), said.text.String()
}

func contents(t *testing.T, js nats.JetStreamContext) map[string]content {
	t.Helper()
	out := map[string]content{}
	for _, c := range streamsUnderTest() {
		info, err := js.StreamInfo(c.Name, &nats.StreamInfoRequest{DeletedDetails: true, SubjectsFilter: ">"})
		if err != nil {
			t.Fatal(c.Name, err)
		}
		have := content{info.State, map[uint64]string{}}
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
			if m, err := js.GetMsg(c.Name, seq); err == nil {
				have.Messages[seq] = fmt.Sprint(m.Subject, m.Header, len(m.Data), m.Time)
			}
		}
		if int(info.State.Msgs) != len(have.Messages) {
			t.Errorf("%s: %d messages are counted, %d are there", c.Name, info.State.Msgs, len(have.Messages))
		}
		out[c.Name] = have
	}
	return out
}

// warnings collects the server's warnings.
type warnings struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *warnings) Warnf(format string, v ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(&w.text, format+"\n", v...)
}
func (w *warnings) Errorf(format string, v ...any) { w.Warnf(format, v...) }
func (w *warnings) Fatalf(format string, v ...any) { w.Warnf(format, v...) }
func (w *warnings) Noticef(string, ...any)         {}
func (w *warnings) Debugf(string, ...any)          {}
func (w *warnings) Tracef(string, ...any)          {}

// copyOf copies a store as it is on the disk.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "s")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// withoutIndex removes the index, so that the server reads all blocks.
func withoutIndex(t *testing.T, dir string) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "jetstream/*/streams/*/msgs/index.db"))
	for _, path := range list {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sameAsRead prepares the store in dir as a start does, and compares what the server finds with
// what it finds when it reads all blocks. It returns what was prepared.
func sameAsRead(t *testing.T, dir string) *blockfile.Report {
	t.Helper()
	bare, begun := copyOf(t, dir), emptyBlocks(t, dir)
	_, r, err := blockfile.Recover(dir)
	if err != nil {
		t.Fatal(err)
	}
	withoutIndex(t, bare)
	want, _ := openBare(t, bare)
	got, said := openBare(t, dir)
	for name := range want {
		if !reflect.DeepEqual(got[name].State, want[name].State) {
			t.Errorf("%s is %+v,\nby reading it %+v", name, got[name].State, want[name].State)
		}
		if !reflect.DeepEqual(got[name].Messages, want[name].Messages) {
			t.Errorf("%s has other messages than by reading it", name)
		}
	}
	for _, name := range []string{"WIDE", "EVENTS"} {
		if strings.Contains(said, "Filestore ["+name+"]") && !begun[name] {
			t.Errorf("the server did not take the index: %s", said)
		}
	}
	return r
}

// emptyBlocks returns the streams with a block that was empty when the server was killed. No
// index describes them: the server reads their blocks.
func emptyBlocks(t *testing.T, dir string) map[string]bool {
	t.Helper()
	blocks, err := filepath.Glob(filepath.Join(dir, "jetstream/*/streams/*/msgs/*.blk"))
	if err != nil {
		t.Fatal(err)
	}
	empty := map[string]bool{}
	for _, path := range blocks {
		if info, err := os.Stat(path); err != nil {
			t.Fatal(err)
		} else if info.Size() == 0 {
			empty[filepath.Base(filepath.Dir(filepath.Dir(path)))] = true
		}
	}
	return empty
}

// A helper process of the tests below: it works on a store until it is killed.
func TestWorkOnAStore(t *testing.T) {
	dir := os.Getenv("WORK_ON_STORE")
	if dir == "" {
		t.SkipNow()
	}
	b, err := Start(Options{Name: "test", StoreDir: dir, Log: slog.New(slog.DiscardHandler), Admit: func(Peer) bus.Identity { return bus.Identity{} }})
	if err != nil {
		t.Fatal(err)
	}
	l := blockfile.NewLearner(dir, func() error { return nil })
	go func() {
		for {
			if err := l.Learn(); err != nil {
				panic(err)
			}
		}
	}()
	js, err := b.Conn().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("working")
	seed, err := strconv.ParseUint(os.Getenv("WORK_SEED"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Fatal(history(js, rand.New(rand.NewPCG(seed, 1)), 1<<30))
}

// workUntilKilled starts another process that works on the store, and kills it some time after
// that many summaries of blocks exist.
func workUntilKilled(t *testing.T, dir string, seed uint64, stream string, summaries int) {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestWorkOnAStore$")
	c.Env = append(os.Environ(), "WORK_ON_STORE="+dir, fmt.Sprint("WORK_SEED=", seed))
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }() // it may have ended
	late := time.AfterFunc(deadline.Time, func() { _ = c.Process.Kill() })
	defer late.Stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "working\n" {
		t.Fatal(line, err)
	}
	deadline.Until(t, func() bool {
		list, err := filepath.Glob(filepath.Join(dir, "summaries", stream, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list) >= summaries
	}, "summaries of "+stream)
	moment := time.AfterFunc(time.Duration(rand.IntN(100_000))*time.Microsecond, func() { _ = c.Process.Kill() })
	defer moment.Stop()
	_ = c.Wait() // it was killed
}

// After a kill at any moment, the index that is written from the summaries of old blocks and
// from the new blocks is the same as what the server finds when it reads everything.
func TestIndexAfterKills(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	known := 0
	for seed := range uint64(2) {
		workUntilKilled(t, dir, seed, "*", 6)
		r := sameAsRead(t, dir)
		if len(r.Lost) > 0 {
			t.Errorf("told as lost: %v", r.Lost)
		}
		t.Logf("%d of %d blocks were read", r.Read, r.Blocks)
		known += r.Blocks - r.Read
	}
	if known == 0 {
		t.Error("no block was known")
	}
}

// A summary counts only for exactly the files that it was made from: a changed byte in an old
// block is reported; damaged, incomplete or foreign summaries and indexes only cost time, and
// so does another boot.
func TestIndexOverDamage(t *testing.T) {
	t.Parallel()
	kept := func(t *testing.T, dir string) []string {
		list, err := filepath.Glob(filepath.Join(dir, "summaries", "*", "*"))
		if err != nil || len(list) < 2 {
			t.Fatal(list, err)
		}
		return list
	}
	change := func(t *testing.T, path string, f func([]byte) []byte) {
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, f(b), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	half := func(b []byte) []byte { return b[:len(b)/2] }
	dir := t.TempDir()
	workUntilKilled(t, dir, 1, "*", 3)
	for name, damage := range map[string]func(t *testing.T){
		"summaries, a byte": func(t *testing.T) {
			for _, path := range kept(t, dir) {
				change(t, path, flip)
			}
		},
		"summaries, torn": func(t *testing.T) {
			for _, path := range kept(t, dir) {
				change(t, path, half)
			}
		},
		"summaries of other blocks": func(t *testing.T) {
			list := kept(t, dir)
			one, err := os.ReadFile(list[0])
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range list[1:] {
				change(t, path, func([]byte) []byte { return one })
			}
		},
		"another boot": func(t *testing.T) {
			m, err := blockfile.ReadState(dir)
			if err != nil {
				t.Fatal(err)
			}
			m.Boot = "another"
			if err := m.Write(dir); err != nil {
				t.Fatal(err)
			}
		},
		"indexes, torn": func(t *testing.T) {
			list, err := filepath.Glob(filepath.Join(dir, "jetstream/*/streams/*/msgs/index.db"))
			if err != nil || len(list) == 0 {
				t.Fatal(list, err)
			}
			for _, path := range list {
				change(t, path, half)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			workUntilKilled(t, dir, 1, "*", 0)
			damage(t)
			r := sameAsRead(t, dir)
			if name != "indexes, torn" && r.Read < r.Blocks-1 { // the first of the summaries in turn is its own
				t.Errorf("%d of %d blocks were read", r.Read, r.Blocks)
			}
		})
	}
	t.Run("an old block", func(t *testing.T) {
		workUntilKilled(t, dir, 2, "WIDE", 3) // the damage above has removed the summaries
		old := filepath.Join(dir, "jetstream", account, "streams", "WIDE", "msgs", filepath.Base(known(t, dir, "WIDE"))+".blk")
		change(t, old, flip)
		_, r, err := blockfile.Recover(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Lost) != 1 || r.Lost[0].Block != old || r.Read == r.Blocks {
			t.Errorf("told as lost is %+v, %d of %d blocks were read", r.Lost, r.Read, r.Blocks)
		}
	})
}

// known returns a summary of that stream.
func known(t *testing.T, dir, stream string) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "summaries", stream, "*"))
	if err != nil || len(list) == 0 {
		t.Fatal("no block is known", err)
	}
	return list[0]
}
