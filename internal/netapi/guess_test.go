package netapi_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/test/deadline"
)

// elsewhere returns a client at another address of this machine.
func elsewhere(t *testing.T, address string) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, to)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// TestTokenGuessesLeaveRoom: 500 clients that guess tokens wait for logins as others do. They take
// neither the places nor the connections of sessions that are idle.
func TestTokenGuessesLeaveRoom(t *testing.T) {
	s := startMaster(t)
	a := s.api("A", open)
	admin := login(t, a, "admin", "adminpw")
	works := func(when string) {
		t.Helper()
		res, text := post(t, "http://"+a+"/", admin, `[{"client":"runner","fun":"manage.up"}]`)
		if res.StatusCode != http.StatusOK {
			t.Errorf("a session %s: %s %.200s", when, res.Status, text)
		}
	}
	works("before")
	evil := elsewhere(t, "127.0.0.2")
	var mu sync.Mutex
	answers := map[int]int{}
	var all sync.WaitGroup
	for i := range 500 {
		all.Go(func() {
			token := fmt.Sprintf("%064x", i+1)
			req, err := http.NewRequest("GET", "http://"+a+"/events?token="+token, nil)
			if i%2 == 0 {
				req, err = http.NewRequest("POST", "http://"+a+"/run", strings.NewReader(`{"client":"runner","fun":"manage.up","token":"`+token+`"}`))
			}
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json")
			res, err := evil.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, res.Body) // only the status matters
			res.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			answers[res.StatusCode]++
		})
	}
	works("meanwhile")
	deadline.Call(t, all.Wait, "all")
	works("after")
	if answers[http.StatusUnauthorized] == 0 || answers[http.StatusTooManyRequests] == 0 || len(answers) != 2 {
		t.Errorf("the answers are %v", answers)
	}
	if log := string(s.read("A.log")); strings.Contains(log, "sessions are in use") {
		t.Error("the guesses have taken all places of sessions")
	}
	_, stats := send(t, "GET", "http://"+a+"/stats", admin, "")
	t.Logf("answers %v, %s", answers, stats)
}
