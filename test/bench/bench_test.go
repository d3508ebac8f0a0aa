package bench

import (
	"crypto/tls"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/brinebus/brine/internal/pki"
)

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		name string
		s    Series
		q    float64
		want float64
	}{
		{"empty", nil, 0.5, 0},
		{"one", Series{7}, 0.9, 7},
		{"middle, whatever the order", Series{9, 1, 5}, 0.5, 5},
		{"best", Series{9, 1, 5}, 0, 1},
		{"worst", Series{9, 1, 5}, 1, 9},
	} {
		if got := c.s.Quantile(c.q); got != c.want {
			t.Errorf("%s: Quantile(%v) of %v is %v, want %v", c.name, c.q, c.s, got, c.want)
		}
	}
}

func TestQuantileLeavesTheSeriesAlone(t *testing.T) {
	s := Series{3, 1, 2}
	s.Median()
	if s[0] != 3 || s[1] != 1 {
		t.Errorf("the series became %v", s)
	}
}

func TestTable(t *testing.T) {
	for _, c := range []struct {
		name string
		row  Row
		want string
	}{
		{"both goals met", Row{What: "a", Unit: "ms", Brine: Series{10}, Bare: Series{8}, Beside: "b", Goal: 20, Ratio: 1.5},
			"| a | 10.0 ms | 8.00 ms | b | 1.25 | < 20.0 ms, < 1.5× | met |"},
		{"figure missed", Row{What: "a", Unit: "ms", Brine: Series{21}, Bare: Series{20}, Goal: 20, Ratio: 1.5},
			"| a | 21.0 ms | 20.0 ms |  | 1.05 | < 20.0 ms, < 1.5× | missed: figure |"},
		{"ratio missed", Row{What: "a", Unit: "ms", Brine: Series{19}, Bare: Series{10}, Goal: 20, Ratio: 1.5},
			"| a | 19.0 ms | 10.0 ms |  | 1.90 | < 20.0 ms, < 1.5× | missed: ratio |"},
		{"more is better", Row{What: "a", Unit: "/s", Brine: Series{700}, Bare: Series{1000}, Ratio: 0.8, More: true},
			"| a | 700 /s | 1000 /s |  | 0.70 | > 0.8× | missed: ratio |"},
		{"the ratio is that of the rounds", Row{What: "a", Unit: "ms", Brine: Series{1, 20, 3}, Bare: Series{1, 10, 1}},
			"| a | 3.00 ms (1.00–20.0) | 1.00 ms (1.00–10.0) |  | 2.00 |  |  |"},
		{"nothing to compare with", Row{What: "a", Unit: "ms", Brine: Series{1}, Ratio: 1.5}, "| a | 1.00 ms |  |  |  | < 1.5× |  |"},
	} {
		var b strings.Builder
		if err := writeRows(&b, []Row{c.row}); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		if got := lines[len(lines)-1]; got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestParseRollup(t *testing.T) {
	m, err := parseRollup(strings.NewReader("00400000-7ffd ---p 00000000 00:00 0 [rollup]\nRss:   20480 kB\nPss:   10240 kB\nPss_Dirty: 4 kB\n"))
	if err != nil || m.rss != 20 || m.pss != 10 {
		t.Errorf("got %+v, %v; want 20 and 10 MiB", m, err)
	}
	if _, err := parseRollup(strings.NewReader("Rss: 1 kB\n")); err == nil {
		t.Error("no error without Pss")
	}
}

func TestMemoryOfItself(t *testing.T) {
	if m, err := memoryOf(1 << 30); err == nil {
		t.Errorf("a process that there is not has %+v", m)
	}
}

// The load client must be let in by a real server, with its certificate, and must
// notice when it is not.
func TestConnects(t *testing.T) {
	certificate := newCertificate(t)
	for _, c := range []struct {
		name string
		auth server.Authentication
		want string
	}{
		{"admitted", admit(true), ""},
		{"refused", admit(false), "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			address := startServer(t, certificate, c.auth)
			rate, err := connects(t.Context(), address, []tls.Certificate{certificate, certificate}, 5)
			switch {
			case c.want == "" && (err != nil || rate <= 0):
				t.Errorf("connects gave %v, %v", rate, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("connects gave %v, %v; want an error with %q", rate, err, c.want)
			}
		})
	}
}

type admit bool

func (a admit) Check(c server.ClientAuthentication) bool {
	if s := c.GetTLSConnectionState(); s == nil || len(s.PeerCertificates) != 1 {
		return false
	}
	if a {
		c.RegisterUser(&server.User{Username: "x"})
	}
	return bool(a)
}

func newCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := key.Certificate("x")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func startServer(t *testing.T, c tls.Certificate, auth server.Authentication) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, TLS: true, TLSTimeout: 5, CustomClientAuthentication: auth,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{c}, ClientAuth: tls.RequireAnyClientCert},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return s.Addr().String()
}

