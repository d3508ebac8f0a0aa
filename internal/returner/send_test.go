package returner

import (
	"bufio"
	"database/sql"
	"encoding/xml"
	"fmt"
	"io"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/salt"
	"brine/internal/sink/dbtest"
)

func TestSQLite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a b?#%.db")
	s, err := Open([]string{"sqlite3"}, Options{}, host(t, map[string]any{"sqlite3.database": file}))
	if err != nil {
		t.Fatal(err)
	}
	s.Early(t.Context(), sample)
	s.Late(t.Context(), sample)
	s.Late(t.Context(), sample)
	db, err := sql.Open("sqlite", "file:"+strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(file))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	wantRows(t, db, 2)
	if _, err := Open([]string{"sqlite3"}, Options{}, host(t, nil)); err == nil || salt.Hint(err) == "" {
		t.Errorf("without a file: %v", err)
	}
}

// wantRows looks at what a database has.
func wantRows(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	var count int
	if err := db.QueryRow("SELECT count(*) FROM salt_returns").Scan(&count); err != nil || count != n {
		t.Fatalf("%d rows, %v; want %d", count, err, n)
	}
	var fun, jid, id, success, full string
	if err := db.QueryRow("SELECT fun, jid, id, success, full_ret FROM salt_returns").Scan(&fun, &jid, &id, &success, &full); err != nil {
		t.Fatal(err)
	}
	if fun != "cmd.run_all" || jid != string(sample.JID) || id != "web1" || success != "True" {
		t.Errorf("row: %s %s %s %s", fun, jid, id, success)
	}
	sameJSON(t, "full_ret", full)
}

func TestDatabaseServers(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *dbtest.Server{"postgres": dbtest.PostgreSQL, "mysql": dbtest.MariaDB} {
		t.Run(name, func(t *testing.T) {
			server := start(t)
			h := host(t, map[string]any{name + ".host": server.Host, name + ".db": "salt", name + ".user": "salt", name + ".passwd": dbtest.Password})
			s, err := Open([]string{name}, Options{}, h)
			if err != nil {
				t.Fatal(err)
			}
			s.Late(t.Context(), sample)
			s.Late(t.Context(), sample)
			wantRows(t, server.DB(), 2)
			server.Stop()
			send, err := h.find(name)
			if err != nil {
				t.Fatal(err)
			}
			one, err := send.open(h, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := one(t.Context(), sample); err == nil || strings.Contains(err.Error(), dbtest.Password) {
				t.Errorf("a server that is away: %v", err)
			}
		})
	}
}

// mailServer takes one letter.
func mailServer(t *testing.T) (port string, letters <-chan string) {
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
		var letter strings.Builder
		for inData := false; ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			switch {
			case inData && line == ".\r\n":
				inData = false
				got <- letter.String()
				fmt.Fprint(conn, "250 ok\r\n")
			case inData:
				letter.WriteString(line)
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
	port, letters := mailServer(t)
	config := map[string]any{"smtp.host": "127.0.0.1", "smtp.port": port, "smtp.from": "salt@example.com", "smtp.to": "me@example.com, You <you@example.com>", "smtp.subject": "{fun}\r\nBcc: x on {id}"}
	send, err := openSMTP(host(t, config), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := send(t.Context(), sample); err != nil {
		t.Fatal(err)
	}
	m, err := mail.ReadMessage(strings.NewReader(<-letters))
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

func TestNRDP(t *testing.T) {
	answer := "<result><status>0</status><message>OK</message></result>"
	forms := make(chan map[string][]string, 4)
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
	form := <-forms
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
	for code, want := range map[any]int{int64(0): 0, int64(3): 3, int64(77): 3, nil: 3, 1: 1} {
		if got := state(code); got != want {
			t.Errorf("state(%v) = %d, want %d", code, got, want)
		}
	}
	if _, err := openNRDP(host(t, map[string]any{"nagios_nrdp.url": server.URL}), Options{}); err == nil || salt.Hint(err) == "" {
		t.Errorf("without a token: %v", err)
	}
}
