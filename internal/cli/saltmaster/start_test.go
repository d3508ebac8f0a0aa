package saltmaster

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/test/deadline"
)

// TestAStartAnswersMonitoring: a supervisor and Prometheus get answers while a start goes on, here one that waits for its
// NATS servers.
func TestAStartAnswersMonitoring(t *testing.T) {
	dir := t.TempDir()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close() // nobody listens there
	text := "root_dir: " + dir + "\nmetrics_listen: unix:metrics.sock\nnats_jetstream: True\nnats_servers: ['" + nobody.Addr().String() + "']\nnats_finger: [" + strings.Repeat("ab", 32) + "]\n"
	if err := os.WriteFile(filepath.Join(dir, "master"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- Run(ctx, &cli.Env{Name: "salt-master", Args: []string{"-c", dir}, Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }})
	}()
	defer func() {
		stop()
		if code := deadline.Receive(t, ended, "the end of the start"); code != 0 {
			t.Errorf("it ends with %d", code)
		}
	}()
	socket := filepath.Join(dir, "metrics.sock")
	deadline.Until(t, func() bool { _, err := os.Stat(socket); return err == nil }, "the socket")
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	get := func(path string) (int, string) {
		t.Helper()
		r, err := client.Get("http://daemon" + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(body)
	}
	deadline.Until(t, func() bool {
		code, said := get("/readyz")
		if code != http.StatusServiceUnavailable || !strings.HasPrefix(said, "the master is starting") {
			t.Fatalf("/readyz: %d %s", code, said)
		}
		return strings.Contains(said, "not connected to the NATS servers as minions")
	}, "the reason")
	if code, said := get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, said)
	}
	code, said := get("/metrics")
	if code != http.StatusOK || !strings.Contains(said, "\nsalt_build_info{daemon=\"master\"") || !strings.Contains(said, "\nsalt_process_resident_memory_bytes ") {
		t.Errorf("/metrics: %d %s", code, said)
	}
	if strings.Contains(said, "\nsalt_keys{") || strings.Contains(said, "\nsalt_store_failed ") {
		t.Errorf("it claims to know its keys and its store: %s", said)
	}
}
