package netapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkRun is test.ping of one minion by POST /run with a token.
func BenchmarkRun(b *testing.B) {
	ask := runPing(b, start(b))
	b.ResetTimer()
	for b.Loop() {
		ask()
	}
}

// runPing logs in; the function that it returns runs test.ping on web1 by POST /run.
func runPing(b *testing.B, s *system) (ask func()) {
	a := s.api("A", open)
	_, body := post(b, "http://"+a+"/token", "", `{"username":"admin","password":"adminpw","eauth":"file"}`)
	token := regexp.MustCompile(`[0-9a-f]{64,}`).FindString(body)
	chunk := fmt.Sprintf(`{"client":"local","tgt":"web1","fun":"test.ping","token":%q}`, token)
	return func() {
		if res, text := post(b, "http://"+a+"/run", "", chunk); res.StatusCode != http.StatusOK {
			b.Fatal(text)
		}
	}
}

// BenchmarkInTurns sends requests to salt-api, to the plain handlers and by the tool salt in
// turns, so that the load of the machine affects all of them alike. It reports the median of
// each in milliseconds, and the medians of the ratios of salt-api to the others.
func BenchmarkInTurns(b *testing.B) {
	s := start(b)
	names := []string{"run", "bare", "kept", "tool"}
	ask := []func(){runPing(b, s), startBare(b, "respond", "job.one", "/job.one"), startBare(b, "keep", "signed.kept", "/kept"), func() { s.tool("salt", "web1", "test.ping") }}
	took, ratios := make([][]float64, len(ask)), make([][]float64, len(ask))
	b.ResetTimer()
	for b.Loop() {
		round := make([]float64, len(ask))
		for i, f := range ask {
			begin := time.Now()
			f()
			round[i] = time.Since(begin).Seconds() * 1000
			took[i] = append(took[i], round[i])
		}
		for i := range ask {
			ratios[i] = append(ratios[i], round[0]/round[i])
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, name := range names {
		b.ReportMetric(median(took[i]), name+"-ms")
		if i > 0 {
			b.ReportMetric(median(ratios[i]), "run/"+name)
		}
	}
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// BenchmarkBare is a request to a plain HTTP handler that sends a request to a NATS server,
// whose responder answers at once: three processes like salt-api, the master and the minion,
// with TLS between the last two.
func BenchmarkBare(b *testing.B) { bare(b, "respond", "job.one", "/job.one") }

// BenchmarkBareSigned is the same with the least that the server does for a job: it stores the
// request, signs it, and stores the answer of the responder, which has checked the signature.
func BenchmarkBareSigned(b *testing.B) { bare(b, "check", "signed.0", "/signed") }

// BenchmarkBareKept is the same with all that the server does for a job, except for the check
// of permissions: the request is on the disk twice before the responder gets it; the responder
// records it in a file and sends a receipt; receipt and answer are stored before the caller
// gets them.
func BenchmarkBareKept(b *testing.B) { bare(b, "keep", "signed.kept", "/kept") }

func bare(b *testing.B, responder, subject, path string) {
	ask := startBare(b, responder, subject, path)
	b.ResetTimer()
	for b.Loop() {
		ask()
	}
}

// startBare starts a server, a responder and the handler; the function that it returns sends a
// request.
func startBare(b *testing.B, responder, subject, path string) (ask func()) {
	build(b)
	dir := b.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir+"/", "github.com/brinebus/brine/test/bench/bareserver", "github.com/brinebus/brine/test/bench/bare").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	run := func(program string, args ...string) string { // returns the first line that it prints
		c := exec.Command(filepath.Join(dir, program), args...)
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
		return strings.TrimSpace(line)
	}
	server := run("bareserver", filepath.Join(dir, "store"))
	run("bare", responder, "tls://"+server, subject, filepath.Join(dir, "begun"))
	url := "http://" + run("bare", "http", "nats://"+server, "-") + path
	return func() {
		if res, text := post(b, url, "", `{"client":"local","tgt":"web1","fun":"test.ping"}`); res.StatusCode != http.StatusOK || !strings.Contains(text, "True") {
			b.Fatal(text)
		}
	}
}

// BenchmarkTool is the same with the tool salt, one process for each request.
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

// BenchmarkStreams opens 1,000 event streams of four logins, and reports the memory of salt-api
// with them. It is for -benchtime 1x.
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
