package netapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/test/deadline"
	"github.com/brinebus/brine/test/port"
	"github.com/brinebus/brine/test/programs"
)

// bin has the programs, once build has made them.
var bin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		defer func() { os.RemoveAll(bin) }()
		return m.Run()
	}())
}

// build makes the programs, for the first test that needs them. The processes of a fuzz target, which are
// killed when their time is over, so have none to leave behind.
func build(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped with -short: it builds and runs the programs")
	}
	if err := putPrograms(); err != nil {
		t.Fatal(err)
	}
}

var putPrograms = sync.OnceValue(func() (err error) {
	if bin, err = os.MkdirTemp("", "brine-api-bin"); err != nil {
		return err
	}
	return programs.Put(bin, "salt", "salt-api", "salt-event", "salt-master", "salt-minion", "salt-run")
})

// system is a master with two minions.
type system struct {
	t    testing.TB
	root string
	port int
	user *account // the user that salt-api runs as; nil is the one that runs the test
	pids map[string]int
}

// users is the user file of external_auth.
const users = "admin:adminpw\nlimited:limitedpw\njobsuser:jobspw\nshorty:shortpw\nother:otherpw\n"

// masterConf is the recorded configuration for Brine: what Salt grants by @runner and @wheel
// for everything, and the events that every login gets there, are granted here by name.
const masterConf = `root_dir: %[1]s
interface: 127.0.0.1
ret_port: %[2]d
auto_accept: true
timeout: 4
log_level: info
external_auth:
  file:
    ^filename: %[1]s/users
    ^hashtype: plaintext
    admin: ['.*', '@runner', '@wheel', '@jobs', {'@target': ['I@secret']}%[3]s]
    limited: ['test.*', {'web*': [grains.get]}, {'@runner': [jobs.list_jobs]}]
    jobsuser: ['@jobs']
    shorty: ['.*']
    other: ['test.ping']
  sharedsecret:
    pepper: ['.*', '@jobs', '@wheel', '@runner']
sharedsecret: pepper
api_user: [salt-api, 'client:web']
token_expire_user_override: {file: [shorty], sharedsecret: [pepper]}
saltgui_templates: {tpl1: {description: First, target: '*', command: test.ping}}
nodegroups: {web: 'web*', all: '*'}
event_acl:
  'file:admin': {listen: '*', fire: 'salt/netapi/hook*'}
  'file:jobsuser': {listen: 'salt/job/*'}
  'file:shorty': {listen: 'salt/job/*'}
  'file:limited': {listen: 'own/*'}
file_roots: {base: [%[1]s/srv]}
pillar_roots: {base: [%[1]s/pillar]}
`

// start runs the master and the minions.
func start(t testing.TB) *system {
	t.Helper()
	return startWith(t, "")
}

// startWith grants admin more; keys are then not accepted automatically.
func startWith(t testing.TB, more string) *system {
	t.Helper()
	s := prepare(t)
	s.write("srv/x", "")
	s.write("pillar/top.sls", "base:\n  '*':\n    - all\n")
	s.write("pillar/all.sls", "secret: s3\n")
	conf := fmt.Sprintf(masterConf, s.root, s.port, more)
	if more != "" {
		conf = strings.Replace(conf, "auto_accept: true", "autosign_file: "+s.root+"/autosign", 1)
		s.write("autosign", "web1\ndb1\n")
	}
	s.write("etc/master", conf)
	s.run("salt-master", "etc", "master")
	for id, role := range map[string]string{"web1": "web", "db1": "db"} {
		s.minion(id, role)
	}
	s.await("the minions to be there", func() bool {
		out, err := exec.Command(filepath.Join(bin, "salt"), "-c", filepath.Join(s.root, "etc"), "*", "test.ping", "--out", "json").Output()
		return err == nil && bytes.Contains(out, []byte("web1")) && bytes.Contains(out, []byte("db1"))
	})
	return s
}

