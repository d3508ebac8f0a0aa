package netapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/test/deadline"
)

// recorded is a request with the answer of Salt.
type recorded struct {
	ID, What, Config, Match, Class string
	Request                        struct {
		Method, Path string
		Headers      map[string]string
		Body         *string
	}
	Response struct {
		Status   int
		Headers  map[string]string
		BodyKind string `json:"body_kind"`
		Body     any
	}
	Volatile, Unordered []string
}

// answersOtherwise are the cases of the contract that get another answer than from Salt, each
// with its reason; doc/api.md lists them.
var answersOtherwise = map[string]string{
	"low-badargs":        "the words of a mistake in arguments are those of the function here, not of Python",
	"low-arg-list":       "functions do not get the keywords __pub_*",
	"low-arg-kv":         "functions do not get the keywords __pub_*",
	"low-form-args":      "functions do not get the keywords __pub_*",
	"low-form-empty-arg": "functions do not get the keywords __pub_*",
	"low-form-kwargeq":   "functions do not get the keywords __pub_*",
	"low-kwarg":          "functions do not get the keywords __pub_*",
	"low-kwarg-arg":      "functions do not get the keywords __pub_*",
	"low-state":          "there are no states: the function is not available",
}

// quirks are the accidental properties of Salt's answers that are different here, by what Salt
// does; doc/api.md lists them.
var quirks = map[string]string{
	"app-html-events":           "`/events` as HTML ends in 500 where there is an `app`",
	"big-B":                     tooLarge,
	"big-B2":                    tooLarge,
	"debug-trace":               "with `debug` the page of an error has a traceback",
	"get-wrong-logout":          noSense,
	"keys-post-badpw":           keyPairs,
	"keys-post-form":            keyPairs,
	"keys-post-nobody":          keyPairs,
	"keys-post-nocred":          keyPairs,
	"login-badyaml":             noSense,
	"login-emptylist":           noSense,
	"login-nobody":              noSense,
	"login-null":                noSense,
	"login-str":                 noSense,
	"login-text-notjson":        noSense,
	"logout-twice":              "`/logout` a second time is answered with 200",
	"low-badyaml":               noSense,
	"low-batch-bad":             noSense,
	"low-batch-local":           "`batch` with `local` gives `false`",
	"low-liststr":               noSense,
	"low-notgt":                 noSense,
	"low-runner-async-bad":      noRunner,
	"low-runner-bad":            noRunner,
	"low-timeout-bad":           "a `timeout` that is not a number is ignored",
	"low-wheel-arg":             "wheel functions take no `arg`",
	"options-bare-":             question,
	"options-bare-hook":         question,
	"options-bare-jobs":         question,
	"options-bare-keys":         question,
	"options-bare-logout":       question,
	"options-bare-minions-web1": question,
	"options-bare-stats":        question,
	"options-bare-token":        question,
	"post-wrong-events":         noSense,
	"preflight-get-events":      question,
	"preflight-post-":           question,
	"preflight-put-":            question,
	"run-eauth-nouser":          noSense,
	"token-empty":               noSense,
	"token-str":                 noSense,
}

const (
	noSense  = "what makes no sense ends in 500"
	question = "`OPTIONS` without a route for it ends in 500"
	tooLarge = "a body that is too large is accepted nevertheless"
	keyPairs = "`POST /keys` makes a key pair and hands out its private half"
	noRunner = "a runner that is none ends in 500"
)

