package netapi_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// open are the settings of a server on which everything is allowed.
const open = "netapi_enable_clients: [local, local_async, local_batch, local_subset, runner, runner_async, wheel, wheel_async]\n" +
	"rest_cherrypy:\n  port: <port>\n  host: 127.0.0.1\n  disable_ssl: true\n"

// stream is an event stream that is read line by line.
type stream struct {
	t     testing.TB
	res   *http.Response
	lines chan string // closed at its end
}

// listen opens an event stream and waits until it is open.
func listen(t testing.TB, url string, headers ...string) *stream {
	t.Helper()
	s := tryListen(t, url, headers...)
	if s.res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(s.res.Body)
		t.Fatalf("%s: %s\n%s", url, s.res.Status, b)
	}
	if line := s.next(); line != "retry: 400" {
		t.Fatalf("the stream begins with %q", line)
	}
	return s
}

func tryListen(t testing.TB, url string, headers ...string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{t: t, res: res, lines: make(chan string, 1000)}
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode == http.StatusOK {
		go func() {
			defer close(s.lines)
			for scan := bufio.NewScanner(res.Body); scan.Scan(); {
				s.lines <- scan.Text()
			}
		}()
	}
	return s
}

// next returns the next line, "" at the end of the stream.
func (s *stream) next() string {
	s.t.Helper()
	select {
	case line := <-s.lines:
		return line
	case <-time.After(time.Minute):
		s.t.Fatal("no line came")
		return ""
	}
}

// until returns the lines up to one that matches.
func (s *stream) until(pattern string) []string {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	var list []string
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				s.t.Fatalf("the stream ended before %s:\n%s", pattern, strings.Join(list, "\n"))
			}
			if list = append(list, line); re.MatchString(line) {
				return list
			}
		case <-time.After(time.Minute):
			s.t.Fatalf("in vain for %s:\n%s", pattern, strings.Join(list, "\n"))
		}
	}
}

// ends waits for the end of the stream.
func (s *stream) ends(within time.Duration) {
	s.t.Helper()
	late := time.After(within)
	for {
		select {
		case _, ok := <-s.lines:
			if !ok {
				return
			}
		case <-late:
			s.t.Fatalf("the stream did not end within %s", within)
		}
	}
}

