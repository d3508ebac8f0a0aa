package netapi_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// issuer signs certificates.
type issuer struct {
	t    testing.TB
	cert *x509.Certificate // nil if it signs itself
	key  *ecdsa.PrivateKey
}

// issue makes a certificate for the addresses of these tests; signs means that it may sign
// others.
func (i *issuer) issue(name string, signs bool) *issuer {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: signs, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2)},
	}
	if signs {
		c.KeyUsage = x509.KeyUsageCertSign
	}
	parent, by := c, key
	if i.cert != nil {
		parent, by = i.cert, i.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		i.t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		i.t.Fatal(err)
	}
	return &issuer{i.t, c, key}
}

func (i *issuer) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw}))
}

func (i *issuer) keyPEM() string {
	der, err := x509.MarshalPKCS8PrivateKey(i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// site is one salt-api, as seen by a client that trusts certificates of root.
type site struct {
	t      testing.TB
	url    string
	client *http.Client
}

func newSite(t testing.TB, url string, roots ...*issuer) *site {
	pool := x509.NewCertPool()
	for _, r := range roots {
		pool.AddCert(r.cert)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(tr.CloseIdleConnections)
	return &site{t, url, &http.Client{Transport: tr}}
}

// ask sends a request; headers are in pairs. A body makes it a POST of JSON.
func (s *site) ask(path, body string, headers ...string) (*http.Response, string) {
	s.t.Helper()
	res, text, err := s.try(path, body, headers...)
	if err != nil {
		s.t.Fatal(err)
	}
	return res, text
}

func (s *site) try(path, body string, headers ...string) (*http.Response, string, error) {
	method := "GET"
	if body != "" {
		method = "POST"
	}
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(res.Body)
	return res, b.String(), err
}

// want fails unless the answer has that status.
func (s *site) want(what string, status int, path, body string, headers ...string) (*http.Response, string) {
	s.t.Helper()
	res, text := s.ask(path, body, headers...)
	if res.StatusCode != status {
		s.t.Errorf("%s: %s, want %d\n%.300s", what, res.Status, status, text)
	}
	return res, text
}

const (
	adminLogin = `{"username":"admin","password":"adminpw","eauth":"file"}`
	otherLogin = `{"username":"other","password":"otherpw","eauth":"file"}`
	sessionRun = `{"client":"runner","fun":"manage.up"}`
	upChunk    = `{"client":"runner","fun":"manage.up","eauth":"file","username":"admin","password":"adminpw"}`
)

func (s *site) login() (session string) {
	s.t.Helper()
	res, _ := s.want("login", http.StatusOK, "/login", adminLogin)
	return res.Header.Get("X-Auth-Token")
}

// fails runs salt-api, which must exit with that code, and returns its output.
func (s *system) fails(code int, settings string) string {
	s.t.Helper()
	s.write("etc-bad/master", fmt.Sprintf("root_dir: %s\n", s.root)+settings)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(bin, "salt-api"), "-c", filepath.Join(s.root, "etc-bad"))
	out, _ := c.CombinedOutput()
	if got := c.ProcessState.ExitCode(); got != code {
		s.t.Errorf("salt-api ends with %d, want %d, with\n%s\n%s", got, code, settings, out)
	}
	return string(out)
}

// TestSettingsHaveTheirEffect: each setting of rest_cherrypy changes what a client gets, over
// real TLS. Settings about connections to the master need no minion.
func TestSettingsHaveTheirEffect(t *testing.T) {
	s := startMaster(t)
	root := (&issuer{t: t}).issue("root", true)
	between := root.issue("between", true)
	direct, below := root.issue("direct", false), between.issue("below", false)
	for name, text := range map[string]string{
		"direct.crt": direct.pem(), "direct.key": direct.keyPEM(), "below.crt": below.pem(), "below.key": below.keyPEM(), "between.crt": between.pem(),
		"gui/page.html": "<title>page</title>", "files/a.css": "a {}",
	} {
		s.write(name, text)
	}
	const (
		clients = "netapi_enable_clients: [runner]\n"
		other   = "https://other.example"
	)
	const direct2 = "rest_cherrypy:\n  port: <port>\n  ssl_crt: direct.crt\n  ssl_key: direct.key\n"
	// The first has only what is required, the second everything else, the third no TLS, and the
	// fourth refuses everybody.
	plain := newSite(t, "https://"+s.api("plain", clients+direct2), root)
	full := newSite(t, "https://"+s.apiAt("127.0.0.2", "full", clients+strings.ReplaceAll(direct2, "direct", "below")+`  host: 127.0.0.2
  ssl_chain: between.crt
  app: gui/page.html
  app_path: /gui
  static: files
  static_path: /files
  cors_origin: [`+other+`]
  expire_responses: false
  max_request_body_size: 2000
  webhook_url: /in
  webhook_disable_auth: true
  stats_disable_auth: true
  api_acl: {users: {other: [10.0.0.1], jobsuser: [10.0.0.1], pepper: [10.0.0.1], '*': [127.0.0.0/8]}}
`), root)
	bare := newSite(t, "http://"+s.api("bare", clients+"rest_cherrypy:\n  port: <port>\n  host: 127.0.0.1\n  disable_ssl: true\n  enable_sessions: false\n"))
	shut := newSite(t, "https://"+s.api("shut", strings.ReplaceAll(direct2, "direct", "below")+"  authorized_ips: [10.0.0.0/8]\n"), root)
	session, foreign := plain.login(), full.login()
	where := func(o *site) (host, port string) {
		host, port, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(o.url, "https://"), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		return host, port
	}

	effects := map[string]func(t *testing.T){
		"host": func(t *testing.T) {
			_, p := where(full)
			if c, err := net.Dial("tcp", "127.0.0.1:"+p); err == nil {
				c.Close()
				t.Error("it listens at an address that host does not name")
			}
			_, p = where(plain)
			newSite(t, "https://127.0.0.2:"+p, root).want("every address, without host", http.StatusOK, "/", "")
		},
		"port": func(t *testing.T) {
			_, a := where(plain)
			_, b := where(full)
			if a == b || a == "8000" {
				t.Errorf("the ports are %s and %s", a, b)
			}
		},
		"ssl_crt": func(t *testing.T) {
			for o, want := range map[*site]*issuer{plain: direct, full: below} {
				res, _ := o.ask("/", "")
				if res.TLS == nil || !res.TLS.PeerCertificates[0].Equal(want.cert) || res.TLS.Version < tls.VersionTLS12 {
					t.Errorf("%s shows another certificate", o.url)
				}
			}
			if said := s.fails(64, "rest_cherrypy: {}\n"); !strings.Contains(said, "openssl req -x509") {
				t.Errorf("without a certificate it says\n%s", said)
			}
			host, p := where(plain)
			if c, err := tls.Dial("tcp", net.JoinHostPort(host, p), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}); err == nil {
				c.Close()
				t.Error("it speaks TLS 1.1")
			}
		},
		"ssl_key": func(t *testing.T) {
			s.fails(77, "rest_cherrypy: {ssl_crt: direct.crt, ssl_key: below.key}\n")
			s.fails(77, "rest_cherrypy: {ssl_crt: direct.crt, ssl_key: none.key}\n")
		},
		"ssl_chain": func(t *testing.T) {
			full.want("with the chain", http.StatusOK, "/", "")
			if _, _, err := shut.try("/", ""); err == nil {
				t.Error("without the chain, a certificate is believed that root has not signed")
			}
		},
		"disable_ssl": func(t *testing.T) {
			res, _ := bare.want("in the clear", http.StatusOK, "/", "")
			if res.Header.Get("Strict-Transport-Security") != "" {
				t.Error("without TLS it demands TLS")
			}
			host, p := where(plain)
			newSite(t, "http://"+net.JoinHostPort(host, p)).want("in the clear, with TLS", http.StatusBadRequest, "/", "")
			res, _ = plain.ask("/login", adminLogin)
			if res.Header.Get("Strict-Transport-Security") == "" || !strings.Contains(res.Header.Get("Set-Cookie"), "; Secure") {
				t.Errorf("with TLS the headers are %v", res.Header)
			}
		},
		"enable_sessions": func(t *testing.T) {
			bare.want("login", http.StatusNotFound, "/login", adminLogin)
			bare.want("minions", http.StatusNotFound, "/minions", "", "X-Auth-Token", session)
			bare.want("a request with its own login", http.StatusOK, "/run", upChunk)
			plain.want("a session", http.StatusOK, "/", sessionRun, "X-Auth-Token", session)
		},
		"app": func(t *testing.T) {
			if _, text := full.want("the page, for who accepts HTML", http.StatusOK, "/any/path", "", "Accept", "text/html"); text != "<title>page</title>" {
				t.Errorf("the page is %q", text)
			}
			plain.want("a page where there is none", http.StatusNotFound, "/any/path", "", "Accept", "text/html")
		},
		"app_path": func(t *testing.T) {
			if _, text := full.want("the page at its path", http.StatusOK, "/gui", ""); text != "<title>page</title>" {
				t.Errorf("the page is %q", text)
			}
			full.want("the usual path", http.StatusNotFound, "/app", "")
			if _, text := plain.want("the usual path, without a page", http.StatusOK, "/app", ""); !strings.Contains(text, "no web page") {
				t.Errorf("it says %q", text)
			}
		},
		"static": func(t *testing.T) {
			if _, text := full.want("a file", http.StatusOK, "/files/a.css", ""); text != "a {}" {
				t.Errorf("the file is %q", text)
			}
			plain.want("a file where there are none", http.StatusNotFound, "/static/a.css", "")
		},
		"static_path": func(t *testing.T) { full.want("the usual path", http.StatusNotFound, "/static/a.css", "") },
		"cors_origin": func(t *testing.T) {
			res, _ := full.want("a site that is named", http.StatusOK, "/", sessionRun, "Cookie", "session_id="+foreign, "Origin", other)
			if got := res.Header.Get("Access-Control-Allow-Origin"); got != other {
				t.Errorf("the answer is for %q", got)
			}
			res, _ = full.want("a site that is not", http.StatusForbidden, "/", sessionRun, "Cookie", "session_id="+foreign, "Origin", "https://evil.example")
			if got := res.Header.Get("Access-Control-Allow-Origin"); got != "" {
				t.Errorf("the refusal is for %q", got)
			}
			plain.want("a site, without the setting", http.StatusForbidden, "/", sessionRun, "Cookie", "session_id="+session, "Origin", other)
		},
		"expire_responses": func(t *testing.T) {
			res, _ := plain.ask("/", "")
			if res.Header.Get("Expires") != "0" {
				t.Errorf("by default the headers are %v", res.Header)
			}
			if res, _ = full.ask("/", ""); res.Header.Get("Expires") != "" {
				t.Errorf("without it they are %v", res.Header)
			}
		},
		"max_request_body_size": func(t *testing.T) {
			long := strings.Replace(upChunk, "{", "{"+strings.Repeat(" ", 2000), 1)
			full.want("a long request", http.StatusRequestEntityTooLarge, "/run", long)
			plain.want("a long request, without the limit", http.StatusOK, "/run", long)
			full.want("a short one", http.StatusOK, "/run", upChunk)
		},
		"webhook_url": func(t *testing.T) {
			full.want("a hook", http.StatusOK, "/in/deploy", `{"n":1}`, "X-Auth-Token", foreign)
			full.want("the usual path", http.StatusNotFound, "/hook/deploy", `{"n":1}`, "X-Auth-Token", foreign)
			plain.want("the usual path, without the setting", http.StatusOK, "/hook/usual", `{"n":1}`, "X-Auth-Token", session)
			if heard := s.tool("salt-event", "listen", "--since", "1h", "--until-end", "--format", "tag"); !strings.Contains(heard, "salt/netapi/hook/deploy\n") || !strings.Contains(heard, "salt/netapi/hook/usual\n") {
				t.Errorf("the events are\n%s", heard)
			}
		},
		"webhook_disable_auth": func(t *testing.T) {
			full.want("without a session", http.StatusOK, "/in/anybody", `{}`)
			plain.want("without a session and the setting", http.StatusUnauthorized, "/hook/nobody", `{}`)
			if heard := s.tool("salt-event", "listen", "--since", "1h", "--until-end", "--format", "tag"); !strings.Contains(heard, "hook/anybody\n") || strings.Contains(heard, "nobody") {
				t.Errorf("the events are\n%s", heard)
			}
		},
		"stats_disable_auth": func(t *testing.T) {
			for _, path := range []string{"/stats", "/metrics"} {
				full.want(path, http.StatusOK, path, "")
				plain.want(path+" without the setting", http.StatusUnauthorized, path, "")
			}
		},
		"authorized_ips": func(t *testing.T) {
			shut := newSite(t, shut.url, between)
			shut.want("from elsewhere", http.StatusForbidden, "/", "")
			shut.want("a login from elsewhere", http.StatusForbidden, "/login", adminLogin)
			shut.want("whatever a header says", http.StatusForbidden, "/", "", "X-Forwarded-For", "10.0.0.1", "Forwarded", "for=10.0.0.1", "X-Real-IP", "10.0.0.1")
		},
		"api_acl": func(t *testing.T) {
			full.want("who may not come from here", http.StatusUnauthorized, "/login", otherLogin)
			const jobs = `{"client":"runner","fun":"jobs.list_jobs","eauth":"file","username":"jobsuser","password":"jobspw"}` // this user may do that
			full.want("nor without a session", http.StatusUnauthorized, "/run", jobs)
			plain.want("a run without the setting", http.StatusOK, "/run", jobs)
			const pepper = `{"username":"pepper","password":"pepper","eauth":"sharedsecret"}`
			full.want("nor for a token", http.StatusUnauthorized, "/token", pepper)
			plain.want("a token without the setting", http.StatusOK, "/token", pepper)
			plain.want("without the setting", http.StatusOK, "/login", otherLogin)
		},
	}
	for _, name := range slices.Sorted(maps.Keys(effects)) {
		t.Run(name, effects[name])
	}
	// Those without an effect are logged at the start; root_prefix is refused unless it is "/".
	none := []string{"collect_stats", "debug", "log.access_file", "log.error_file", "log_access_file", "log_error_file", "root_prefix", "socket_queue_size", "thread_pool"}
	said := s.fails(64, "rest_cherrypy: {nosuch: 1}\n")
	list := regexp.MustCompile(`there are ([a-z_., ]+)`).FindStringSubmatch(said)
	if list == nil {
		t.Fatalf("an unknown setting is answered by\n%s", said)
	}
	for _, name := range strings.Split(strings.TrimSpace(list[1]), ", ") {
		if effects[name] == nil && !slices.Contains(none, name) {
			t.Errorf("no test looks at the effect of %s", name)
		}
	}
}

// account is a Unix user.
type account struct {
	name     string
	uid, gid int
}

// newAccount makes a Unix user without any rights, until the test ends.
func newAccount(t *testing.T, number int) *account {
	t.Helper()
	name := fmt.Sprintf("brapi%dx%d", os.Getpid(), number)
	manage := func(args ...string) error { // others may hold the lock of the user database
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		for end := time.Now().Add(time.Minute); err != nil && strings.Contains(string(out), "lock") && time.Now().Before(end); {
			out, err = exec.Command(args[0], args[1:]...).CombinedOutput()
		}
		if err != nil {
			err = fmt.Errorf("%v: %w: %s", args, err, out)
		}
		return err
	}
	if err := manage("useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := manage("userdel", name); err != nil {
			t.Error(err)
		}
	})
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, badUID := strconv.Atoi(u.Uid)
	gid, badGID := strconv.Atoi(u.Gid)
	if badUID != nil || badGID != nil {
		t.Fatal(u)
	}
	return &account{name, uid, gid}
}

