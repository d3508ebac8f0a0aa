package netapi_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestRefusedRequestsDoNotFillTheLog: thousands of requests without a session, of any kind, get
// some lines, none of which has what the client has sent. What a session does has a line each.
func TestRefusedRequestsDoNotFillTheLog(t *testing.T) {
	s := startMaster(t)
	a := s.api("A", open)
	admin := login(t, a, "admin", "adminpw")
	const marker = "5e551090123456789"
	evil := elsewhere(t, "127.0.0.2")
	ask := func(method, path, body string, headers ...string) int {
		req, err := http.NewRequest(method, "http://"+a+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		res, err := evil.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	answers := map[int]int{}
	for range 500 {
		answers[ask("GET", "/nothing/"+marker, "")]++
		answers[ask("GET", "/", "", "Accept", "text/"+marker)]++
		answers[ask("GET", "/minions/"+marker, "", "X-Auth-Token", marker)]++
		answers[ask("GET", "/", "")]++
		answers[ask("POST", "/run?token="+marker, `{"client":"runner","fun":"`+marker+`!"}`, "Content-Type", "application/json")]++
	}
	if answers[http.StatusNotFound] == 0 || answers[http.StatusNotAcceptable] == 0 || answers[http.StatusUnauthorized] == 0 || answers[http.StatusBadRequest] == 0 {
		t.Errorf("the answers are %v", answers)
	}
	for range 30 {
		if res, text := post(t, "http://"+a+"/", admin, `[{"client":"runner","fun":"manage.up"}]`); res.StatusCode != http.StatusOK {
			t.Errorf("a session: %s %.200s", res.Status, text)
		}
	}
	log := string(s.read("A.log"))
	if strings.Contains(log, marker) {
		t.Error("the log has what a client has sent")
	}
	if n := strings.Count(log, "127.0.0.2"); n == 0 || n >= 100 {
		t.Errorf("the log has %d lines about the address", n)
	}
	if n := strings.Count(log, "user=admin"); n < 30 {
		t.Errorf("the log has %d lines about a session", n)
	}
}
