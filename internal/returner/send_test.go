package returner

import (
	"bufio"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/brinebus/brine/internal/returner/database"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
)

// helper is a program in place of the one that talks to databases: it keeps what it
// is told in the file that is returned.
func helper(t *testing.T, script string) (program, got string) {
	t.Helper()
	dir := t.TempDir()
	program, got = filepath.Join(dir, "helper"), filepath.Join(dir, "got")
	text := "#!/bin/sh\n[ $# = 0 ] || exit 64\ncat > " + got + "\n" + script + "\n"
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return program, got
}

// Where a database is, and with which password, reaches the program on its standard
// input: settings of the minion, and nothing that the program would have to find.
func TestDatabases(t *testing.T) {
	authorities := filepath.Join("testdata", "authority.pem")
	pem, err := os.ReadFile(authorities)
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		returner string
		config   map[string]any
		want     database.Database
	}{
		"sqlite3":       {"sqlite3", map[string]any{"sqlite3.database": "/a b?#%.db"}, database.Database{Kind: "sqlite3", File: "/a b?#%.db"}},
		"postgres":      {"postgres", nil, database.Database{Kind: "postgres", Host: "localhost", Port: 5432, Name: "salt", User: "salt"}},
		"mysql":         {"mysql", nil, database.Database{Kind: "mysql", Host: "localhost", Port: 3306, Name: "salt", User: "salt"}},
		"mysql, older":  {"mysql", map[string]any{"returner.mysql.pass": "s3cret"}, database.Database{Kind: "mysql", Host: "localhost", Port: 3306, Name: "salt", User: "salt", Password: "s3cret"}},
		"a server":      {"postgres", map[string]any{"postgres.host": "db1", "postgres.port": 1, "postgres.db": "d", "postgres.user": "u", "postgres.passwd": "p"}, database.Database{Kind: "postgres", Host: "db1", Port: 1, Name: "d", User: "u", Password: "p", TLS: &database.TLS{}}},
		"in the clear":  {"postgres", map[string]any{"postgres.host": "db1", "postgres.ssl": false}, database.Database{Kind: "postgres", Host: "db1", Port: 5432, Name: "salt", User: "salt"}},
		"an authority":  {"mysql", map[string]any{"mysql.ssl_ca": authorities}, database.Database{Kind: "mysql", Host: "localhost", Port: 3306, Name: "salt", User: "salt", TLS: &database.TLS{Authorities: string(pem)}}},
		"TLS at home":   {"mysql", map[string]any{"mysql.ssl": true}, database.Database{Kind: "mysql", Host: "localhost", Port: 3306, Name: "salt", User: "salt", TLS: &database.TLS{}}},
		"a Unix socket": {"mysql", map[string]any{"mysql.host": "/run/my.sock"}, database.Database{Kind: "mysql", Host: "/run/my.sock", Port: 3306, Name: "salt", User: "salt"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := host(t, row.config)
			program, got := helper(t, "")
			h.Databases = program
			s, err := Open([]string{row.returner}, Options{}, h)
			if err != nil {
				t.Fatal(err)
			}
			s.Early(t.Context(), sample)
			if _, err := os.Stat(got); err == nil {
				t.Error("it was handed over before the master has the return")
			}
			s.Late(t.Context(), sample)
			text, err := os.ReadFile(got)
			var o database.Order
			if err != nil || json.Unmarshal(text, &o) != nil || !reflect.DeepEqual(o.Database, row.want) {
				t.Fatalf("it was told %s, %v; want %+v", text, err, row.want)
			}
			if o.Row.Fun != "cmd.run_all" || o.Row.JID != string(sample.JID) || o.Row.ID != "web1" || o.Row.Success != "True" {
				t.Errorf("row: %+v", o.Row)
			}
			sameJSON(t, "full_ret", o.Row.Full)
		})
	}
}