// TestStreams: events are received as Salt's clients expect them.
func TestStreams(t *testing.T) {
	s := start(t)
	a := s.api("A", open)
	admin := login(t, a, "admin", "adminpw")
	_, body := post(t, "http://"+a+"/token", "", `{"username":"admin","password":"adminpw","eauth":"file"}`)
	token := regexp.MustCompile(`[0-9a-f]{64,}`).FindString(body)
	hook := func(name string) {
		t.Helper()
		if res, text := post(t, "http://"+a+"/hook/"+name, admin, `{"a":1}`, "X-Secret", "hush"); res.StatusCode != http.StatusOK {
			t.Fatalf("hook: %s\n%s", res.Status, text)
		}
	}

	for name, how := range map[string]struct {
		query   string
		headers []string
	}{
		"cookie":               {"", []string{"Cookie", "session_id=" + admin}},
		"header":               {"", []string{"X-Auth-Token", admin}},
		"token":                {"?token=" + admin, nil},
		"token of the master":  {"?token=" + token, nil},
		"salt_token":           {"?salt_token=" + admin, nil},
		"salt_token as it was": {"?salt_token=" + token, nil},
	} {
		t.Run(name, func(t *testing.T) {
			st := listen(t, "http://"+a+"/events"+how.query, how.headers...)
			if got := st.res.Header.Get("Content-Type"); got != "text/event-stream;charset=utf-8" {
				t.Errorf("Content-Type is %q", got)
			}
			hook("sse/one")
			st.until("^tag: salt/netapi/hook/sse/one$") // events from the start of the system may come before it
			data := st.next()
			for _, want := range []string{`data: {"data": {`, `"body":"{\"a\":1}"`, `"post":{"a":1}`, `"Remote-Addr":"127.0.0.1"`, `"tag": "salt/netapi/hook/sse/one"}`} {
				if !strings.Contains(data, want) {
					t.Errorf("the event has no %s: %s", want, data)
				}
			}
			if strings.Contains(data, "hush") || strings.Contains(data, admin) {
				t.Errorf("the event has a header of the caller: %s", data)
			}
			if end := st.next(); end != "" {
				t.Errorf("behind the event is %q", end)
			}
			post(t, "http://"+a+"/", admin, `{"client":"local","tgt":"web1","fun":"test.ping"}`)
			st.until(`^tag: salt/job/\d{20}/new$`)
			st.until(`^tag: salt/job/\d{20}/ret/web1$`)
		})
	}

	t.Run("event_acl decides", func(t *testing.T) {
		limited := login(t, a, "limited", "limitedpw")
		st := tryListen(t, "http://"+a+"/events?tag=own/", "X-Auth-Token", limited)
		if st.res.StatusCode != http.StatusOK {
			t.Fatalf("own tags: %s", st.res.Status)
		}
		other := login(t, a, "other", "otherpw")
		if st := tryListen(t, "http://"+a+"/events", "X-Auth-Token", other); st.res.StatusCode != http.StatusUnauthorized {
			t.Errorf("who may hear nothing gets %s", st.res.Status)
		}
		all := listen(t, "http://"+a+"/events", "X-Auth-Token", limited)
		hook("unheard")
		s.tool("salt-event", "fire", "own/thing", "{}")
		if line := all.next(); line != "tag: own/thing" {
			t.Errorf("limited hears %q", line)
		}
	})

	t.Run("resumed", func(t *testing.T) {
		st := listen(t, "http://"+a+"/events?tag=salt/netapi/hook/again", "X-Auth-Token", admin)
		hook("again/1")
		id := strings.TrimPrefix(st.until(`^id: \d+$`)[0], "id: ")
		st.until(`^tag: salt/netapi/hook/again/1$`)
		st.res.Body.Close()
		hook("again/2")
		st = listen(t, "http://"+a+"/events?tag=salt/netapi/hook/again", "X-Auth-Token", admin, "Last-Event-ID", id)
		if got := st.until(`^tag: `); got[len(got)-1] != "tag: salt/netapi/hook/again/2" {
			t.Errorf("after %s comes %q", id, got)
		}
		st = listen(t, "http://"+a+"/events?since=1h&tag=salt/netapi/hook/again", "X-Auth-Token", admin)
		st.until(`^tag: salt/netapi/hook/again/1$`)
		st.until(`^tag: salt/netapi/hook/again/2$`)
	})

	t.Run("durable", func(t *testing.T) {
		url := "http://" + a + "/events?durable=gui&tag=salt/netapi/hook/kept"
		st := listen(t, url, "X-Auth-Token", admin)
		hook("kept/1")
		hook("kept/2")
		st.until(`^tag: salt/netapi/hook/kept/2$`)
		st.res.Body.Close()
		hook("kept/3")
		var again *stream
		s.await("the position to be free", func() bool {
			again = tryListen(t, url, "X-Auth-Token", admin)
			return again.res.StatusCode == http.StatusOK
		})
		again.until(`^tag: salt/netapi/hook/kept/3$`)
	})

	t.Run("websocket", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, path := range []string{"/ws/" + admin, "/ws"} {
			c, _, err := websocket.Dial(ctx, "ws://"+a+path, &websocket.DialOptions{HTTPHeader: http.Header{"Cookie": {"session_id=" + admin}}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.CloseNow()
			if err := c.Write(ctx, websocket.MessageText, []byte("websocket client ready")); err != nil {
				t.Fatal(err)
			}
			stop := make(chan struct{})
			go func() { // until it receives one: the protocol does not say when it has begun
				for {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Millisecond):
						hook("ws")
					}
				}
			}()
			_, b, err := c.Read(ctx)
			close(stop)
			if err != nil || !strings.HasPrefix(string(b), "data: {") || !strings.HasSuffix(string(b), "\n\n") {
				t.Errorf("%s: %q, %v", path, b, err)
			}
		}
		for _, path := range []string{"/ws/" + token, "/ws/" + strings.Repeat("0", 40), "/ws"} {
			if _, res, err := websocket.Dial(ctx, "ws://"+a+path, nil); err == nil || res == nil || res.StatusCode != http.StatusUnauthorized {
				t.Errorf("%.8s is let in: %v", path, err)
			}
		}
		if _, res, err := websocket.Dial(ctx, "ws://"+a+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Cookie": {"session_id=" + admin}, "Origin": {"http://evil.example"}}}); err == nil || res == nil || res.StatusCode != http.StatusForbidden {
			t.Errorf("another site is let in: %v", err)
		}
	})

	t.Run("a job as it runs", func(t *testing.T) {
		res, text := post(t, "http://"+a+"/?follow", admin, `{"client":"local","tgt":"web1","fun":"cmd.run","arg":["echo one; echo two >&2"]}`)
		if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/x-ndjson;charset=utf-8" {
			t.Fatalf("%s\n%s", res.Status, text)
		}
		for _, want := range []string{`"event":"start"`, `"event":"output"`, `"text":"one`, `"event":"return"`, `"done":1,"event":"end"`} {
			if !strings.Contains(text, want) {
				t.Errorf("there is no %s:\n%s", want, text)
			}
		}
		res, text = post(t, "http://"+a+"/run?follow", "", `{"client":"local","tgt":"*","fun":"test.ping","eauth":"file","username":"other","password":"otherpw"}`, "Accept", "text/event-stream")
		if res.StatusCode != http.StatusOK || strings.Count(text, "event: return\n") != 2 {
			t.Errorf("%s\n%s", res.Status, text)
		}
		res, _ = post(t, "http://"+a+"/run?follow", "", `{"client":"local","tgt":"*","fun":"cmd.run","arg":["id"],"eauth":"file","username":"other","password":"otherpw"}`)
		if res.StatusCode != http.StatusUnauthorized {
			t.Errorf("what is refused: %s", res.Status)
		}
	})

	t.Run("they end with their login", func(t *testing.T) {
		short := login(t, a, "shorty", "shortpw", `,"token_expire":3`)
		listen(t, "http://"+a+"/events", "X-Auth-Token", short).ends(15 * time.Second)

		out := login(t, a, "admin", "adminpw")
		st := listen(t, "http://"+a+"/events", "X-Auth-Token", out)
		post(t, "http://"+a+"/logout", out, "{}")
		st.ends(10 * time.Second)

		out = login(t, a, "admin", "adminpw")
		st = listen(t, "http://"+a+"/events", "X-Auth-Token", out)
		for _, id := range regexp.MustCompile(`\b[0-9a-f]{16}\b`).FindAllString(s.tool("salt-run", "auth.list_tokens", "--out", "json"), -1) {
			s.tool("salt-run", "auth.del_token", id)
		}
		st.ends(15 * time.Second)
		if res, _ := post(t, "http://"+a+"/", out, `{"client":"local","tgt":"*","fun":"test.ping"}`); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("a session whose token is revoked: %s", res.Status)
		}

		admin = login(t, a, "admin", "adminpw")
		st = listen(t, "http://"+a+"/events", "X-Auth-Token", admin)
		s.write("users", strings.Replace(users, "adminpw", "another", 1))
		st.ends(30 * time.Second)
		if res, _ := post(t, "http://"+a+"/", admin, `{"client":"local","tgt":"*","fun":"test.ping"}`); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("a session whose password was changed: %s", res.Status)
		}
	})
	if text := string(s.read("A.out")) + string(s.read("A.log")); strings.Contains(text, admin) || strings.Contains(text, token) || strings.Contains(text, "hush") {
		t.Error("the log has a token or a header of a caller")
	}
}
