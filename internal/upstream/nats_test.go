package upstream_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/pki"
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

// hearConnect plays a server up to the first line of one client, and returns that.
func hearConnect(l net.Listener, nonce string, required, speaks bool, certificate tls.Certificate) string {
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
	return line
}
