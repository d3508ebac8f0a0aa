package netapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// bare is a server without a master.
func bare(t testing.TB) *Server {
	t.Helper()
	s, err := New(Options{
		Dial: func(context.Context) (*client.Conn, error) { return nil, errors.New("there is no master") }, Log: slog.New(slog.DiscardHandler),
		Clients: clients, Sessions: true, MaxBody: 1 << 20, WebhookURL: "hook", AppPath: "/app", StaticPath: "/static",
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asked returns a request that s is handling, and the response to it.
func asked(s *Server, hr *http.Request) (*request, *httptest.ResponseRecorder) {
	w := httptest.NewRecorder()
	return &request{Request: hr, answer: answer{w: &recorder{ResponseWriter: w}}, principal: principal{s: s, address: netip.IPv6Loopback()}, route: &route{}}, w
}

// isProblem fails if an error does not say that the request is at fault.
func isProblem(t *testing.T, err error) {
	t.Helper()
	var f *failure
	if !errors.As(err, &f) || f.status < 400 || f.status >= 500 {
		t.Errorf("what was sent cannot be read: %v, want a status of the sender's fault", err)
	}
}

// FuzzBody reads any body as each kind, and the chunks in it: what is accepted can be passed
// on, and names an existing client.
func FuzzBody(f *testing.F) {
	const job = `[{"client":"local","tgt":["web1","db1"],"tgt_type":"list","fun":["test.ping","test.arg"],"arg":[[],["a=b",1.5]],"timeout":"5","batch":"10%","metadata":{"a":null}}]`
	for _, kind := range []string{"application/json", "text/plain;charset=utf-8", "application/x-yaml", "application/x-www-form-urlencoded", ""} {
		f.Add(kind, []byte(job))
	}
	f.Add("application/json", []byte(`{"client":"runner_async","fun":"jobs.list_jobs","arg":null,"kwarg":{"x":{"y":[1e999]}},"full_return":"1"}`))
	f.Add("application/json", []byte(`{"client":"local_subset","tgt":"*","fun":"x","subset":"nan","timeout":1e300}`))
	f.Add("application/x-yaml", []byte("- {client: wheel, fun: key.list_all, match: &a [.inf, .nan, 0x10, 2026-11-23, ~]}\n- *a\n"))
	f.Add("application/x-www-form-urlencoded", []byte("client=local&tgt=*&fun=cmd.run&arg=a&arg=b%3Dc&arg=%00&kwarg=x"))
	f.Add("application/x-www-form-urlencoded", []byte("client=ssh&raw_shell=true&tgt=%ff"))
	s := bare(f)
	f.Cleanup(s.Close)
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		hr := httptest.NewRequest(http.MethodPost, "/run", bytes.NewReader(body))
		hr.Header.Set("Content-Type", kind)
		r, _ := asked(s, hr)
		if err := r.read(); err != nil {
			isProblem(t, err)
			return
		}
		maps, err := lowstates(r.body)
		if err != nil {
			isProblem(t, err)
			return
		}
		list, err := r.chunks(maps)
		if err != nil {
			isProblem(t, err)
			return
		}
		for _, c := range list {
			checkChunk(t, c)
		}
	})
}

// TestYAMLMakesNothing: type tags in a body give plain data or are refused.
func TestYAMLMakesNothing(t *testing.T) {
	s := bare(t)
	defer s.Close()
	for _, text := range []string{
		"!!python/object/apply:os.system [touch x]", "a: !!python/name:os.system\n", "a: !!python/object/new:os.system [x]\n", "- !ruby/object:X {}\n",
		"a: !mine x\n", "!<tag:yaml.org,2002:python/module:os> ''", "%TAG !e! tag:yaml.org,2002:python/\n---\n!e!module:os ''",
	} {
		hr := httptest.NewRequest(http.MethodPost, "/run", strings.NewReader(text))
		hr.Header.Set("Content-Type", "application/x-yaml")
		r, _ := asked(s, hr)
		err := r.read()
		if err == nil {
			t.Errorf("%q is read as %#v, want a refusal", text, r.body)
			continue
		}
		isProblem(t, err)
	}
}

func checkChunk(t *testing.T, c chunk) {
	t.Helper()
	isJob, isSSH := strings.HasPrefix(c.client, "local"), c.client == "ssh"
	if !slices.Contains(clients, c.client) || (c.job != nil) != isJob || (c.run != nil) != (!isJob && !isSSH) {
		t.Fatalf("a chunk of the client %q: job %v, run %v", c.client, c.job, c.run)
	}
	var commands []client.Command
	if isJob && c.unknown == "" {
		if commands = c.job.commands; len(commands) == 0 && !c.job.several {
			t.Errorf("a job without a function: %+v", c.job)
		}
		if _, err := value.Encode(c.job.opts.Metadata); err != nil {
			t.Errorf("metadata that was read cannot be sent: %v", err)
		}
	}
	if c.run != nil {
		commands = append(commands, c.run.command)
	}
	for _, command := range commands {
		if _, err := salt.ParseFunction(command.Function); err != nil {
			t.Errorf("the function %q: %v", command.Function, err)
		}
		if _, err := value.Encode([]any{command.Args, command.Kwargs}); err != nil {
			t.Errorf("arguments that were read cannot be sent: %v", err)
		}
	}
}

// FuzzHTTP sends anything to an HTTP server without a login: no request that changes something
// succeeds.
func FuzzHTTP(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: x\r\nAccept: text/html;q=x, */*;q=0.1\r\n\r\n"))
	f.Add([]byte("POST /run HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[{\"cl\r\n0\r\n\r\n"))
	f.Add([]byte("POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 40\r\n\r\n{\"username\":\"a\",\"password\":1,\"eauth\":[]}"))
	f.Add([]byte("POST /hook/../a%2fb HTTP/1.1\r\nHost: x\r\nOrigin: http://y\r\nCookie: session_id=\"\r\n\r\n"))
	f.Add([]byte("GET /events?token=%00&tag=a&since=1h&last_event_id=18446744073709551615 HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("GET /ws/aaaa HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"))
	f.Add([]byte("OPTIONS /minions HTTP/1.0\r\nSec-Fetch-Site: none\r\n\r\n"))
	s := bare(f)
	f.Cleanup(s.Close)
	f.Fuzz(func(t *testing.T, raw []byte) {
		hr, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return
		}
		hr.RemoteAddr = "192.0.2.1:1"
		w := httptest.NewRecorder()
		s.ServeHTTP(w, hr)
		if w.Code < 200 || w.Code > 599 || hr.Method == http.MethodPost && w.Code < 300 && w.Body.String() != `{"return": []}` {
			t.Errorf("%q is answered %d %.200q", raw, w.Code, w.Body)
		}
	})
}

// FuzzListen reads the query of a stream: the position is after what the reader already has.
func FuzzListen(f *testing.F) {
	f.Add("tag=salt/job/&since=90s", "")
	f.Add("durable=x&last_event_id=7", "")
	f.Add("since=2026-11-23T00:00:00Z&match=regex", "18446744073709551615")
	f.Add("since=0&tag=%ff", "007")
	f.Add("since=1h", "m1-0a1b2c3d:4711,m2-9f8e7d6c:12")
	f.Fuzz(func(t *testing.T, query, last string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		hr := httptest.NewRequest(http.MethodGet, "/events", nil)
		hr.URL.RawQuery = values.Encode()
		hr.Header.Set("Last-Event-ID", last)
		r, _ := asked(nil, hr)
		q, _, err := r.listen()
		if err != nil {
			isProblem(t, err)
			return
		}
		if last == "" {
			last = values.Get("last_event_id")
		}
		if has, err := strconv.ParseUint(last, 10, 64); err == nil && q.FromSeq <= has {
			t.Errorf("who has %d is given those from %d on", has, q.FromSeq)
		}
		if q.FromSeq > 0 && !q.Since.IsZero() || q.At != "" && (q.FromSeq > 0 || !q.Since.IsZero()) {
			t.Errorf("%q asks for events from the sequence %d, from %s and after %q", query, q.FromSeq, q.Since, q.At)
		}
	})
}

// FuzzEvents writes an event of the master into a stream: it stays exactly one event there.
func FuzzEvents(f *testing.F) {
	f.Add("salt/job/1/ret/web1", []byte(`{"id":"web1","x":"\n\ndata: y"}`), uint64(1))
	f.Add("a\r\n\r\ndata: {}", []byte("{\n\"a\":\r\n1}"), uint64(0))
	f.Fuzz(func(t *testing.T, tag string, data []byte, seq uint64) {
		if !json.Valid(data) {
			return
		}
		r, w := asked(nil, httptest.NewRequest(http.MethodGet, "/events", nil))
		if err := (&sse{r: r, marked: true}).event(heard{Event: client.Event{Tag: tag, Data: data, Seq: seq}}); err != nil {
			t.Fatal(err)
		}
		text, whole := strings.CutSuffix(w.Body.String(), "\n\n")
		lines := strings.FieldsFunc(text, func(c rune) bool { return c == '\n' || c == '\r' })
		if seq > 0 {
			lines = lines[1:]
		}
		if !whole || len(lines) != 2 || !strings.HasPrefix(lines[0], "tag: ") {
			t.Fatalf("one event is %q", w.Body)
		}
		reported, ok := strings.CutPrefix(lines[1], "data: ")
		v, err := value.Decode([]byte(reported))
		if m, is := v.(map[string]any); !ok || err != nil || !is || len(m) != 2 {
			t.Errorf("the data of one event are %q: %v", reported, err)
		}
	})
}

// TestJobIDsAreText: a job id that a client writes as a number is text, as Salt sends it.
func TestJobIDsAreText(t *testing.T) {
	s := bare(t)
	defer s.Close()
	body, err := value.Decode([]byte(`{"client":"local","tgt":"*","fun":"test.arg","arg":[20240101000000000000],"kwarg":{"jid":20240101000000000000}}`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.chunk(body.(map[string]any), false)
	if err != nil {
		t.Fatal(err)
	}
	const jid = "20240101000000000000"
	if got := c.job.commands[0]; got.Args[0] != jid || got.Kwargs["jid"] != jid {
		t.Errorf("read as %v %v, want text", got.Args, got.Kwargs)
	}
}