// apis are the settings of salt-api for each recorded configuration.
func apis(s *system) map[string]string {
	const all = "netapi_enable_clients: [local, local_async, local_batch, local_subset, runner, runner_async, wheel, wheel_async, ssh]\n"
	rest := func(more string) string {
		return "rest_cherrypy:\n  port: <port>\n  host: 127.0.0.1\n  disable_ssl: true\n" + more
	}
	s.write("gui/index.html", "<!DOCTYPE html>\n<title>page</title>\n")
	s.write("gui/static/stylesheets/main.css", "* { margin: 0 }\n")
	address := map[string]string{
		"A": s.api("A", all+rest("")),
		"B": s.api("B", "netapi_enable_clients: [local, runner]\n"+rest("  webhook_disable_auth: true\n  webhook_url: /inbound\n  stats_disable_auth: true\n  collect_stats: true\n  debug: true\n  max_request_body_size: 2000\n  api_acl:\n    users:\n      admin: ['127.0.0.1']\n      limited: ['10.9.9.9']\n")),
		"C": s.api("C", "netapi_enable_clients: [local, local_async, runner, wheel]\n"+rest("  app: "+s.root+"/gui/index.html\n  static: "+s.root+"/gui/static\n  static_path: /static\n")),
		"D": s.api("D", rest("  enable_sessions: false\n")),
		"E": s.api("E", "sock_dir: "+s.root+"/nobody\n"+all+rest("  authorized_ips: ['127.0.0.1']\n")),
		"F": s.api("F", all+rest("  authorized_ips: ['10.9.9.9']\n")),
	}
	return address
}

// world fills the placeholders of requests.
type world struct {
	t        *testing.T
	s        *system
	address  map[string]string
	sessions map[string]string
}

var passwords = map[string]string{"admin": "adminpw", "limited": "limitedpw", "jobsuser": "jobspw", "shorty": "shortpw"}

var placeholder = regexp.MustCompile(`<[a-z_]+(:[a-zA-Z]+)?>`)

func (w *world) fill(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(p string) string {
		name, user, _ := strings.Cut(strings.Trim(p, "<>"), ":")
		a := w.address["A"]
		switch {
		case name == "fresh":
			return login(w.t, a, user, passwords[user])
		case w.sessions[p] != "":
			return w.sessions[p]
		}
		v := p
		switch name {
		case "session":
			if user == "adminB" {
				a, user = w.address["B"], "admin"
			}
			v = login(w.t, a, user, passwords[user])
		case "salt_token":
			_, body := post(w.t, "http://"+a+"/token", "", fmt.Sprintf(`{"username":%q,"password":%q,"eauth":"file"}`, user, passwords[user]))
			var list []struct{ Token string }
			if err := json.Unmarshal([]byte(body), &list); err != nil {
				w.t.Fatalf("token: %v\n%s", err, body)
			}
			v = list[0].Token
		case "loggedout":
			v = login(w.t, a, "admin", "adminpw")
			post(w.t, "http://"+a+"/logout", v, "{}")
		case "expired":
			v = login(w.t, a, "shorty", "shortpw", `,"token_expire":1`)
			w.s.await("the token to expire", func() bool {
				res, _ := post(w.t, "http://"+a+"/", v, `{"client":"local","tgt":"ghost","fun":"test.ping"}`)
				return res.StatusCode == http.StatusUnauthorized
			})
		case "expired_salt_token":
			v = strings.Repeat("0", 128)
		case "jid":
			_, body := post(w.t, "http://"+a+"/", w.fill("<session:admin>"), `{"client":"local_async","tgt":"*","fun":"test.ping"}`)
			v = regexp.MustCompile(`[0-9]{20}`).FindString(body)
			post(w.t, "http://"+a+"/", w.fill("<session:admin>"), `{"client":"local","tgt":"*","fun":"test.ping"}`)
		}
		w.sessions[p] = v
		return v
	})
}

// send sends a recorded request unchanged, over a connection of its own.
func (w *world) send(c *recorded) (*http.Response, string) {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.address[c.Config])
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", c.Request.Method, w.fill(c.Request.Path), w.address[c.Config])
	for k, v := range c.Request.Headers {
		fmt.Fprintf(&b, "%s: %s\r\n", k, w.fill(v))
	}
	body := ""
	if c.Request.Body != nil {
		body = w.fill(*c.Request.Body)
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	if _, err := io.WriteString(conn, b.String()+"\r\n"+body); err != nil {
		w.t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: c.Request.Method})
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res, string(text)
}