// command runs a program as the user; it cannot gain more rights.
func (a *account) command(args ...string) *exec.Cmd {
	return exec.Command("setpriv", append([]string{"--reuid", strconv.Itoa(a.uid), "--regid", strconv.Itoa(a.gid), "--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"}, args...)...)
}

// TestAsAUserOfItsOwn: salt-api runs as a Unix user without any rights. The master accepts
// addresses of clients from it if api_user names that user, and from no other user.
func TestAsAUserOfItsOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can act as another user")
	}
	for _, program := range []string{"useradd", "userdel", "setpriv"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: %v", err)
		}
	}
	named, unknown := newAccount(t, 1), newAccount(t, 2)
	s := startMaster(t, "api_user: [salt-api, 'client:web']", "api_user: "+named.name, "event_acl:\n", "event_acl:\n  "+named.name+": {fire: salt/netapi/hook/open/*}\n")
	root := (&issuer{t: t}).issue("root", true)
	own := root.issue("own", false)
	s.write("own.crt", own.pem())
	s.write("own.key", own.keyPEM())
	const settings = "netapi_enable_clients: [runner]\nrest_cherrypy:\n  port: <port>\n  host: 127.0.0.1\n  ssl_crt: own.crt\n  ssl_key: own.key\n  webhook_disable_auth: true\n"
	key := filepath.Join(s.root, "own.key")
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	s.write("etc-bad/master", fmt.Sprintf("root_dir: %s\n", s.root)+strings.ReplaceAll(settings, "<port>", "8000"))
	c := named.command(filepath.Join(bin, "salt-api"), "-c", filepath.Join(s.root, "etc-bad"))
	if out, err := c.CombinedOutput(); c.ProcessState.ExitCode() != 77 {
		t.Errorf("with a key that it may not read: %v\n%s", err, out)
	}
	serve := func(a *account) *site {
		t.Helper()
		if err := os.Chown(key, a.uid, a.gid); err != nil {
			t.Fatal(err)
		}
		s.user = a
		return newSite(t, "https://"+s.api(a.name, settings), root)
	}
	o := serve(named)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pids["own/"+named.name]))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{fmt.Sprintf(`(?m)^Uid:\s+%[1]d\s+%[1]d\s+%[1]d`, named.uid), `(?m)^Groups:\s*$`, `(?m)^CapEff:\s+0+$`, `(?m)^CapBnd:\s+0+$`} {
		if !regexp.MustCompile(want).Match(status) {
			t.Errorf("the process has no %s:\n%s", want, status)
		}
	}
	session := o.login()
	o.want("what the login may", http.StatusOK, "/", sessionRun, "X-Auth-Token", session)
	o.want("a wrong password", http.StatusUnauthorized, "/login", strings.Replace(adminLogin, "adminpw", "guess", 1))
	if found := s.tool("salt-run", "audit.search", "user=admin", "--out", "json"); !strings.Contains(found, `"source": "127.0.0.1"`) {
		t.Errorf("the audit log does not have the address:\n%.2000s", found)
	}
	o.want("an event that event_acl grants to the user", http.StatusOK, "/hook/open/x", "{}")
	o.want("an event that it does not", http.StatusUnauthorized, "/hook/other", "{}")
	if heard := s.tool("salt-event", "listen", "--since", "1h", "--until-end", "--tag", "salt/netapi/"); !strings.Contains(heard, `"from":"user:`+named.name+`"`) || strings.Contains(heard, "hook/other") {
		t.Errorf("the events are\n%s", heard)
	}
	for _, args := range [][]string{{"salt-run", "manage.up"}, {"salt-run", "config.values"}, {"salt-event", "listen", "--until-end"}} {
		c := named.command(append([]string{filepath.Join(bin, args[0]), "-c", filepath.Join(s.root, "etc")}, args[1:]...)...)
		if out, err := c.CombinedOutput(); c.ProcessState.ExitCode() != 77 {
			t.Errorf("the user itself, %v: %v\n%s", args, err, out)
		}
	}
	serve(unknown).want("a login over a user whom api_user does not name", http.StatusUnauthorized, "/login", adminLogin)
}
