package backup_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/backup"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// frame is a message on its way between a client and a server.
type frame struct {
	down    bool // from the server
	op      string
	fields  []string // the subject first
	payload []byte
}

func (f *frame) subject() string { return f.fields[0] }
func (f *frame) answers() string { return f.fields[1] } // of one from the client: where the answer goes

// action is what becomes of a frame.
type action int

const (
	pass action = iota
	drop
	cut // the connection ends
)

// link is a connection to a server that loses what a test wants.
type link struct {
	t      testing.TB
	listen net.Listener
	server string

	mu    sync.Mutex
	fault func(*frame) action
}

// connect connects to a server through a link.
func connect(t testing.TB, server string, fault func(*frame) action) *nats.Conn {
	t.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{t: t, listen: listen, server: server, fault: fault}
	var serving sync.WaitGroup
	serving.Go(l.serve)
	t.Cleanup(func() { listen.Close(); serving.Wait() })
	nc, err := nats.Connect("nats://"+listen.Addr().String(), nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1), nats.IgnoreDiscoveredServers())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func (l *link) serve() {
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		client, err := l.listen.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.server)
		if err != nil {
			l.t.Error(err)
			client.Close()
			return
		}
		for down, ends := range map[bool][2]net.Conn{false: {client, server}, true: {server, client}} {
			serving.Go(func() {
				defer client.Close()
				defer server.Close()
				_ = l.copy(ends[1], bufio.NewReader(ends[0]), down) // it ends with the connection
			})
		}
	}
}

// copy copies what one end says to the other.
func (l *link) copy(to io.Writer, from *bufio.Reader, down bool) error {
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return err
		}
		words := strings.Fields(line)
		if !slices.Contains([]string{"PUB", "HPUB", "MSG", "HMSG"}, words[0]) {
			if _, err := io.WriteString(to, line); err != nil {
				return err
			}
			continue
		}
		size, err := strconv.Atoi(words[len(words)-1])
		if err != nil {
			return err
		}
		f := &frame{down: down, op: words[0], fields: words[1:], payload: make([]byte, size+2)}
		if _, err := io.ReadFull(from, f.payload); err != nil {
			return err
		}
		l.mu.Lock()
		what := l.fault(f)
		l.mu.Unlock()
		switch what {
		case drop:
			continue
		case cut:
			return errors.New("cut")
		}
		if _, err := fmt.Fprintf(to, "%s %s\r\n%s", f.op, strings.Join(f.fields, " "), f.payload); err != nil {
			return err
		}
	}
}

// once does something to one frame.
func once(is func(*frame) bool, do func(*frame) action) func(*frame) action {
	done := false
	return func(f *frame) action {
		if done || !is(f) {
			return pass
		}
		done = true
		return do(f)
	}
}

// piece picks a piece of the snapshot of a stream, or with n = -1 its end.
func piece(stream string, n int) func(*frame) bool {
	count := 0
	return func(f *frame) bool {
		if f.down || !strings.HasPrefix(f.subject(), "$JS.SNAPSHOT.RESTORE."+stream+".") {
			return false
		}
		if n < 0 {
			return len(f.payload) == 2
		}
		count++
		return count == n
	}
}

// request picks a request about a stream.
func request(what, stream string) func(*frame) bool {
	return func(f *frame) bool { return !f.down && f.subject() == "$JS.API."+what+"."+stream }
}

// answer picks the answer to the first frame that is picks.
func answer(is func(*frame) bool) func(*frame) bool {
	inbox := ""
	return func(f *frame) bool {
		if inbox == "" && is(f) {
			inbox = f.answers()
		}
		return f.down && f.subject() == inbox
	}
}

func dropIt(*frame) action { return drop }
func cutIt(*frame) action  { return cut }

// unheard sends a frame to a subject that nobody listens to, as when the server that takes the pieces is out
// of reach.
func unheard(f *frame) action {
	f.fields[0] += "x"
	return pass
}