// TestContract sends the requests that Salt got, and compares the answers.
func TestContract(t *testing.T) {
	var file struct{ Cases []recorded }
	b, err := os.ReadFile("testdata/api.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../doc/api.md")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t)
	w := &world{t: t, s: s, address: apis(s), sessions: map[string]string{}}
	for i := range file.Cases {
		c := &file.Cases[i]
		if strings.HasPrefix(c.ID, "sse-") || strings.HasPrefix(c.ID, "ws-") {
			continue // TestStreams tests these
		}
		t.Run(c.ID, func(t *testing.T) {
			w.t = t
			res, body := w.send(c)
			if c.Class == "quirk" {
				if res.StatusCode >= 500 && res.StatusCode != http.StatusNotImplemented && res.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("%s: %s\n%s", c.What, res.Status, body)
				}
				differs := c.differs(t, res, body)
				if row, listed := quirks[c.ID]; listed != (len(differs) > 0) {
					t.Errorf("%s: listed as answered otherwise: %t; it differs in %q", c.What, listed, differs)
				} else if listed && !strings.Contains(string(doc), "| "+row+" |") {
					t.Errorf("%s: doc/api.md has no row %q", c.What, row)
				}
				return
			}
			if why, ok := answersOtherwise[c.ID]; ok {
				if res.StatusCode != c.Response.Status {
					t.Errorf("%s (%s): %s", c.What, why, res.Status)
				}
				return
			}
			c.compare(t, res, body)
		})
	}
	t.Run("a stream by the header of an expired session", func(t *testing.T) {
		w.t = t
		const refusal = "No permission -- see authorization schemes"
		for _, path := range []string{"/events", "/ws"} {
			if res, body := send(t, "GET", "http://"+w.address["A"]+path, w.fill("<expired>"), ""); res.StatusCode != http.StatusUnauthorized || !strings.Contains(body, refusal) {
				t.Errorf("%s: %s %s, want 401 and %q", path, res.Status, body, refusal)
			}
		}
	})
}

// trial collects the errors of a comparison.
type trial struct {
	testing.TB
	said []string
}

func (t *trial) Helper()                      {}
func (t *trial) Failed() bool                 { return false }
func (t *trial) Logf(string, ...any)          {}
func (t *trial) Error(args ...any)            { t.said = append(t.said, fmt.Sprint(args...)) }
func (t *trial) Errorf(f string, args ...any) { t.said = append(t.said, fmt.Sprintf(f, args...)) }
func (t *trial) Fatal(args ...any)            { t.Error(args...); runtime.Goexit() }
func (t *trial) Fatalf(f string, args ...any) { t.Errorf(f, args...); runtime.Goexit() }

// differs returns how an answer differs from the recorded one.
func (c *recorded) differs(t *testing.T, res *http.Response, body string) []string {
	try := &trial{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.compare(try, res, body)
	}()
	deadline.Receive(t, done, "done")
	return try.said
}

