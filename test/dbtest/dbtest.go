// Package dbtest starts real database servers for tests: PostgreSQL and MariaDB
// as they are installed on this machine, each in a directory of its own behind a
// Unix socket, as an ordinary user, gone at the end of the test. A test that needs
// one that is not installed is skipped, and says so.
//
// It does not install them.
package dbtest

import (
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver of DB
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of DB

	"github.com/brinebus/brine/test/port"
)

// Password is that of the user salt.
const Password = "open-sesame-4711"

// Server is one database server with the database salt and the user salt.
type Server struct {
	Kind         string // as in the configuration of a sink
	Host         string // what host is to be there
	PasswordFile string

	t       testing.TB
	dir     string
	args    []string // how to start it
	port    int      // of ListenTLS
	network []string // what is more to start it since then
	crash   syscall.Signal
	driver  string
	source  string
	cmd     *exec.Cmd
}

// Servers are the kinds, for tests that take them all.
var Servers = map[string]func(testing.TB) *Server{"mysql": MariaDB, "postgresql": PostgreSQL}

// PostgreSQL starts a server of that kind.
func PostgreSQL(t testing.TB) *Server {
	t.Helper()
	initdb, postgres := find(t, "initdb", "/usr/lib/postgresql/*/bin"), find(t, "postgres", "/usr/lib/postgresql/*/bin")
	s := newServer(t, "postgresql")
	s.Host, s.crash = s.dir, syscall.SIGQUIT // SIGKILL would leave its children behind
	s.run(initdb, "-D", s.dir+"/data", "-U", "salt", "-A", "scram-sha-256", "--pwfile="+s.dir+"/first", "--no-sync", "-E", "UTF8", "--locale=C")
	s.args = []string{postgres, "-D", s.dir + "/data", "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off"}
	s.driver, s.source = "pgx", fmt.Sprintf("host=%s user=salt password=%s dbname=postgres", s.dir, Password)
	s.Start()
	s.Exec("CREATE DATABASE salt")
	s.source = strings.Replace(s.source, "dbname=postgres", "dbname=salt", 1)
	return s
}

// MariaDB starts a server of that kind.
func MariaDB(t testing.TB) *Server {
	t.Helper()
	install, mariadbd := find(t, "mariadb-install-db", "/usr/bin"), find(t, "mariadbd", "/usr/sbin")
	s := newServer(t, "mysql")
	s.Host, s.crash = s.dir+"/sock", syscall.SIGKILL
	s.run(install, "--no-defaults", "--datadir="+s.dir+"/data", "--auth-root-authentication-method=normal", "--skip-test-db")
	users := "CREATE DATABASE IF NOT EXISTS salt;\n"
	for _, host := range []string{"localhost", "'127.0.0.1'"} {
		users += "CREATE USER IF NOT EXISTS salt@" + host + " IDENTIFIED BY '" + Password + "';\nGRANT ALL ON *.* TO salt@" + host + " WITH GRANT OPTION;\n"
	}
	if err := os.WriteFile(s.dir+"/init.sql", []byte(users), 0o644); err != nil {
		t.Fatal(err)
	}
	s.args = []string{
		mariadbd, "--no-defaults", "--datadir=" + s.dir + "/data", "--socket=" + s.Host, "--skip-networking", "--pid-file=" + s.dir + "/pid",
		"--tmpdir=" + s.dir, "--init-file=" + s.dir + "/init.sql",
		"--innodb-flush-log-at-trx-commit=2", // a commit outlives the process, if not the machine
		"--innodb-buffer-pool-size=16M",
	}
	s.driver, s.source = "mysql", fmt.Sprintf("salt:%s@unix(%s)/salt", Password, s.Host)
	s.Start()
	return s
}

// find looks for a program in the path and then in dirs, a pattern, of which the
// last one is taken.
func find(t testing.TB, name, dirs string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped with -short: it starts a database server")
	}
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	list, err := filepath.Glob(filepath.Join(dirs, name))
	if err != nil || len(list) == 0 {
		t.Skipf("SKIPPED, NOT TESTED: %s is not installed", name)
	}
	return list[len(list)-1]
}

