package netapi

import (
	"bufio"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/authz/authztest"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/output"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// withMaster returns a server whose master accepts every login and answers by handle otherwise, by
// the name of the handler.
func withMaster(t *testing.T, handle map[string]func(context.Context, *rpc.Request) error) *Server {
	t.Helper()
	b := bustest.Start(t)
	allow := func(name string, check bus.Check, h func(context.Context, *rpc.Request) error) {
		b.Server.Handle(name, func(ctx context.Context, r *rpc.Request) error {
			if err := r.Decide(authztest.Allow(string(check))); err != nil {
				return err
			}
			return h(ctx, r)
		})
	}
	allow("login", bus.Proof, func(ctx context.Context, r *rpc.Request) error {
		var q protocol.Login
		if err := r.Decode(&q); err != nil {
			return err
		}
		return r.Last(ctx, protocol.LoggedIn{Backend: q.Backend, User: q.User})
	})
	for name, h := range handle {
		check := bus.Published
		if strings.HasPrefix(name, "user") {
			check = bus.EventGrant
		}
		allow(name, check, h)
	}
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	o := unreachable()
	o.Clients = clients
	o.Dial = func(ctx context.Context) (*client.Conn, error) { return client.Connect(ctx, b.Socket) }
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// asFred runs chunks as a user of that name.
func asFred(s *Server, path, chunks string, accept ...string) *httptest.ResponseRecorder {
	chunks = strings.ReplaceAll(chunks, `{"client"`, `{"eauth":"file","username":"fred","password":"x","client"`)
	hr := httptest.NewRequest("POST", path, strings.NewReader(chunks))
	hr.Header.Set("Content-Type", "application/json")
	hr.Header.Set("Accept", "application/json")
	for _, kind := range accept {
		hr.Header.Set("Accept", kind)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, hr)
	return w
}

// expect fails unless the answer has the status and contains a text.
func expect(t *testing.T, what string, w *httptest.ResponseRecorder, status int, text string) {
	t.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), text) {
		t.Errorf("%s: %d %.300s, want %d with %q", what, w.Code, w.Body, status, text)
	}
}