// threeServers starts a cluster of NATS servers, and connects to it.
func threeServers(t testing.TB) (addresses []string, nc *nats.Conn) {
	t.Helper()
	list := bustest.BareServers(t, 3)
	bustest.Until(t, "they have a leader, who knows all", func() bool {
		for _, s := range list {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(list) {
				return true
			}
		}
		return false
	})
	for _, s := range list {
		addresses = append(addresses, s.Addr().String())
	}
	nc, err := nats.Connect(list[0].ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return addresses, nc
}

// large makes a backup whose events take many pieces.
func large(t testing.TB) (dir string, events [][]byte) {
	t.Helper()
	b := bustest.StartStore(t)
	j := alone(t, b)
	noise := rand.New(rand.NewPCG(1, 2))
	for n := range 50 {
		e := newEvent(t, "app/large", n)
		text := make([]byte, 32<<10)
		for i := range text {
			text[i] = byte('0' + noise.IntN(64))
			if text[i] == '\\' {
				text[i] = ' '
			}
		}
		e.Data = fmt.Appendf(nil, "%q", text)
		if _, err := j.Append(inTime(t), e, ""); err != nil {
			t.Fatal(err)
		}
	}
	dir, _ = write(t, b.Conn(), "")
	return dir, stored(t, b.Conn(), "EVENTS")
}

// stored returns all messages of a stream that begins with the first.
func stored(t testing.TB, nc *nats.Conn, stream string) (list [][]byte) {
	t.Helper()
	for {
		m, err := nc.RequestWithContext(inTime(t), "$JS.API.STREAM.MSG.GET."+stream, fmt.Appendf(nil, `{"seq":%d}`, len(list)+1))
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Error   *struct{ Code int }
			Message struct{ Data []byte }
		}
		if err := json.Unmarshal(m.Data, &got); err != nil {
			t.Fatal(err)
		}
		if got.Error != nil {
			return list
		}
		list = append(list, got.Message.Data)
	}
}

// attempt restores a backup for a member at a server, with a fault on the way there.
func attempt(t testing.TB, dir, member, address string, fault func(*frame) action) func() (*backup.Progress, error) {
	t.Helper()
	m, err := backup.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	var at backup.Progress
	ctx, nc := inTime(t), connect(t, address, fault)
	to := backup.Target{Member: member, Members: []string{member}, Copies: 3, Log: bustest.Log(t)}
	return func() (*backup.Progress, error) {
		_, err := backup.Restore(ctx, nc, m, dir, to, &at, func() error { return nil })
		return &at, err
	}
}

