package netapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestAttacks: what people try from outside who may not.
func TestAttacks(t *testing.T) {
	s := start(t)
	s.write("gui/static/a.css", "a {}\n")
	s.write("gui/static/.hidden", "hidden\n")
	s.write("gui/secret", "root:secret\n")
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
		for _, path := range []string{"/static/../secret", "/static/%2e%2e/secret", "/static/..%2fsecret", "/static/..%5csecret", "/static//../secret", "/static/%2e%2e%2fsecret", "/static/a.css/../../secret", "/static/.hidden", "/static/", "/static/a.css%00", "/static/....//secret", "/static" + s.root + "/gui/secret"} {
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
		for range 10 { // these read nothing at all
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
		all.Wait()
		began := time.Now()
		res, _ := post(t, url+"/", other, ping)
		refused(t, "somebody else meanwhile", res, http.StatusOK)
		t.Logf("test.ping of another took %s", time.Since(began))
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
		all.Wait()
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

// raw sends bytes as they are and returns the first line and the rest of the answer.
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
