package upstream_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/test/bustest"
)

// A server that wants more of a minion than a server may gets nothing: no certificate without
// TLS, and no signature of a text that is no nonce.
func TestServersThatAskForMore(t *testing.T) {
	own := bustest.Key(t)
	certificate, err := own.Certificate("nats")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(certificate.Certificate[0])
	pin := hex.EncodeToString(sum[:])
	for name, c := range map[string]struct {
		nonce    string
		required bool // TLS
		speaks   bool // TLS 1.3 with the pinned certificate
		connects bool
	}{
		"what it should be":          {"Zl4hmVzzQdV-_0A", true, true, true},
		"no TLS":                     {"Zl4hmVzzQdV-_0A", false, false, false},
		"the text of a handshake":    {strings.Repeat(" ", 64) + "TLS 1.3, client CertificateVerify\x00" + strings.Repeat("h", 32), true, true, false},
		"a long text of the letters": {strings.Repeat("a", 65), true, true, false},
		"no nonce":                   {"", true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			got := make(chan string, 1)
			go func() { got <- hearConnect(l, c.nonce, c.required, c.speaks, certificate) }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err = upstream.Connect(ctx, upstream.Options{
				Address: "salt:4506", ID: "web1", Key: bustest.Key(t), PinFile: filepath.Join(t.TempDir(), "pin"), Timeout: 5 * time.Second, PingInterval: time.Minute, Log: bustest.Log(t),
				Servers: upstream.Servers{Addresses: []string{l.Addr().String()}, Trust: pki.ServerPins{Fingers: []string{pin}}},
			})
			if err == nil {
				t.Error("it has connected")
			}
			l.Close()
			line := <-got
			if said := strings.HasPrefix(line, "CONNECT"); said != c.connects {
				t.Errorf("the server heard %.300q; the minion said %v", line, err)
			}
		})
	}
}

// TestWhatCannotEndByWaitingHasAHint: a key or a certificate has to be replaced, and the error says which.
func TestWhatCannotEndByWaitingHasAHint(t *testing.T) {
	certificate, err := bustest.Key(t).Certificate("nats")
	if err != nil {
		t.Fatal(err)
	}
	rsa, err := pki.Generate(pki.RSA, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key   *pki.PrivateKey
		trust pki.ServerPins
		hint  string
	}{
		"an RSA key":          {rsa, pki.ServerPins{Fingers: []string{strings.Repeat("ab", 32)}}, "key_type: ed25519"},
		"another certificate": {bustest.Key(t), pki.ServerPins{Fingers: []string{strings.Repeat("ab", 32)}}, "add it to nats_finger"},
		"another authority":   {bustest.Key(t), pki.ServerPins{CAFile: authority(t)}, "nats_ca must have the authority"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() { hearConnect(l, "Zl4hmVzzQdV-_0A", true, true, certificate); close(ended) }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err = upstream.Connect(ctx, upstream.Options{
				Address: "salt:4506", ID: "web1", Key: c.key, PinFile: filepath.Join(t.TempDir(), "pin"), Timeout: 5 * time.Second, PingInterval: time.Minute, Log: bustest.Log(t),
				Servers: upstream.Servers{Addresses: []string{l.Addr().String()}, Trust: c.trust},
			})
			l.Close()
			<-ended
			if hint := salt.Hint(err); !strings.Contains(hint, c.hint) {
				t.Errorf("%v, hint %q, want %q", err, hint, c.hint)
			}
			said, again := upstream.ToldUnreachable(err), upstream.ToldUnreachable(errors.New("connection refused"))
			if !strings.Contains(said, "level=ERROR") || !strings.Contains(said, " hint=") || !strings.Contains(said, c.hint) {
				t.Errorf("it is logged as: %s", said)
			}
			if !strings.Contains(again, "level=WARN") || strings.Contains(again, "hint=") {
				t.Errorf("what may end by waiting is logged as: %s", again)
			}
		})
	}
}

// authority is a file with a certificate that has signed no other one.
func authority(t *testing.T) string {
	t.Helper()
	c, err := bustest.Key(t).Certificate("authority")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// hearConnect plays a server up to the first line of one client, which it answers, and returns that.
func hearConnect(l net.Listener, nonce string, required, speaks bool, certificate tls.Certificate, answer ...string) string {
	conn, err := l.Accept()
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second)) // a closed connection ends the next read
	info, _ := json.Marshal(map[string]any{"server_id": "x", "version": "2.15.2", "proto": 1, "max_payload": 1 << 20, "headers": true, "auth_required": true, "tls_required": required, "nonce": nonce})
	if _, err := conn.Write([]byte("INFO " + string(info) + "\r\n")); err != nil {
		return ""
	}
	if speaks {
		conn = tls.Server(conn, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}})
	}
	line, _ := bufio.NewReader(conn).ReadString('\n')
	for _, text := range answer {
		_, _ = io.WriteString(conn, text) // the client may be gone
	}
	return line
}