// newServer makes the directory, short enough for the path of a socket.
func newServer(t testing.TB, kind string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "salt-db")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Server{Kind: kind, PasswordFile: filepath.Join(t.TempDir(), "password"), t: t, dir: dir}
	for path, mode := range map[string]os.FileMode{s.PasswordFile: 0o600, dir + "/first": 0o644} {
		if err := os.WriteFile(path, []byte(Password+"\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// nobody is whom the servers run as when the test is root's: they refuse to be
// root.
const nobody = 65534

func (s *Server) command(args ...string) *exec.Cmd {
	c := exec.Command(args[0], args[1:]...)
	c.Dir = s.dir
	c.Env = append(os.Environ(), "HOME="+s.dir, "TMPDIR="+s.dir, "LC_ALL=C") // that of the tests may be closed to them
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Geteuid() == 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return c
}

func (s *Server) run(args ...string) {
	s.t.Helper()
	if out, err := s.command(args...).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", args[0], err, out)
	}
}

// Start starts the server and returns when it answers.
func (s *Server) Start() {
	s.t.Helper()
	log, err := os.OpenFile(s.dir+"/log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd = s.command(slices.Concat(s.args, s.network)...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.Stop)
	db := s.DB()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if err = db.Ping(); err == nil {
			return
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(s.dir + "/log")
			s.t.Fatalf("%s does not answer: %v\n%s", s.Kind, err, text)
		}
	}
}

// Stop ends the server as a crash would. It may be called twice.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(s.crash)
	_ = s.cmd.Wait()
	s.cmd = nil
}

// ListenTLS starts the server again, now also on a port of 127.0.0.1, which it
// returns, with the certificate c; without one it has no TLS there.
func (s *Server) ListenTLS(c *tls.Certificate) int {
	s.t.Helper()
	s.Stop()
	s.port = port.Free(s.t)
	s.network = s.listening(c)
	s.Start()
	return s.port
}

// listening are the arguments that make the server listen on its port.
func (s *Server) listening(c *tls.Certificate) []string {
	cert, key := s.dir+"/cert.pem", s.dir+"/key.pem"
	if c != nil {
		s.writeCertificate(cert, key, c)
	}
	n := strconv.Itoa(s.port)
	switch {
	case s.Kind == "mysql" && c != nil:
		return []string{"--skip-networking=0", "--bind-address=127.0.0.1", "--port=" + n, "--ssl-cert=" + cert, "--ssl-key=" + key}
	case s.Kind == "mysql":
		return []string{"--skip-networking=0", "--bind-address=127.0.0.1", "--port=" + n, "--skip-ssl"}
	case c != nil:
		return []string{"-c", "listen_addresses=127.0.0.1", "-c", "port=" + n, "-c", "ssl=on", "-c", "ssl_cert_file=" + cert, "-c", "ssl_key_file=" + key}
	}
	return []string{"-c", "listen_addresses=127.0.0.1", "-c", "port=" + n}
}

// writeCertificate writes files that the user of the server may read.
func (s *Server) writeCertificate(cert, key string, c *tls.Certificate) {
	s.t.Helper()
	private, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err == nil {
		err = errors.Join(
			os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}), 0o644),
			os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	}
	if err == nil && os.Geteuid() == 0 {
		err = os.Chown(key, nobody, nobody)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// DB is a database of the user salt, closed at the end of the test. Each use of it
// has a connection of its own: one that was kept would have died with a server
// that was stopped meanwhile.
func (s *Server) DB() *sql.DB {
	s.t.Helper()
	source := s.source
	if s.Kind == "postgresql" && s.port > 0 {
		source += " port=" + strconv.Itoa(s.port) // which names its socket, too
	}
	db, err := sql.Open(s.driver, source)
	if err != nil {
		s.t.Fatal(err)
	}
	db.SetMaxIdleConns(0)
	s.t.Cleanup(func() { db.Close() })
	return db
}

// Exec runs a statement.
func (s *Server) Exec(statement string) {
	s.t.Helper()
	if _, err := s.DB().Exec(statement); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

// Settings is the destination of a rule, in one line of YAML.
func (s *Server) Settings(more string) string {
	return fmt.Sprintf("%s: {host: %s, database: salt, user: salt, password_file: %s%s}", s.Kind, s.Host, s.PasswordFile, more)
}