// What is wrong with the settings, or with the program, is told before anything runs.
func TestDatabasesThatAreNotReady(t *testing.T) {
	program, _ := helper(t, "")
	for name, row := range map[string]struct {
		returner string
		config   map[string]any
		program  string
		want     string
	}{
		"no file":        {"sqlite3", nil, program, "there is no database"},
		"no path":        {"sqlite3", map[string]any{"sqlite3.database": "x.db"}, program, "there is no database"},
		"no port":        {"mysql", map[string]any{"mysql.port": "many"}, program, "there is no such port"},
		"no certificate": {"postgres", map[string]any{"postgres.ssl_ca": "/dev/null"}, program, "there is no certificate in /dev/null"},
		"no program":     {"postgres", nil, "/nonexistent/salt-returner", "the program that talks to databases is not there"},
		"none to run":    {"mysql", nil, "/etc/passwd", "the program that talks to databases is not there"},
	} {
		h := host(t, row.config)
		h.Databases = row.program
		if _, err := Open([]string{row.returner}, Options{}, h); err == nil || !strings.Contains(err.Error(), row.want) || salt.Hint(err) == "" {
			t.Errorf("%s: %v (hint %q), want %q", name, err, salt.Hint(err), row.want)
		}
	}
}

// A program that fails is an error in its words, without the password.
func TestADatabaseThatDoesNotTakeIt(t *testing.T) {
	h := host(t, map[string]any{"mysql.pass": "s3cret"})
	h.Databases, _ = helper(t, "echo the table is full >&2; exit 1")
	send, err := openMySQL(h, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := send(t.Context(), sample); err == nil || !strings.Contains(err.Error(), "the table is full") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("it says %v", err)
	}
}

// mailServer takes one mail.
func mailServer(t *testing.T) (port string, mails <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	got := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "220 test\r\n")
		r := bufio.NewReader(conn)
		var written strings.Builder
		for inData := false; ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			switch {
			case inData && line == ".\r\n":
				inData = false
				got <- written.String()
				fmt.Fprint(conn, "250 ok\r\n")
			case inData:
				written.WriteString(line)
			case strings.HasPrefix(line, "DATA"):
				inData = true
				fmt.Fprint(conn, "354 go on\r\n")
			case strings.HasPrefix(line, "QUIT"):
				fmt.Fprint(conn, "221 bye\r\n")
				return
			default:
				fmt.Fprint(conn, "250 ok\r\n")
			}
		}
	}()
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, got
}

func TestSMTP(t *testing.T) {
	port, mails := mailServer(t)
	config := map[string]any{"smtp.host": "127.0.0.1", "smtp.port": port, "smtp.from": "salt@example.com", "smtp.to": "me@example.com, You <you@example.com>", "smtp.subject": "{fun}\r\nBcc: x on {id}"}
	send, err := openSMTP(host(t, config), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := send(t.Context(), sample); err != nil {
		t.Fatal(err)
	}
	m, err := mail.ReadMessage(strings.NewReader(deadline.Receive(t, mails, "mails")))
	if err != nil {
		t.Fatal(err)
	}
	if m.Header.Get("Subject") != "cmd.run_all Bcc: x on web1" || m.Header.Get("Bcc") != "" || m.Header.Get("From") != "<salt@example.com>" {
		t.Errorf("header: %v", m.Header)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	if err != nil {
		t.Fatal(err)
	}
	sameJSON(t, "body", string(body))
	port, _ = mailServer(t)
	config["smtp.port"], config["smtp.username"], config["smtp.password"] = port, "me", "s3cret"
	if send, err = openSMTP(host(t, config), Options{}); err != nil {
		t.Fatal(err)
	}
	if err := send(t.Context(), sample); err == nil || !strings.Contains(err.Error(), "has no TLS") {
		t.Errorf("a password for a server without TLS: %v", err)
	}
	if _, err := openSMTP(host(t, nil), Options{}); err == nil || salt.Hint(err) == "" {
		t.Errorf("without addresses: %v", err)
	}
}

// TestRedirectionsAreNotFollowed: the page that they lead to does not have the return.
func TestRedirectionsAreNotFollowed(t *testing.T) {
	var elsewhere atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if code, err := strconv.Atoi(strings.Trim(q.URL.Path, "/")); err == nil {
			http.Redirect(w, q, "/elsewhere", code)
			return
		}
		elsewhere.Add(1)
		fmt.Fprint(w, "<result><status>0</status></result>")
	}))
	defer server.Close()
	for _, code := range []string{"301", "302", "303", "307", "308"} {
		address := server.URL + "/" + code
		for name, open := range map[string]func(*Host, Options) (sender, error){"http": openHTTP, "nagios_nrdp": openNRDP} {
			send, err := open(host(t, map[string]any{"http.url": address, "nagios_nrdp.url": address, "nagios_nrdp.token": "t0ken"}), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := send(t.Context(), sample); err == nil || !strings.Contains(err.Error(), code) {
				t.Errorf("%s, status %s: %v", name, code, err)
			}
		}
	}
	if n := elsewhere.Load(); n > 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}