// TestTheCheckOfAKeyAtServers: one that exists decides, whatever type a start would make; one that is of no use keeps
// nothing from starting.
func TestTheCheckOfAKeyAtServers(t *testing.T) {
	const servers = "nats_servers: ['nats1:4222']\nnats_finger: ['" + "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff" + "']\n"
	for name, c := range map[string]struct {
		settings, has string // of the key; "" for none
		start, check  string // words of the mistake
	}{
		"no key":                  {servers, "", "", ""},
		"no key and another type": {servers + "key_type: rsa\n", "", "would be rsa", ""},
		"an RSA key":              {servers, "rsa", "", "the key of this one is rsa"},
		"an Ed25519 key":          {servers + "key_type: rsa\n", "ed25519", "", ""},
		"no servers":              {"key_type: rsa\n", "rsa", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "minion"), []byte("root_dir: "+dir+"\nid: web1\n"+c.settings), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, _, err := config.LoadMinion(dir)
			if err != nil {
				t.Fatal(err)
			}
			if c.has != "" {
				if _, _, err := pki.EnsurePair(cfg.PKIDir, "minion", pki.KeyType(c.has), 2048); err != nil {
					t.Fatal(err)
				}
			}
			for what, m := range map[string]struct {
				err  error
				want string
			}{"start": {upstream.CheckServers(cfg), c.start}, "check": {upstream.CheckKey(cfg), c.check}} {
				if m.want == "" && m.err != nil || m.want != "" && (m.err == nil || !strings.Contains(m.err.Error(), m.want) || config.PlaceOf(m.err).Where == "" || salt.Hint(m.err) == "") {
					t.Errorf("%s: %v, want %q with a place and a hint", what, m.err, m.want)
				}
			}
		})
	}
}

// TestWhatIsSaidOfServersThatFail: one line for all of them, each reason once, and no word that names something else.
func TestWhatIsSaidOfServersThatFail(t *testing.T) {
	certificate, err := bustest.Key(t).Certificate("nats")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(certificate.Certificate[0])
	pin := pki.ServerPins{Fingers: []string{hex.EncodeToString(sum[:])}}
	serve := func(nonce string, after string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { defer close(ended); hearConnect(l, nonce, true, true, certificate, after) }()
		t.Cleanup(func() { l.Close(); <-ended })
		return l.Addr().String()
	}
	closed := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		return l.Addr().String()
	}
	const nonce, unnamed = "Zl4hmVzzQdV-_0A", "server.invalid:4222"
	one, other := closed(), closed()
	if one > other {
		one, other = other, one
	}
	for name, c := range map[string]struct {
		servers []string
		want    []string
		never   string
		hint    string
	}{
		"no nkeys":        {[]string{serve("", "")}, []string{"nkeys not supported"}, "no master is at work", "salt-master --nats-config"},
		"nobody answers":  {[]string{serve(nonce, "PING\r\n")}, []string{"no master is at work there, or it does not take this connection"}, "PONG", "see the log of the master"},
		"no address":      {[]string{unnamed}, []string{"through " + unnamed + ": the name of the server has no address"}, "name of the master", ""},
		"the same reason": {[]string{other, one}, []string{"connect to the master salt through " + one + ", " + other + ": connect: connection refused"}, ";", ""},
		"two reasons":     {[]string{one, unnamed}, []string{"through " + one + ": connect: connection refused; through " + unnamed}, "\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := upstream.Connect(ctx, upstream.Options{
				Address: "salt:4506", Name: "salt", ID: "web1", Key: bustest.Key(t), PinFile: filepath.Join(t.TempDir(), "pin"), Timeout: 5 * time.Second, PingInterval: time.Minute, Log: bustest.Log(t),
				Servers: upstream.Servers{Addresses: c.servers, Trust: pin},
			})
			if err == nil {
				t.Fatal("it has connected")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q, want %q", err, want)
				}
			}
			if strings.Contains(err.Error(), c.never) || !strings.Contains(salt.Hint(err), c.hint) {
				t.Errorf("%q, hint %q; want %q, and never %q", err, salt.Hint(err), c.hint, c.never)
			}
			if strings.HasPrefix(name, "no address") && !errors.Is(err, upstream.ErrNoAddress) {
				t.Errorf("%v is no ErrNoAddress", err)
			}
		})
	}
}
