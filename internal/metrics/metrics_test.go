package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
)

// daemon is a source with one figure of each kind, and one state that a test may change.
type daemon struct {
	asked atomic.Int64
	sick  atomic.Pointer[error]
	waits atomic.Pointer[error]
}

func (d *daemon) Samples(context.Context) []Sample {
	d.asked.Add(1)
	return []Sample{Connections.Is(3, "minion"), Decisions.Is(7, "refused"), ListenerLag.Is(12, "root", `a"b`), JournalBytes.Is(1 << 20)}
}

func (d *daemon) Healthy(context.Context) error { return state(&d.sick) }
func (d *daemon) Ready() error                  { return state(&d.waits) }

func state(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
		return *err
	}
	return nil
}

// serve serves the figures of d until the test ends.
func serve(t *testing.T, d *daemon) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	latency := NewReturnLatency()
	latency.Observe(0.02)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Serve(ctx, l, d, latency, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() { stop(); deadline.Receive(t, done, "done") })
	return l.Addr().String()
}

func get(t *testing.T, address, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + address + path)
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

func TestFigures(t *testing.T) {
	code, text := get(t, serve(t, new(daemon)), "/metrics")
	if code != http.StatusOK {
		t.Fatalf("%d: %s", code, text)
	}
	for _, want := range []string{
		"# TYPE salt_connections gauge\n", `salt_connections{role="minion"} 3`, "# TYPE salt_decisions_total counter\n", `salt_decisions_total{verdict="refused"} 7`,
		`salt_listener_lag_events{listener="a\"b",user="root"} 12`, "salt_journal_bytes 1.048576e+06", `salt_return_seconds_bucket{le="0.025"} 1`,
		"salt_process_resident_memory_bytes ", "salt_go_goroutines ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, Prefix) && !strings.HasPrefix(line, "# HELP "+Prefix) && !strings.HasPrefix(line, "# TYPE "+Prefix) {
			t.Errorf("a name does not begin with %s: %s", Prefix, line)
		}
	}
}

// The daemon pays for one question a second, whoever asks and however often.
func TestManyAskLittle(t *testing.T) {
	d := new(daemon)
	a := &asked{source: d}
	h := handler(a, nil, slog.New(slog.DiscardHandler))
	for range 50 {
		w := &response{header: http.Header{}}
		r, _ := http.NewRequest("GET", "/metrics", nil)
		h.ServeHTTP(w, r)
		if w.code != 0 && w.code != http.StatusOK {
			t.Fatalf("%d", w.code)
		}
		if a.at.IsZero() {
			t.Fatal("nothing was collected")
		}
		a.at = time.Now() // a machine that stands still for a second does not matter to the test
	}
	if n := d.asked.Load(); n != 1 {
		t.Errorf("the daemon was asked %d times", n)
	}
}

type response struct {
	header http.Header
	code   int
}

func (r *response) Header() http.Header         { return r.header }
func (r *response) WriteHeader(code int)        { r.code = code }
func (r *response) Write(b []byte) (int, error) { return len(b), nil }

func TestHealth(t *testing.T) {
	for _, tc := range []struct {
		name        string
		sick, waits error
		health      int
		ready       int
		words       string
	}{
		{"well", nil, nil, 200, 200, "ok"},
		{"not ready", nil, errors.New("no master"), 200, 503, "no master"},
		{"sick", errors.New("the disk is full"), nil, 503, 503, "the disk is full"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := new(daemon)
			if tc.sick != nil {
				d.sick.Store(&tc.sick)
			}
			if tc.waits != nil {
				d.waits.Store(&tc.waits)
			}
			address := serve(t, d)
			if code, text := get(t, address, "/healthz"); code != tc.health {
				t.Errorf("/healthz: %d %s", code, text)
			}
			if code, text := get(t, address, "/readyz"); code != tc.ready || text != tc.words+"\n" {
				t.Errorf("/readyz: %d %s", code, text)
			}
		})
	}
}

// A client that connects and sends nothing, or half a request, does not take the connection of a
// collector.
func TestIdleConnectionsDoNotBlockACollector(t *testing.T) {
	address := serve(t, new(daemon))
	for i := range 3 * maxConns {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			fmt.Fprint(c, "GET /metrics HTTP/1.1\r\nHost: x")
		}
	}
	if code, _ := get(t, address, "/metrics"); code != http.StatusOK {
		t.Errorf("%d", code)
	}
}