// TestIndentsOfYAMLAreBounded: what becomes large in YAML is counted as YAML.
func TestIndentsOfYAMLAreBounded(t *testing.T) {
	returned := ""
	s := withMaster(t, map[string]func(context.Context, *rpc.Request) error{
		"run": func(ctx context.Context, r *rpc.Request) error {
			if err := r.SendRaw(ctx, []byte(`{"jid":"20260101000000000002","tag":"salt/run/20260101000000000002"}`)); err != nil {
				return err
			}
			return r.SendRaw(ctx, []byte(`{"return":`+returned+`,"success":true,"retcode":0}`))
		},
	})
	yaml, err := output.New("yaml", output.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const limit = 1 << 20
	s.memory.answers = rpc.NewShares(limit, limit)
	const runner = `[{"client":"runner","fun":"test.arg"}]`
	for name, text := range map[string]string{
		"entries": strings.Repeat(`0,`, 5_000) + "0", "words": `"` + strings.Repeat("a b ", 2_000) + `"`, "lines": `"` + strings.Repeat(`x\n`, 5_000) + `"`,
		"maps": strings.TrimSuffix(strings.Repeat(`{"a":{"b":[]}},`, 2_000), ","), "separators": `"` + strings.Repeat("x\u2028y\u0085", 5_000) + `"`,
		"escapes": `"` + strings.Repeat("\U0001F600\u00e9\\u0000", 5_000) + `"`, "bytes": `"` + strings.Repeat("\xff", 50_000) + `"`,
	} {
		returned = strings.Repeat("[", 90) + text + strings.Repeat("]", 90)
		v, err := value.Decode([]byte(returned))
		if err != nil {
			t.Fatal(err)
		}
		written, err := yaml.Format(v)
		if err != nil {
			t.Fatal(err)
		}
		if most := inYAML([]byte(returned)); len(written) > most {
			t.Errorf("%s: %d bytes of YAML, at most %d are expected", name, len(written), most)
		}
	}
	returned = strings.Repeat("[", 90) + strings.Repeat("0,", 10_000) + "0" + strings.Repeat("]", 90)
	expect(t, "as JSON", asFred(s, "/run", runner), http.StatusOK, "0,0")
	expect(t, "as YAML", asFred(s, "/run", runner, "application/x-yaml"), http.StatusOK, "is not read")
	args := strings.Replace(runner, "}", `,"full_return":true,"arg":[`+returned+`]}`, 1)
	returned = "0"
	expect(t, "arguments as JSON", asFred(s, "/run", args), http.StatusOK, "0,0")
	expect(t, "arguments as YAML", asFred(s, "/run", args, "application/x-yaml"), http.StatusServiceUnavailable, "too much memory")
	if !s.memory.answers.Take("file:fred", limit) {
		t.Error("the memory is not free again")
	}
}

// TestAPositionInManyJournalsFitsIntoAHeader: a browser sends the id of the last event by itself when it reconnects,
// also if it names all the journals that it may name.
func TestAPositionInManyJournalsFitsIntoAHeader(t *testing.T) {
	s := withMaster(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l, nil) }()
	last := "a:1," + strings.Repeat("b", event.MaxPosition-len("a:1,:1")) + ":1"
	if _, err := event.ReadPosition(last); err != nil || len(last) != event.MaxPosition {
		t.Fatalf("%d bytes are no position: %v", len(last), err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+l.Addr().String()+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Auth-Token", strings.Repeat("a", 64))
	req.Header.Set("Last-Event-ID", last)
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("who has no token and names many journals gets %s", res.Status)
	}
	cancel()
	deadline.Receive(t, ended, "the server")
}

// TestStreamsContinueInAllJournals: in a cluster, the id of an event is the position in the journals of
// all members. Whoever continues after it hears all of them again, and what is confirmed for a name is
// that position, too.
func TestStreamsContinueInAllJournals(t *testing.T) {
	asked, confirmed := make(chan protocol.Listen, 1), make(chan protocol.Confirm, 1)
	s := withMaster(t, map[string]func(context.Context, *rpc.Request) error{
		"userListen": func(ctx context.Context, r *rpc.Request) error {
			r.Waits()
			var q protocol.Listen
			if err := r.Decode(&q); err != nil {
				return err
			}
			select {
			case asked <- q:
			default: // nobody waits for the question of a feed that begins again
			}
			if err := r.Send(ctx, protocol.Ready{Ready: true, Start: 1001, Last: 1000, Journal: "m1", At: event.Position{"m2": 50_000, "m3": 1}}); err != nil {
				return err
			}
			if err := r.SendRaw(ctx, []byte(`{"tag":"t/1","from":"","data":{},"master":"m2","seq":50000}`+"\n"+`{"tag":"t/2","from":"","data":{},"seq":1001}`)); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		},
		"userConfirm": func(ctx context.Context, r *rpc.Request) error {
			var q protocol.Confirm
			if err := r.Decode(&q); err != nil {
				return err
			}
			confirmed <- q
			return nil
		},
	})
	const first, second = "m1:1000,m2:50000,m3:0", "m1:1001,m2:50000,m3:0"
	for _, c := range []struct {
		query, last string
		at          event.Position
		resume      bool
	}{
		{query: "tag=t/"},
		{query: "since=1h"},
		{query: "since=1h", last: first, at: event.Position{"m1": 1001, "m2": 50_001, "m3": 1}},
		{query: "durable=x", last: first, at: event.Position{"m1": 1001, "m2": 50_001, "m3": 1}, resume: true},
	} {
		session, err := s.sessions.open(client.Session{Token: strings.Repeat("a", 64), Backend: "file", User: "fred", Expires: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		hr := httptest.NewRequestWithContext(ctx, "GET", "/events?"+c.query, nil)
		hr.Header.Set("X-Auth-Token", session.id)
		hr.Header.Set("Last-Event-ID", c.last)
		read, write := io.Pipe()
		go func() {
			s.ServeHTTP(&piped{httptest.NewRecorder(), write}, hr)
			write.Close()
		}()
		q := <-asked
		if !q.Members || !maps.Equal(q.At, c.at) || q.Resume != c.resume || q.FromSeq != 0 || c.last != "" && !q.Since.IsZero() {
			t.Errorf("%s after %q asks for %+v", c.query, c.last, q)
		}
		var ids []string
		for lines := bufio.NewScanner(read); len(ids) < 2 && lines.Scan(); {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				ids = append(ids, id)
			}
		}
		if want := []string{first, second}; !slices.Equal(ids, want) {
			t.Errorf("%s after %q: the ids are %q, want %q", c.query, c.last, ids, want)
		}
		if strings.HasPrefix(c.query, "durable") {
			if got := <-confirmed; got.Durable != "x" || got.Seq != 1000 || !maps.Equal(got.At, event.Position{"m2": 50_000, "m3": 0}) {
				t.Errorf("confirmed is %+v, want %s", got, first)
			}
		}
		read.Close()
		cancel()
	}
}

// piped is a response whose body is read while it is written.
type piped struct {
	*httptest.ResponseRecorder
	body io.Writer
}

func (p *piped) Write(b []byte) (int, error) { return p.body.Write(b) }

// TestAnUncheckedChunkRunsNothing: if the master cannot check a chunk of a list, no chunk is run. What
// only cannot be done is reported when it is run.
func TestAnUncheckedChunkRunsNothing(t *testing.T) {
	var ran atomic.Int32
	var failure atomic.Pointer[rpc.Error]
	s := withMaster(t, map[string]func(context.Context, *rpc.Request) error{
		"publish": func(ctx context.Context, r *rpc.Request) error {
			var q protocol.Publish
			if err := r.Decode(&q); err != nil {
				return err
			}
			if err := failure.Load(); err != nil && q.Target == "second" {
				return err
			}
			if !q.Preview {
				ran.Add(1)
			}
			return r.SendRaw(ctx, []byte(`{"jid":"20260101000000000001","minions":[]}`))
		},
	})
	const chunks = `[{"client":"local","tgt":"first","fun":"test.ping"},{"client":"local","tgt":"second","fun":"test.ping"}]`
	for _, c := range []struct {
		code   rpc.Code
		status int
		ran    int32
	}{
		{rpc.Busy, http.StatusServiceUnavailable, 0}, {rpc.Unavailable, http.StatusServiceUnavailable, 0},
		{rpc.Internal, http.StatusInternalServerError, 0}, {rpc.Denied, http.StatusUnauthorized, 0},
		{rpc.NoMatch, http.StatusOK, 1}, {rpc.Usage, http.StatusOK, 1}, {rpc.NotFound, http.StatusBadRequest, 1},
	} {
		ran.Store(0)
		failure.Store(rpc.Errorf(c.code, "for a test"))
		expect(t, string(c.code), asFred(s, "/run", chunks), c.status, "")
		if n := ran.Load(); n != c.ran {
			t.Errorf("%s: %d chunks were run, want %d", c.code, n, c.ran)
		}
	}
}

// TestJobsTakeNoPlaceOfLogins: requests that have logged in by password, and wait for their jobs, leave
// all places to those who log in.
func TestJobsTakeNoPlaceOfLogins(t *testing.T) {
	const jobs = 2*maxLogins/4 + 4 // more than the places of one address, in either form
	begun, end := make(chan bool, jobs), make(chan bool)
	s := withMaster(t, map[string]func(context.Context, *rpc.Request) error{
		"publish": func(ctx context.Context, r *rpc.Request) error {
			r.Waits()
			if err := r.SendRaw(ctx, []byte(`{"jid":"20260101000000000001","minions":["web1"]}`)); err != nil {
				return err
			}
			begun <- true
			select {
			case <-end:
			case <-ctx.Done():
			}
			return nil
		},
	})
	var all sync.WaitGroup
	for i := range jobs {
		path := "/run"
		if i%2 == 0 {
			path = "/run?follow"
		}
		ended := make(chan *httptest.ResponseRecorder, 1)
		all.Go(func() { ended <- asFred(s, path, `{"client":"local","tgt":"*","fun":"test.sleep"}`) })
		select {
		case <-begun:
		case w := <-ended:
			t.Fatalf("job %d: %d %.500s", i, w.Code, w.Body)
		}
	}
	placed := func() int {
		s.pool.mu.Lock()
		defer s.pool.mu.Unlock()
		return s.pool.owned["file:fred"]
	}
	const address = "192.0.2.1" // of each request of httptest
	for range maxLogins / 4 {
		if _, err := s.limits.login(netip.MustParseAddr(address)); err != nil {
			t.Fatalf("%d jobs leave no place for a login: %v", jobs, err)
		}
	}
	if _, err := s.limits.login(netip.MustParseAddr(address)); err == nil {
		t.Error("an address has more logins than it may")
	}
	if n := placed(); n != jobs {
		t.Errorf("%d connections have a place, want %d", n, jobs)
	}
	close(end)
	deadline.Call(t, all.Wait, "the jobs")
	if n := placed(); n != 0 {
		t.Errorf("%d connections have a place after their jobs", n)
	}
}

// TestAnswersAreBounded: what minions and runners return is decoded only as far as there is memory
// for it. The rest counts as failed, with the reason, and the memory is free when the answers are sent.
func TestAnswersAreBounded(t *testing.T) {
	parts := "[" + strings.Repeat(`{"":0},`, 3<<20/7) + "0]"
	long := `"` + strings.Repeat("x", 1<<20) + `"`
	returned := ""
	s := withMaster(t, map[string]func(context.Context, *rpc.Request) error{
		"publish": func(ctx context.Context, r *rpc.Request) error {
			for _, line := range []string{
				`{"jid":"20260101000000000001","minions":["web1"]}`, `{"id":"web1","state":"running","return":null}`,
				`{"id":"web1","return":` + returned + `,"retcode":0,"success":true,"state":"done"}`,
			} {
				if err := r.SendRaw(ctx, []byte(line)); err != nil {
					return err
				}
			}
			return nil
		},
		"run": func(ctx context.Context, r *rpc.Request) error {
			if err := r.SendRaw(ctx, []byte(`{"jid":"20260101000000000002","tag":"salt/run/20260101000000000002"}`)); err != nil {
				return err
			}
			return r.SendRaw(ctx, []byte(`{"return":`+returned+`,"success":true,"retcode":0}`))
		},
	})
	local, runner := `{"client":"local","tgt":"*","fun":"test.ping","full_return":true}`, `{"client":"runner","fun":"test.arg"}`
	const limit = 2<<20 + 64<<10
	free := func(who string) {
		t.Helper()
		if !s.memory.answers.Take(who, limit) {
			t.Fatalf("the memory of %s is not free again", who)
		}
		s.memory.answers.Give(who, limit)
	}
	s.memory.answers = rpc.NewShares(limit, limit)
	for _, c := range []struct{ what, path, chunks, text string }{
		{"a job", "/run", "[" + local + "]", `"retcode":1`},
		{"a runner", "/run", "[" + runner + "]", "the result is not read"},
		{"progress", "/run?follow", local, `"success":false`},
	} {
		w := func(value string) *httptest.ResponseRecorder {
			returned = value
			w := asFred(s, c.path, c.chunks)
			free("file:fred")
			return w
		}
		expect(t, c.what+" with a small return", w(`"small"`), http.StatusOK, `"small"`)
		expect(t, c.what+" with a long return", w(long), http.StatusOK, "xxxx")
		many := w(parts)
		expect(t, c.what+" with many parts", many, http.StatusOK, "is not read: it has too many parts")
		expect(t, c.what+" with many parts", many, http.StatusOK, c.text)
		expect(t, c.what+" with a return beyond the memory of a login", w(strings.Replace(long, "x", strings.Repeat("y", 64<<10), 1)), http.StatusOK, "is not read: "+errAnswers.Error())
	}
	returned = long
	expect(t, "of two returns", asFred(s, "/run", "["+local+","+local+"]"), http.StatusOK, "is not read: "+errAnswers.Error())
	free("file:fred")
	s.memory.answers.Take("file:other", limit)
	expect(t, "without memory", asFred(s, "/run", "["+local+"]"), http.StatusServiceUnavailable, "too much memory")
}