// prepare makes the directory of a system without starting anything.
func prepare(t testing.TB) *system {
	t.Helper()
	build(t)
	s := &system{t: t, root: t.TempDir(), port: port.Free(t), pids: map[string]int{}}
	if err := os.Chmod(filepath.Dir(s.root), 0o755); err != nil { // for programs that run as another user
		t.Fatal(err)
	}
	s.write("users", users)
	if err := os.Chmod(filepath.Join(s.root, "users"), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// startMaster starts the master alone, with each old text of its configuration replaced by the
// new one.
func startMaster(t testing.TB, oldnew ...string) *system {
	t.Helper()
	s := prepare(t)
	s.write("etc/master", strings.NewReplacer(oldnew...).Replace(fmt.Sprintf(masterConf, s.root, s.port, "")))
	s.run("salt-master", "etc", "master")
	s.await("the master to answer", func() bool {
		return exec.Command(filepath.Join(bin, "salt-run"), "-c", filepath.Join(s.root, "etc"), "test.arg").Run() == nil
	})
	return s
}

func (s *system) minion(id, role string) {
	dir := "etc-" + id
	s.write(dir+"/minion", fmt.Sprintf("id: %s\nroot_dir: %s/%s\nmaster: 127.0.0.1\nmaster_port: %d\ngrains: {role: %s}\n", id, s.root, id, s.port, role))
	s.run("salt-minion", dir, id)
}

// api runs salt-api with these settings and returns its address.
func (s *system) api(name, settings string) string {
	s.t.Helper()
	return s.apiAt("127.0.0.1", name, settings)
}

// apiAt is api with the address to listen on.
func (s *system) apiAt(host, name, settings string) string {
	s.t.Helper()
	n := port.Free(s.t)
	if s.user != nil { // its files are where it may write
		if err := errors.Join(os.MkdirAll(filepath.Join(s.root, "own"), 0o755), os.Chown(filepath.Join(s.root, "own"), s.user.uid, s.user.gid)); err != nil {
			s.t.Fatal(err)
		}
		name = "own/" + name
	}
	dir := "etc-" + strings.ReplaceAll(name, "/", "-")
	s.write(dir+"/master", fmt.Sprintf("root_dir: %[1]s\napi_pidfile: %[1]s/%[2]s.pid\napi_logfile: %[1]s/%[2]s.log\nlog_level: info\ntimeout: 4\n", s.root, name)+
		strings.ReplaceAll(settings, "<port>", fmt.Sprint(n)))
	s.run("salt-api", dir, name)
	address := net.JoinHostPort(host, strconv.Itoa(n))
	s.await("salt-api to listen", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return address
}

func (s *system) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *system) read(name string) []byte {
	b, err := os.ReadFile(filepath.Join(s.root, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	return b
}

func (s *system) there(name string) bool {
	_, err := os.Stat(filepath.Join(s.root, name))
	return err == nil
}

// run starts a program; it is ended with the test.
func (s *system) run(program, dir, name string) *exec.Cmd {
	s.t.Helper()
	out, err := os.Create(filepath.Join(s.root, name+".out"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	c := exec.Command(filepath.Join(bin, program), "-c", filepath.Join(s.root, dir))
	if s.user != nil && program == "salt-api" {
		c = s.user.command(c.Args...)
	}
	c.Stdout, c.Stderr = out, out
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.pids[name] = c.Process.Pid
	deadline.Guard(s.t, func() { _ = c.Process.Kill() }, name)
	s.t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
		done := make(chan struct{})
		go func() { _ = c.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			_ = c.Process.Kill()
			<-done
		}
		if s.t.Failed() {
			b, _ := os.ReadFile(filepath.Join(s.root, name+".out"))
			s.t.Logf("%s said:\n%s", name, tail(b))
		}
	})
	return c
}

func tail(b []byte) []byte {
	const most = 3000
	return b[max(0, len(b)-most):]
}

// await waits until f is true.
func (s *system) await(what string, f func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for !f() {
		select {
		case <-ctx.Done():
			s.t.Fatalf("waited in vain for %s", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tool runs one of the command-line tools and returns what it prints.
func (s *system) tool(program string, args ...string) string {
	s.t.Helper()
	out, err := exec.Command(filepath.Join(bin, program), append([]string{"-c", filepath.Join(s.root, "etc")}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// post sends JSON with a session, "" for none.
func post(t testing.TB, url, session, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	return send(t, "POST", url, session, body, append([]string{"Content-Type", "application/json"}, headers...)...)
}

func send(t testing.TB, method, url, session, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	if session != "" {
		req.Header.Set("X-Auth-Token", session)
	}
	for i := 0; i < len(headers); i += 2 {
		if req.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(res.Body); err != nil {
		t.Fatal(err)
	}
	return res, b.String()
}

// login returns the session of a user of the file.
func login(t testing.TB, address, user, password string, more ...string) string {
	t.Helper()
	body := fmt.Sprintf(`{"username":%q,"password":%q,"eauth":"file"%s}`, user, password, strings.Join(more, ""))
	res, text := post(t, "http://"+address+"/login", "", body)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("login of %s: %s\n%s", user, res.Status, text)
	}
	return res.Header.Get("X-Auth-Token")
}