// compared are the headers that clients use.
var compared = []string{"Content-Type", "Access-Control-Allow-Origin", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers", "Access-Control-Max-Age"}

func (c *recorded) compare(t testing.TB, res *http.Response, body string) {
	t.Helper()
	if res.StatusCode != c.Response.Status {
		t.Fatalf("%s: %s, want %d\n%.500s", c.What, res.Status, c.Response.Status, body)
	}
	for _, name := range compared {
		if want, ok := c.Response.Headers[name]; ok && res.Header.Get(name) != want && !(name == "Content-Type" && sameType(res.Header.Get(name), want)) {
			t.Errorf("header %s is %q, want %q", name, res.Header.Get(name), want)
		}
	}
	if c.Response.Headers["X-Auth-Token"] != "" && len(res.Header.Get("X-Auth-Token")) != 40 {
		t.Errorf("header X-Auth-Token is %q", res.Header.Get("X-Auth-Token"))
	}
	if c.Match == "ignore" {
		return
	}
	body = versions.ReplaceAllString(body, `"3006.0+179.g8d32b4ecea"`)
	body = fingerprints.ReplaceAllString(body, `"FINGER"`)
	got, want := c.data(t, body), c.Response.Body
	if strings.HasPrefix(c.ID, "keys-") {
		b, _ := json.Marshal(want) // it was read from JSON
		want = nil
		if err := json.Unmarshal(fingerprints.ReplaceAll(b, []byte(`"FINGER"`)), &want); err != nil {
			t.Fatal(err)
		}
	}
	if c.Response.BodyKind == "yaml" {
		if err := yaml.Unmarshal([]byte(want.(string)), &want); err != nil {
			t.Fatal(err)
		}
		want, got = plain(t, want), plain(t, got)
	}
	for _, p := range differences("", want, got, c) {
		t.Error(p)
	}
	if t.Failed() {
		t.Logf("answer: %.1500s", body)
	}
}

// sameType compares without the charset, which may be named or left to the standard.
func sameType(a, b string) bool {
	a, _, _ = strings.Cut(a, ";")
	b, _, _ = strings.Cut(b, ";")
	return a == b
}

func plain(t testing.TB, v any) any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Values that differ between installations.
var (
	versions     = regexp.MustCompile(`"[0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9.]+)?(\+[0-9a-f]{12})?(\.modified)?"`)
	fingerprints = regexp.MustCompile(`"[0-9a-f]{2}(:[0-9a-f]{2}){31}"`)
)

var (
	pageTitle   = regexp.MustCompile(`(?s)<title>(.*?)</title>`)
	pageMessage = regexp.MustCompile(`(?s)<p>(.*?)</p>`)
	unescape    = strings.NewReplacer("&#39;", "'", "&#34;", `"`, "&lt;", "<", "&gt;", ">", "&amp;", "&")
)

// data returns an answer in the form of the recording.
func (c *recorded) data(t testing.TB, body string) any {
	t.Helper()
	var v any
	switch c.Response.BodyKind {
	case "json":
		if err := json.Unmarshal([]byte(body), &v); err != nil {
			t.Fatalf("%v\n%s", err, body)
		}
	case "yaml":
		if err := yaml.Unmarshal([]byte(body), &v); err != nil {
			t.Fatalf("%v\n%s", err, body)
		}
	case "html-error":
		title, message := pageTitle.FindStringSubmatch(body), pageMessage.FindStringSubmatch(body)
		if title == nil || message == nil {
			t.Fatalf("no page of an error:\n%s", body)
		}
		return map[string]any{"title": unescape.Replace(title[1]), "message": unescape.Replace(message[1])}
	case "empty":
		if body == "" {
			return nil
		}
		return body
	default:
		return body
	}
	return v
}

// differences compares by the rules of the recording.
func differences(at string, want, got any, c *recorded) []string {
	if reflect.TypeOf(want) != reflect.TypeOf(got) {
		return []string{fmt.Sprintf("%s is %v (%T), want %v (%T)", at, got, got, want, want)}
	}
	if slices.Contains(c.Volatile, at) || strings.HasSuffix(at, "/jid") || c.Match == "subset" && at != "" {
		if _, isMap := want.(map[string]any); !isMap {
			return nil
		}
	}
	switch w := want.(type) {
	case map[string]any:
		return mapDifferences(at, w, got.(map[string]any), c)
	case []any:
		g := got.([]any)
		if len(w) != len(g) {
			return []string{fmt.Sprintf("%s has %d items, want %d", at, len(g), len(w))}
		}
		if slices.Contains(c.Unordered, at) {
			byText := func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
			slices.SortFunc(w, byText)
			slices.SortFunc(g, byText)
		}
		var list []string
		for i := range w {
			list = append(list, differences(at+"/"+strconv.Itoa(i), w[i], g[i], c)...)
		}
		return list
	}
	if !reflect.DeepEqual(want, got) {
		return []string{fmt.Sprintf("%s is %v, want %v", at, got, want)}
	}
	return nil
}

func mapDifferences(at string, want, got map[string]any, c *recorded) []string {
	var list []string
	for k, v := range want {
		if _, ok := got[k]; !ok {
			list = append(list, fmt.Sprintf("%s lacks %s: %v", at, k, v))
			continue
		}
		list = append(list, differences(at+"/"+k, v, got[k], c)...)
	}
	for k, v := range got {
		if _, ok := want[k]; !ok && c.Match != "subset" {
			list = append(list, fmt.Sprintf("%s has %s: %v", at, k, v))
		}
	}
	return list
}
