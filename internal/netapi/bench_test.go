package netapi_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
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

// BenchmarkStreams opens 900 event streams of three logins and tells the memory that
// salt-api has with them. It is for -benchtime 1x.
func BenchmarkStreams(b *testing.B) {
	s := start(b)
	a := s.api("A", open)
	sessions := []string{login(b, a, "admin", "adminpw"), login(b, a, "shorty", "shortpw"), login(b, a, "limited", "limitedpw")}
	for b.Loop() {
		n := 0
		for _, session := range sessions {
			for range 300 {
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
