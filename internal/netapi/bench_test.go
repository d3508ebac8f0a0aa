package netapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// BenchmarkRun is test.ping of one minion by POST /run with a token.
func BenchmarkRun(b *testing.B) {
	s := start(b)
	a := s.api("A", open)
	_, body := post(b, "http://"+a+"/token", "", `{"username":"admin","password":"adminpw","eauth":"file"}`)
	token := regexp.MustCompile(`[0-9a-f]{64,}`).FindString(body)
	chunk := fmt.Sprintf(`{"client":"local","tgt":"web1","fun":"test.ping","token":%q}`, token)
	b.ResetTimer()
	for b.Loop() {
		if res, text := post(b, "http://"+a+"/run", "", chunk); res.StatusCode != http.StatusOK {
			b.Fatal(text)
		}
	}
}

// BenchmarkBare is a request to a bare HTTP handler, which asks a NATS server whose responder
// answers at once.
func BenchmarkBare(b *testing.B) {
	build(b)
	program := filepath.Join(b.TempDir(), "bareserver")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/brinebus/brine/test/bench/bareserver").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	c := exec.Command(program, filepath.Join(b.TempDir(), "store"))
	said, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = c.Process.Kill() // it never ends by itself
		_ = c.Wait()
	})
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	nc, err := nats.Connect("nats://" + strings.TrimSpace(line))
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			var m *nats.Msg
			if m, err = nc.Request("ping", body, 10*time.Second); err == nil {
				_, err = w.Write(m.Data)
			}
		}
		if err != nil {
			b.Error(err)
		}
	}))
	defer server.Close()
	b.ResetTimer()
	for b.Loop() {
		post(b, server.URL, "", `{"client":"local","tgt":"web1","fun":"test.ping"}`)
	}
}

// BenchmarkTool is the same by the tool salt, a process each time.
func BenchmarkTool(b *testing.B) {
	s := start(b)
	b.ResetTimer()
	for b.Loop() {
		s.tool("salt", "web1", "test.ping")
	}
}

// BenchmarkLogin is a login with a password.
func BenchmarkLogin(b *testing.B) {
	s := start(b)
	a := s.api("A", open)
	b.ResetTimer()
	for b.Loop() {
		login(b, a, "admin", "adminpw")
	}
}

// BenchmarkStreams opens 1,000 event streams of four logins and tells the memory that
// salt-api has with them. It is for -benchtime 1x.
func BenchmarkStreams(b *testing.B) {
	s := start(b)
	a := s.api("A", open)
	sessions := []string{login(b, a, "admin", "adminpw"), login(b, a, "shorty", "shortpw"), login(b, a, "limited", "limitedpw"), login(b, a, "jobsuser", "jobspw")}
	for b.Loop() {
		n := 0
		for _, session := range sessions {
			for range 250 {
				req, err := http.NewRequest("GET", "http://"+a+"/events", nil)
				if err != nil {
					b.Fatal(err)
				}
				req.Header.Set("X-Auth-Token", session)
				res, err := http.DefaultTransport.RoundTrip(req)
				if err != nil || res.StatusCode != http.StatusOK {
					b.Fatal(err, res)
				}
				defer res.Body.Close()
				if _, err := io.ReadFull(res.Body, make([]byte, len("retry: 400\n"))); err != nil {
					b.Fatal(err)
				}
				n++
			}
		}
		pid := strings.TrimSpace(string(s.read("A.pid")))
		status, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			b.Fatal(err)
		}
		kb, err := strconv.ParseFloat(regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindStringSubmatch(string(status))[1], 64)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(kb/1024, "MiB-resident")
		b.ReportMetric(float64(n), "streams")
	}
}
