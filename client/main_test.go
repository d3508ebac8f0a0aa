package client_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/saltevent"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/minion"
	"github.com/brinebus/brine/test/deadline"
)

// The one real master of these tests and examples, with one minion, web1: its socket, its port,
// its directory, and the credentials for "dash" made by salt-event creds.
var socket, port, root, credentials string

const settings = `
interface: 127.0.0.1
auto_accept: True
remote_login: True
event_acl:
  client:dash: {fire: dash/*, listen: dash/*}
  'sharedsecret:ada': {listen: ada/*}
external_auth:
  sharedsecret:
    ada: ['web1': [test.ping, test.echo], '@runner': [auth.list_tokens, auth.del_token]]
  client:
    dash: ['web1': [test.ping, test.sleep], '@runner': [manage.up]]
publisher_acl:
  dash: ['*': ['.*']]
  '.*': ['*': ['.*']]
sharedsecret: secret word
`

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "client-test")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), deadline.Most) // then waiting for the daemons fails
	ended := make(chan error, 2)
	started := 0
	defer func() {
		cancel()
		for range started {
			<-ended
		}
	}()
	root = filepath.Join(dir, "master")
	serve, address, err := newMaster(ctx, root)
	if err != nil {
		return fail(err)
	}
	started++
	go func() { ended <- serve(ctx) }()
	if serve, err = newMinion(ctx, filepath.Join(dir, "minion"), address); err != nil {
		return fail(err)
	}
	started++
	go func() { ended <- serve(ctx) }()
	if err := waitForMinion(ctx); err != nil {
		return fail(err)
	}
	credentials = filepath.Join(dir, "dash")
	if code := salt(ctx, "creds", "dash", "--dir", credentials, "--address", "127.0.0.1:"+port, "-c", root); code != 0 {
		return fail(fmt.Errorf("salt-event creds ends with %d", code))
	}
	return m.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// salt runs salt-event as the operator.
func salt(ctx context.Context, words ...string) int {
	var out bytes.Buffer
	env := &cli.Env{Name: "salt-event", Args: words, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }}
	code := saltevent.Run(ctx, env)
	if code != 0 {
		fmt.Fprintln(os.Stderr, out.String())
	}
	return code
}

func newMaster(ctx context.Context, dir string) (serve func(context.Context) error, a *net.TCPAddr, err error) {
	if err := write(filepath.Join(dir, "master"), "root_dir: "+dir+settings); err != nil {
		return nil, nil, err
	}
	cfg, _, err := config.LoadMaster(dir)
	if err != nil {
		return nil, nil, err
	}
	cfg.RetPort = 0 // any free port, which a file cannot request
	m, err := master.New(ctx, master.Options{Config: cfg, Version: "test", Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return nil, nil, err
	}
	socket = filepath.Join(cfg.SockDir, "master.sock")
	a, _ = m.Addr().(*net.TCPAddr)
	port = fmt.Sprint(a.Port)
	return m.Run, a, nil
}

func newMinion(ctx context.Context, dir string, of *net.TCPAddr) (func(context.Context) error, error) {
	if err := write(filepath.Join(dir, "minion"), fmt.Sprintf("root_dir: %s\nid: web1\nmaster: 127.0.0.1\nmaster_port: %d\n", dir, of.Port)); err != nil {
		return nil, err
	}
	cfg, _, err := config.LoadMinion(dir)
	if err != nil {
		return nil, err
	}
	m, err := minion.New(ctx, minion.Options{Config: cfg, Version: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return m.Run, nil
}

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// waitForMinion waits for the event of its start, even if that was stored before.
func waitForMinion(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := client.Connect(ctx, socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	l, err := conn.Listen(ctx, client.ListenOptions{Tags: []string{"salt/minion/web1/start"}, FromSeq: 1})
	if err != nil {
		return err
	}
	defer l.Close()
	_, err = l.Next(ctx)
	return err
}