// At most maxConns connections are open, and the oldest are closed first.
func TestOldestConnectionIsClosedAtTheLimit(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := newListener(inner)
	defer p.Close()
	var clients []net.Conn
	for range maxConns + 2 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
		if _, err := p.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.taken) != maxConns {
		t.Errorf("%d are connected", len(p.taken))
	}
	for _, c := range clients[:2] {
		if n, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("an old client is not cut off: %d, %v", n, err)
		}
	}
	for len(p.taken) > 0 {
		p.taken[0].Close()
	}
}

func TestOnlyGET(t *testing.T) {
	address := serve(t, new(daemon))
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		r, err := http.Post("http://"+address+path, "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", path, r.StatusCode)
		}
	}
	if code, _ := get(t, address, "/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("/debug/pprof/: %d", code)
	}
}

func TestParseAddress(t *testing.T) {
	for _, tc := range []struct {
		text   string
		public bool
		want   string // "" is refused
	}{
		{"127.0.0.1:9456", false, "127.0.0.1:9456"},
		{":9456", false, "127.0.0.1:9456"},
		{":9456", true, "127.0.0.1:9456"},
		{"localhost:9456", false, "127.0.0.1:9456"},
		{"[::1]:9456", false, "[::1]:9456"},
		{"unix:/run/metrics.sock", false, "/run/metrics.sock"},
		{"0.0.0.0:9456", false, ""},
		{"[::]:9456", false, ""},
		{"192.0.2.1:9456", false, ""},
		{"[::ffff:192.0.2.1]:9456", false, ""},
		{"192.0.2.1:9456", true, "192.0.2.1:9456"},
		{"0.0.0.0:9456", true, "0.0.0.0:9456"},
		{"example.org:9456", true, ""},
		{"9456", false, ""},
		{"127.0.0.1:", false, ""},
		{"unix:", false, ""},
	} {
		a, err := ParseAddress(tc.text, tc.public)
		if got := a.path + a.tcp; got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("ParseAddress(%q, %t) = %q, %v, want %q", tc.text, tc.public, got, err, tc.want)
		}
		if err != nil && strings.HasSuffix(tc.text, ":9456") && salt.Hint(err) == "" {
			t.Errorf("%q is refused without a way out", tc.text)
		}
	}
}

func TestTable(t *testing.T) {
	if !slices.IsSortedFunc(table, func(a, b *Metric) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the table is not in the order of names")
	}
	for _, m := range table {
		if strings.HasSuffix(m.Name, "_total") != (m.kind == prometheus.CounterValue) {
			t.Errorf("%s: the name of a counter ends with _total, and no other", m.Name)
		}
	}
}

// TestBoardAndAlerts holds the files for Grafana and Prometheus to the names and labels
// that there are.
func TestBoardAndAlerts(t *testing.T) {
	_, text := get(t, serve(t, new(daemon)), "/metrics")
	for _, file := range []string{"grafana/brine.json", "prometheus/brine-alerts.yml"} {
		body, err := os.ReadFile(filepath.Join("..", "..", "packaging", file))
		if err != nil {
			t.Fatal(err)
		}
		uses := regexp.MustCompile(`\bsalt_[a-z_]+(\{[^}]*\})?`).FindAllString(string(body), -1)
		if len(uses) < 8 {
			t.Errorf("%s uses only %v", file, uses)
		}
		for _, use := range uses {
			name, labels, _ := strings.Cut(strings.TrimSuffix(use, "}"), "{")
			checkUse(t, file, name, labels, text)
		}
	}
}

// TestAlertsAreExplained: whoever is woken by an alert finds what to do about it.
func TestAlertsAreExplained(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join("..", "..", "packaging", "prometheus", "brine-alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join("..", "..", "doc", "operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1)
	if rows := strings.Count(string(doc), "\n| `Salt"); rows != len(alerts) || rows == 0 {
		t.Errorf("doc/operating.md explains %d alerts, there are %d", rows, len(alerts))
	}
	for _, a := range alerts {
		if !strings.Contains(string(doc), "\n| `"+a[1]+"` | ") {
			t.Errorf("doc/operating.md does not say what to do about %s", a[1])
		}
	}
}

func checkUse(t *testing.T, file, name, labels, served string) {
	t.Helper()
	i := slices.IndexFunc(table, func(m *Metric) bool { return m.Name == name })
	if i < 0 {
		if !strings.Contains(served, "\n"+name+" ") && !strings.Contains(served, "\n"+name+"{") {
			t.Errorf("%s: there is no metric %s", file, name)
		}
		return
	}
	for _, label := range regexp.MustCompile(`([a-z_]+)\s*[=!]`).FindAllStringSubmatch(labels, -1) {
		if l := label[1]; !slices.Contains(table[i].Labels, l) && l != "job" && l != "instance" {
			t.Errorf("%s: %s has no label %s", file, name, l)
		}
	}
}