func TestNRDP(t *testing.T) {
	answer := "<result><status>0</status><message>OK</message></result>"
	forms := make(chan map[string][]string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_ = q.ParseForm()
		forms <- q.PostForm
		fmt.Fprint(w, answer)
	}))
	defer server.Close()
	send, err := openNRDP(host(t, map[string]any{"nagios_nrdp.url": server.URL, "nagios_nrdp.token": "t0ken", "nagios_nrdp.service": "procs"}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	critical := sample
	critical.Return = map[string]any{"stdout": "PROCS <CRITICAL> & more", "retcode": int64(2)}
	if err := send(t.Context(), critical); err != nil {
		t.Fatal(err)
	}
	form := deadline.Receive(t, forms, "forms")
	var got checkResults
	if err := xml.Unmarshal([]byte(form["XMLDATA"][0]), &got); err != nil {
		t.Fatal(err)
	}
	want := checkResult{Type: "service", CheckType: "1", Host: "web1", Service: "procs", State: 2, Output: "PROCS <CRITICAL> & more"}
	if got.Result != want || form["token"][0] != "t0ken" || form["cmd"][0] != "submitcheck" {
		t.Errorf("sent %+v, %v; want %+v", got.Result, form, want)
	}
	answer = "<result><status>-1</status><message>BAD TOKEN</message></result>"
	if err := send(t.Context(), sample); err == nil || !strings.Contains(err.Error(), "BAD TOKEN") || strings.Contains(err.Error(), "t0ken") {
		t.Errorf("a refusal: %v", err)
	}
	for _, answer = range []string{"", "<html><body>Sign in</body></html>", "<result></result>", "<!DOCTYPE html><p>Sign in"} {
		if err := send(t.Context(), sample); err == nil {
			t.Errorf("the answer %q counts as a success", answer)
		}
	}
	for code, want := range map[any]int{int64(0): 0, int64(3): 3, int64(77): 3, nil: 3, 1: 1} {
		if got := state(code); got != want {
			t.Errorf("state(%v) = %d, want %d", code, got, want)
		}
	}
	if _, err := openNRDP(host(t, map[string]any{"nagios_nrdp.url": server.URL}), Options{}); err == nil || salt.Hint(err) == "" {
		t.Errorf("without a token: %v", err)
	}
}

// TestRowOfSeveralFunctions: the columns have limits, which servers insist on.
func TestRowOfSeveralFunctions(t *testing.T) {
	r := sample
	for name, success := range map[string]map[string]any{"True": {"test.ping": true, "cmd.run": true}, "False": {"test.ping": true, "cmd.run": false}} {
		r.Success = success
		r.Fun = []any{}
		for range 40 {
			r.Fun = append(r.Fun.([]any), "test.ping")
		}
		row, err := rowOf(r)
		if err != nil || row.Success != name || len(row.Fun) != maxFun || !strings.Contains(row.Full, `"cmd.run"`) {
			t.Errorf("%v: %+v, %v", success, row, err)
		}
	}
}
