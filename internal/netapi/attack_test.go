package netapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/netapi"
	"github.com/brinebus/brine/test/deadline"
)

// TestAttacks: what attackers without permission try from outside.
func TestAttacks(t *testing.T) {
	s := start(t)
	s.write("gui/static/a.css", "a {}\n")
	s.write("gui/static/.hidden", "hidden\n")
	s.write("gui/secret", "root:secret\n")
	if err := errors.Join(os.Symlink("../secret", s.root+"/gui/static/out.css"), syscall.Mkfifo(s.root+"/gui/static/pipe.css", 0o644)); err != nil {
		t.Fatal(err)
	}
	s.write("gui/index.html", "<title>page</title>\n")
	a := s.api("A", open+"  app: "+s.root+"/gui/index.html\n  static: "+s.root+"/gui/static\n")
	admin, other := login(t, a, "admin", "adminpw"), login(t, a, "other", "otherpw")
	url := "http://" + a
	const ping = `[{"client":"local","tgt":"*","fun":"test.ping"}]`
	touch := func(name string) string {
		return fmt.Sprintf(`{"client":"local","tgt":"web1","fun":"cmd.run","arg":["touch %s/%s"]}`, s.root, name)
	}
	absent := func(t *testing.T, names ...string) {
		t.Helper()
		for _, name := range names {
			if len(s.read(name)) > 0 || s.there(name) {
				t.Errorf("%s is there: what was refused has run", name)
			}
		}
	}
	refused := func(t *testing.T, what string, res *http.Response, want int) {
		t.Helper()
		if res.StatusCode != want {
			t.Errorf("%s: %s, want %d", what, res.Status, want)
		}
	}

	t.Run("no session, and another's", func(t *testing.T) {
		for _, path := range []string{"/", "/minions", "/jobs", "/hook/x"} {
			res, _ := post(t, url+path, "", touch("nosession"))
			refused(t, path, res, http.StatusUnauthorized)
		}
		for _, path := range []string{"/minions", "/jobs", "/keys", "/events", "/stats", "/metrics"} {
			res, _ := send(t, "GET", url+path, strings.Repeat("a", 40), "")
			refused(t, path, res, http.StatusUnauthorized)
		}
		res, _ := post(t, url+"/", other, touch("another"))
		refused(t, "of another", res, http.StatusUnauthorized)
		res, _ = post(t, url+"/logout", strings.Repeat("b", 40), "{}")
		refused(t, "logout of another", res, http.StatusUnauthorized)
		_, body := post(t, url+"/token", "", `{"username":"admin","password":"adminpw","eauth":"file"}`)
		token := regexp.MustCompile(`[0-9a-f]{64,}`).FindString(body)
		res, _ = post(t, url+"/", token, touch("nosession"))
		refused(t, "a token of the master as a session", res, http.StatusUnauthorized)
		res, _ = post(t, url+"/run", "", strings.Replace(touch("nosession"), "{", `{"token":"`+admin+`",`, 1))
		refused(t, "a session as a token of the master", res, http.StatusUnauthorized)
		res, _ = post(t, url+"/?token="+admin, "", touch("nosession"))
		refused(t, "a session in the query", res, http.StatusUnauthorized)
		if res, _ = send(t, "GET", url+"/minions?token="+admin, "", ""); res.StatusCode == http.StatusOK {
			t.Error("a session in the query reads minions")
		}
		absent(t, "nosession", "another")
	})

	t.Run("a refused chunk behind allowed ones", func(t *testing.T) {
		list := "[" + strings.TrimSuffix(strings.TrimPrefix(ping, "["), "]") + "," + touch("list") + "]"
		before := strings.Count(s.tool("salt-run", "jobs.list_jobs", "--out", "json"), `"Function"`)
		res, _ := post(t, url+"/", other, list)
		refused(t, "the list", res, http.StatusUnauthorized)
		res, _ = post(t, url+"/run", "", strings.ReplaceAll(list, `{"client"`, `{"eauth":"file","username":"other","password":"otherpw","client"`))
		refused(t, "the list of run", res, http.StatusUnauthorized)
		res, _ = post(t, url+"/", other, strings.Replace(list, `"local","tgt":"web1","fun":"cmd.run"`, `"nope","fun":"x"`, 1))
		refused(t, "a client that is none", res, http.StatusBadRequest)
		if after := strings.Count(s.tool("salt-run", "jobs.list_jobs", "--out", "json"), `"Function"`); after != before {
			t.Errorf("%d jobs were started by what was refused", after-before)
		}
		absent(t, "list")
	})

	t.Run("other sites", func(t *testing.T) {
		cookie := []string{"Cookie", "session_id=" + admin, "X-Auth-Token", ""}
		for _, site := range [][]string{{"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "null"}} {
			for _, kind := range []string{"text/plain", "application/json", "application/x-www-form-urlencoded"} {
				res, _ := send(t, "POST", url+"/", "", touch("site"), append(append([]string{"Content-Type", kind}, cookie...), site...)...)
				refused(t, site[1]+" "+kind, res, http.StatusForbidden)
			}
			res, _ := send(t, "GET", url+"/minions", "", "", append(cookie, site...)...)
			refused(t, site[1]+" reads", res, http.StatusForbidden)
			res, _ = send(t, "POST", url+"/login", "", `{"username":"other","password":"otherpw","eauth":"file"}`, append([]string{"Content-Type", "text/plain"}, site...)...)
			refused(t, site[1]+" logs somebody in", res, http.StatusForbidden)
			if res.Header.Get("Set-Cookie") != "" {
				t.Error("a cookie is set for another site")
			}
		}
		absent(t, "site")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, path := range []string{"/ws", "/ws/" + admin} {
			if _, res, err := websocket.Dial(ctx, "ws://"+a+path, &websocket.DialOptions{HTTPHeader: http.Header{"Cookie": {"session_id=" + admin}, "Origin": {"http://evil.example"}}}); err == nil || res == nil || res.StatusCode != http.StatusForbidden {
				t.Errorf("another site opens %.4s: %v", path, err)
			}
		}
		res, _ := send(t, "POST", url+"/", "", ping, append([]string{"Content-Type", "application/json", "Origin", url}, cookie...)...)
		refused(t, "the own page", res, http.StatusOK)
		res, _ = post(t, url+"/login", "", `{"username":"other","password":"otherpw","eauth":"file"}`)
		if c := res.Header.Get("Set-Cookie"); !strings.Contains(c, "HttpOnly") || !strings.Contains(c, "SameSite=Strict") {
			t.Errorf("the cookie is %q", c)
		}
		for _, name := range []string{"X-Content-Type-Options", "X-Frame-Options", "Content-Security-Policy", "Referrer-Policy"} {
			if res.Header.Get(name) == "" {
				t.Errorf("there is no header %s", name)
			}
		}
	})

	t.Run("paths below static", func(t *testing.T) {
		if res, text := send(t, "GET", url+"/static/a.css", "", "", "Accept", "*/*"); res.StatusCode != http.StatusOK || text != "a {}\n" {
			t.Errorf("the file itself: %s %q", res.Status, text)
		}
		for _, path := range []string{"/static/../secret", "/static/%2e%2e/secret", "/static/..%2fsecret", "/static/..%5csecret", "/static//../secret", "/static/%2e%2e%2fsecret", "/static/a.css/../../secret", "/static/.hidden", "/static/", "/static/a.css%00", "/static/....//secret", "/static/out.css", "/static/pipe.css", "/static/.", "/static/./../secret", "/static" + s.root + "/gui/secret"} {
			line, body := raw(t, a, "GET "+path+" HTTP/1.1\r\nHost: "+a+"\r\nAccept: */*\r\nConnection: close\r\n\r\n")
			if strings.Contains(body, "secret") && strings.Contains(body, "root:") || strings.Contains(body, "hidden\n") || strings.Contains(line, " 200 ") {
				t.Errorf("%s: %s %q", path, line, body)
			}
		}
	})

	t.Run("a session whose rules are taken away", func(t *testing.T) {
		before := string(s.read("etc/master"))
		reload := func(old, now, more string) {
			t.Helper()
			s.write("etc/master", strings.Replace(before, old, now, 1)+more)
			s.tool("salt-run", "config.reload")
		}
		defer reload("", "", "")
		ask := func(what, session, fun string, want int) {
			t.Helper()
			res, _ := post(t, url+"/", session, strings.Replace(ping, `"test.ping"`, fun, 1))
			refused(t, what, res, want)
		}
		hears := listen(t, url+"/events", "X-Auth-Token", login(t, a, "shorty", "shortpw"))
		ask("the rule is there", other, `"test.ping"`, http.StatusOK)
		reload("'file:shorty': {listen: 'salt/job/*'}", "'file:shorty': {listen: 'none/*'}", "keep_acl_in_token: true\n")
		hears.ends(time.Minute)
		keeps := login(t, a, "other", "otherpw")
		reload("other: ['test.ping']", "other: ['test.version']", "keep_acl_in_token: true\n")
		ask("the rule is gone", other, `"test.ping"`, http.StatusUnauthorized)
		ask("another has come", other, `"test.version"`, http.StatusOK)
		ask("the session keeps it", keeps, `"test.ping"`, http.StatusOK)
		ask("and has no other", keeps, `"test.version"`, http.StatusUnauthorized)
		ask("nor a part of a compound", keeps, `["test.ping","test.version"]`, http.StatusUnauthorized)
		reload("other: ['test.ping']", "other: ['test.version']", "")
		ask("it keeps it no longer", keeps, `"test.ping"`, http.StatusUnauthorized)
		ask("and has what others have", keeps, `"test.version"`, http.StatusOK)
	})

	t.Run("floods", func(t *testing.T) {
		line, _ := raw(t, a, "GET / HTTP/1.1\r\nHost: "+a+"\r\nX-Long: "+strings.Repeat("x", 60<<10)+"\r\n\r\n")
		if !strings.Contains(line, " 431 ") {
			t.Errorf("a long header: %s", line)
		}
		line, _ = raw(t, a, "POST /run HTTP/1.1\r\nHost: "+a+"\r\nAccept: application/json\r\nContent-Type: application/json\r\nContent-Length: 1000000000\r\nConnection: close\r\n\r\n")
		if !strings.Contains(line, " 413 ") {
			t.Errorf("a long body that is announced: %s", line)
		}
		for what, body := range map[string]string{
			"a long body that is not announced": "POST /run HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n%s\r\n200000\r\n" + strings.Repeat(" ", 2<<20) + "\r\n0\r\n\r\n",
			"a long login":                      "POST /login HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 70000\r\n%s\r\n",
			"a long YAML":                       "POST /run HTTP/1.1\r\nContent-Type: application/x-yaml\r\nContent-Length: 300000\r\n%s\r\n" + strings.Repeat("- a\n", 75_000),
		} {
			if line, _ := raw(t, a, fmt.Sprintf(body, "Host: "+a+"\r\nAccept: application/json\r\nConnection: close\r\n")); !strings.Contains(line, " 413 ") {
				t.Errorf("%s: %s", what, line)
			}
		}
		res, _ := send(t, "POST", url+"/run", "", strings.Repeat("[", 500_000), "Content-Type", "application/json")
		refused(t, "deep JSON", res, http.StatusBadRequest)
		bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
		for c := 'b'; c < 'k'; c++ {
			bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
		}
		res, _ = send(t, "POST", url+"/run", "", bomb, "Content-Type", "application/x-yaml")
		refused(t, "YAML that grows", res, http.StatusBadRequest)
		res, _ = post(t, url+"/", admin, "["+strings.TrimSuffix(strings.Repeat(`{"client":"local","tgt":"*","fun":"test.ping"},`, 1000), ",")+"]")
		refused(t, "a thousand chunks", res, http.StatusBadRequest)
		for range 200 { // headers that never end
			c, err := net.Dial("tcp", a)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			fmt.Fprintf(c, "POST /login HTTP/1.1\r\nHost: %s\r\n", a)
		}
		res, _ = post(t, url+"/", admin, ping)
		refused(t, "somebody else meanwhile", res, http.StatusOK)
	})

	t.Run("a hundred streams, and slow readers", func(t *testing.T) {
		for range 100 {
			listen(t, url+"/events", "X-Auth-Token", admin)
		}
		for range 10 { // these do not read anything
			c, err := net.Dial("tcp", a)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			fmt.Fprintf(c, "GET /events HTTP/1.1\r\nHost: %s\r\nAccept: */*\r\nX-Auth-Token: %s\r\n\r\n", a, admin)
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 25 {
					post(t, url+"/hook/flood", admin, `{"pad":"`+strings.Repeat("x", 100<<10)+`"}`)
				}
			})
		}
		deadline.Call(t, all.Wait, "all")
		began := time.Now()
		res, _ := post(t, url+"/", other, ping)
		refused(t, "somebody else meanwhile", res, http.StatusOK)
		t.Logf("test.ping of another took %s", time.Since(began))
	})

	t.Run("what one has under way", func(t *testing.T) {
		server, err := netapi.New(netapi.Options{
			Dial: func(ctx context.Context) (*client.Conn, error) {
				return client.Connect(ctx, s.root+"/var/run/salt/master/master.sock")
			}, Log: slog.New(slog.DiscardHandler),
			Clients: []string{"local", "runner"}, Sessions: true, MaxBody: 1 << 20, WebhookURL: "/hook", AppPath: "/app", StaticPath: "/static", Timeout: 4 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		hs := httptest.NewServer(server)
		defer hs.Close()
		address := strings.TrimPrefix(hs.URL, "http://")
		admin, other := login(t, address, "admin", "adminpw"), login(t, address, "other", "otherpw")
		const proof = `{"username":"admin","password":"adminpw","eauth":"file"}`
		lowstate := strings.Replace(strings.Trim(ping, "[]"), "{", strings.TrimSuffix(proof, "}")+",", 1)
		type request struct{ path, session, body string }
		login := []request{{"/login", "", proof}, {"/run", "", lowstate}, {"/token", "", proof}}
		work := []request{{"/", admin, ping}, {"/run", "", lowstate}, {"/minions", admin, ""}, {"/jobs", admin, ""}, {"/keys", admin, ""}, {"/hook/x", admin, "{}"}}
		streams, positions := []request{{"/events", admin, ""}, {"/ws/" + admin, "", ""}, {"/?follow", admin, ping}, {"/run?follow", "", lowstate}}, []request{{"/events?since=1h", admin, ""}, {"/events?durable=x", admin, ""}}
		all := slices.Concat(login, work, streams, positions, []request{{"/", "", ""}, {"/nothing", "", ""}})
		for _, test := range []struct {
			kind, who string
			refused   []request
			alone     bool // others are still served
		}{
			{"request", "127.0.0.1/32", all, false}, {"request", "", all, false}, {"login", "127.0.0.1/32", login, true}, {"login", "", login, true},
			{"work", "file:admin", work, true}, {"work", "", work, false}, {"stream", "file:admin", streams, true}, {"stream", "", streams, true},
			{"position", "file:admin", positions, true}, {"position", "", positions, true},
		} {
			leave := server.Occupy(test.kind, test.who)
			for _, q := range test.refused {
				method := "GET"
				if q.body != "" {
					method = "POST"
				}
				res, _ := send(t, method, hs.URL+q.path, q.session, q.body, "Content-Type", "application/json")
				refused(t, test.kind+" of "+test.who+", "+method+" "+q.path, res, http.StatusTooManyRequests)
			}
			if test.alone {
				res, _ := post(t, hs.URL+"/", other, ping)
				refused(t, "another, with no room for a "+test.kind+" of "+test.who, res, http.StatusOK)
			}
			leave()
			res, _ := post(t, hs.URL+"/", admin, ping)
			refused(t, "with room again", res, http.StatusOK)
		}
	})

	t.Run("guesses", func(t *testing.T) {
		var busy atomic.Int32
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				res, _ := post(t, url+"/login", "", `{"username":"admin","password":"guess","eauth":"file"}`)
				if res.StatusCode == http.StatusTooManyRequests {
					busy.Add(1)
				} else {
					refused(t, "a guess", res, http.StatusUnauthorized)
				}
			})
		}
		deadline.Call(t, all.Wait, "all")
		if busy.Load() == 0 {
			t.Error("guesses are not slowed")
		}
		if log := string(s.read("master.out")); !strings.Contains(log, "login refused") {
			t.Error("the master has logged no guess")
		}
		if found := s.tool("salt-run", "audit.search", "user=admin", "--out", "json"); !strings.Contains(found, "127.0.0.1") {
			t.Errorf("the audit log does not have the address:\n%.2000s", found)
		}
	})
}

// raw sends bytes unchanged, and returns the first line and the rest of the answer.
func raw(t *testing.T, address, text string) (line, rest string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	go io.WriteString(c, text) //nolint:errcheck // the server may answer before it has read all
	r := bufio.NewReader(c)
	line, err = r.ReadString('\n')
	if err != nil {
		t.Fatalf("%.60q: %v", text, err)
	}
	b, _ := io.ReadAll(r) // the server may close before all is read
	return line, string(b)
}