// TestARestoreOutlastsALossyConnection: whatever gets lost once between the master and the servers, or
// between these, all is restored.
func TestARestoreOutlastsALossyConnection(t *testing.T) {
	t.Parallel()
	dir, want := large(t)
	addresses, direct := threeServers(t)
	var restoring sync.WaitGroup // all at once, since most of the time each waits
	members := map[string]string{}
	for name, fault := range map[string]func(stream string) func(*frame) action{
		"the answer to the request": func(s string) func(*frame) action { return once(answer(request("STREAM.RESTORE", s)), dropIt) },
		"a piece":                   func(s string) func(*frame) action { return once(piece(s, 3), dropIt) },
		"the answer to a piece":     func(s string) func(*frame) action { return once(answer(piece(s, 3)), dropIt) },
		"the way of a piece":        func(s string) func(*frame) action { return once(piece(s, 3), unheard) },
		"the connection":            func(s string) func(*frame) action { return once(piece(s, 3), cutIt) },
		"the end":                   func(s string) func(*frame) action { return once(piece(s, -1), dropIt) },
		"the way of the end":        func(s string) func(*frame) action { return once(piece(s, -1), unheard) },
		"the answer to the end":     func(s string) func(*frame) action { return once(answer(piece(s, -1)), dropIt) },
		"the restored stream": func(s string) func(*frame) action {
			return once(request("CONSUMER.CREATE", s), func(*frame) action {
				if _, err := direct.RequestWithContext(t.Context(), "$JS.API.STREAM.DELETE."+s, nil); err != nil {
					t.Error(err)
				}
				return pass
			})
		},
		"a piece, and the answer to the removal": func(s string) func(*frame) action {
			first, second := once(piece(s, 3), unheard), once(answer(request("STREAM.DELETE", s)), dropIt)
			return func(f *frame) action { return max(first(f), second(f)) }
		},
	} {
		member := fmt.Sprint("m", len(members)+1)
		members[name] = member
		try := attempt(t, dir, member, addresses[len(members)%len(addresses)], fault("EVENTS_"+member))
		restoring.Go(func() {
			if _, err := try(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	restoring.Wait()
	for name, member := range members {
		if got := stored(t, direct, "EVENTS_"+member); !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%s: there are %d events, want %d", name, len(got), len(want))
		}
	}
}

// TestARestoreIsNotTriedForEver: if no try to restore a stream succeeds, the error names it, and says
// what to do.
func TestARestoreIsNotTriedForEver(t *testing.T) {
	t.Parallel()
	dir, _ := large(t)
	addresses, _ := threeServers(t)
	cache := t.TempDir()
	if _, err := (backup.Request{CacheDir: cache, Source: dir, Member: "m1", Hosted: true, Version: "1", Log: bustest.Log(t)}).Carry(inTime(t)); err != nil {
		t.Fatal(err)
	}
	tries := 0
	begins := request("STREAM.RESTORE", "EVENTS_m1")
	nc := connect(t, addresses[0], func(f *frame) action {
		switch {
		case begins(f):
			tries++
		case piece("EVENTS_m1", 1)(f):
			return unheard(f)
		}
		return pass
	})
	to := backup.Target{Member: "m1", Members: []string{"m1"}, Copies: 3, Hosted: true, Log: bustest.Log(t)}
	_, err := backup.CarryOut(inTime(t), nc, cache, to)
	if err == nil || !strings.Contains(err.Error(), "restore the stream EVENTS_m1: 3 tries") || tries != 3 {
		t.Errorf("after %d tries: %v", tries, err)
	}
	if hint := salt.Hint(err); !strings.Contains(hint, "do not take the stream EVENTS_m1") || !strings.Contains(hint, "start the master again") || !strings.Contains(hint, "'rm "+filepath.Join(cache, "restore.json")+"' withdraws") || !strings.HasSuffix(hint, ": EVENTS_m1") {
		t.Errorf("hint %q", hint)
	}
	var at backup.Progress
	text, err := os.ReadFile(filepath.Join(cache, "restore.json"))
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err != nil || !slices.Contains(at.Begun, "EVENTS_m1") || slices.Contains(at.Done, "EVENTS_m1") {
		t.Errorf("the next start finds %s, %v", text, err)
	}
}

// TestAStreamOfOthersIsNotRemoved: a stream that appears when the restore has begun is not taken for
// what a try has left, neither now nor at the next start.
func TestAStreamOfOthersIsNotRemoved(t *testing.T) {
	t.Parallel()
	dir, _ := large(t)
	addresses, direct := threeServers(t)
	js, err := direct.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	at, err := attempt(t, dir, "m1", addresses[0], once(request("STREAM.RESTORE", "EVENTS_m1"), func(*frame) action {
		if _, err := js.AddStream(&nats.StreamConfig{Name: "EVENTS_m1", Subjects: []string{"other"}, Replicas: 3}); err != nil {
			t.Error(err)
		}
		if _, err := js.Publish("other", []byte("kept")); err != nil {
			t.Error(err)
		}
		return pass
	}))()
	if err == nil || !strings.Contains(err.Error(), "restore the stream EVENTS_m1: ") {
		t.Errorf("restored over it: %v", err)
	}
	if slices.Contains(at.Begun, "EVENTS_m1") {
		t.Errorf("the next start would remove it: %+v", at)
	}
	if got := stored(t, direct, "EVENTS_m1"); len(got) != 1 || string(got[0]) != "kept" {
		t.Errorf("it has %q", got)
	}
}

// TestARefusedEntryIsNotTriedAgain: it would be refused for a minute or more, and all that comes before it be sent each time.
func TestARefusedEntryIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t)
	j := alone(t, b)
	fill(t, j, b, 1)
	dir, _ := write(t, b.Conn(), "")
	addresses, _ := threeServers(t)
	refused := 0
	_, err := attempt(t, dir, "m1", addresses[0], func(f *frame) action {
		switch {
		case f.down && bytes.Contains(f.payload, []byte("expected stream does not match")):
			refused++
		case !f.down && strings.HasPrefix(f.subject(), "$KV.grains.web=2042"):
			f.payload = bytes.Replace(f.payload, []byte("Nats-Expected-Last-Subject-Sequence: 0"), []byte("Nats-Expected-Stream: another_stream_1"), 1)
		}
		return pass
	})()
	if err == nil || !strings.Contains(err.Error(), "restore the stream KV_grains: expected") || refused != 1 {
		t.Errorf("refused %d times: %v", refused, err)
	}
}
