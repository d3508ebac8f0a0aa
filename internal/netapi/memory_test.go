package netapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/test/deadline"
)

// TestBodiesWithoutLoginAreBounded: 200 bodies without a login, complete but for the last byte, and
// then all at once, some of which are large when they are decoded, do not take the memory of the
// machine, and a user who has logged in, at the same address, does not notice.
func TestBodiesWithoutLoginAreBounded(t *testing.T) {
	s := startMaster(t)
	a := s.api("A", open)
	admin := login(t, a, "admin", "adminpw")
	const parts = 1 << 20 / 7 * 7 / 10
	large := "[" + strings.TrimSuffix(strings.Repeat(`{"":0},`, parts), ",") + "]"
	plain := `["` + strings.Repeat("x", 1<<20-4) + `"]`
	var conns []net.Conn
	for i := range 200 {
		body := large
		if i%2 == 0 {
			body = plain
		}
		c, err := net.Dial("tcp", a)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute)) // it is open
		conns = append(conns, &withLast{c, body[len(body)-1:]})
		go fmt.Fprintf(c, "POST /run HTTP/1.1\r\nHost: %s\r\nAccept: application/json\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", a, len(body), body[:len(body)-1])
	}
	ask := func(when string) {
		t.Helper()
		began := time.Now()
		res, text := post(t, "http://"+a+"/", admin, `[{"client":"runner","fun":"manage.up"}]`)
		if res.StatusCode != http.StatusOK {
			t.Errorf("a user %s: %s %.200s", when, res.Status, text)
		}
		t.Logf("a user %s: after %s", when, time.Since(began))
	}
	s.await("the bodies to arrive", func() bool {
		return strings.Contains(string(s.read("A.log")), "too much memory") || s.resident("A") > 200<<20
	})
	ask("while they are held back")
	var mu sync.Mutex
	answers := map[int]int{}
	var all sync.WaitGroup
	for _, c := range conns {
		all.Go(func() {
			_, _ = io.WriteString(c, c.(*withLast).last) // it may be refused already
			status := 0                                  // a refusal may be lost with the rest of the body
			if res, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
				status = res.StatusCode
			}
			mu.Lock()
			defer mu.Unlock()
			answers[status]++
		})
	}
	ask("while they are decoded")
	deadline.Call(t, all.Wait, "all")
	t.Logf("answers %v, at most %d MiB were resident", answers, s.peak("A")>>20)
	if peak := s.peak("A"); peak > 400<<20 {
		t.Errorf("the bodies took %d MiB", peak>>20)
	}
	if answers[http.StatusTooManyRequests] == 0 || answers[http.StatusOK] > 0 {
		t.Errorf("the answers are %v", answers)
	}
	res, text := post(t, "http://"+a+"/run", "", strings.Replace(plain, `["`, `[{"client":"runner","fun":"manage.up","username":"admin","password":"adminpw","eauth":"file","pad":"`, 1)[:900<<10]+`"}]`)
	if res.StatusCode != http.StatusOK {
		t.Errorf("a large body when they have ended: %s %.200s", res.Status, text)
	}
}

// withLast is a connection on which the last byte of a request is still to be sent.
type withLast struct {
	net.Conn
	last string
}

// resident and peak return how much memory of a program is resident, and how much was at most.
func (s *system) resident(name string) int64 { return s.memory(name, "VmRSS:") }
func (s *system) peak(name string) int64     { return s.memory(name, "VmHWM:") }

func (s *system) memory(name, field string) int64 {
	s.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pids[name]))
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), field)
	var kb int64
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		s.t.Fatal(err)
	}
	return kb << 10
}