func TestProgramsNamesWhatIsMissing(t *testing.T) {
	err := Programs(t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "salt") {
		t.Errorf("got %v", err)
	}
}

func TestOnce(t *testing.T) {
	r, err := once(t.Context(), "sh", "-c", "echo word")
	if err != nil || string(r.out) != "word\n" || r.wall <= 0 {
		t.Errorf("once gave %+v, %v", r, err)
	}
	if _, err := once(t.Context(), "sh", "-c", "echo why >&2; exit 3"); err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("the error does not say why: %v", err)
	}
	if _, err := once(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no error for a program that there is not")
	}
}

// A lost answer is an error, whatever the time.
func TestRush(t *testing.T) {
	for _, c := range []struct{ name, says, want string }{
		{"all", "9 1.5", ""},
		{"one lost", "8 1.5", "8 of 9"},
		{"nonsense", "nine", "nine"},
		{"it has ended", "", "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &daemons{dir: t.TempDir()}
			defer d.stop()
			script := "echo ready; read word; test \"$word\" = ask && echo " + c.says
			if c.says == "" {
				script = "echo ready; read word"
			}
			p, line, err := d.startObeying("sh", "-c", script)
			if err != nil || line != "ready" {
				t.Fatalf("%q, %v", line, err)
			}
			took, err := rush(p, "ask", 9)
			switch {
			case c.want == "" && (err != nil || took != 1.5):
				t.Errorf("%v, %v; want 1.5", took, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v; want one with %q", err, c.want)
			}
		})
	}
}

// TestEvents makes rows of what benchmarks print, in the order of the table.
func TestEvents(t *testing.T) {
	var out strings.Builder
	out.WriteString("goos: linux\n")
	for _, e := range eventRows {
		for n := range 3 {
			fmt.Fprintf(&out, "Benchmark%s-2 \t 3\t %d00 %s\t %d000 %s\n", e.name, n+1, e.brine, n+1, e.bare)
		}
	}
	out.WriteString("PASS\n")
	rows, err := readEvents([]byte(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rows {
		if r.What != eventRows[i].what || len(r.Brine) != 3 || len(r.Bare) != 3 || r.ratio() != 0.1 {
			t.Errorf("row %d: %+v", i, r)
		}
	}
	less := strings.ReplaceAll(out.String(), "BenchmarkReplay/50000", "BenchmarkOther")
	if _, err := readEvents([]byte(less)); err == nil || !strings.Contains(err.Error(), "Replay/50000") {
		t.Errorf("a benchmark that is missing: %v", err)
	}
}

func TestParts(t *testing.T) {
	fleets := Fleets{Sizes: []int{10, 20}}
	for want, o := range map[string]Options{
		"two minions, events, 10 minions, 20 minions": {Events: 1, Fleets: fleets}, "two minions": {}, "10 minions, 20 minions": {OnlyFleets: true, Events: 1, Fleets: fleets},
		"events": {OnlyEvents: true, Events: 1, Fleets: fleets},
	} {
		var names []string
		for _, p := range parts(o) {
			names = append(names, p.name)
		}
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("%+v has the parts %q, want %q", o, got, want)
		}
	}
}
