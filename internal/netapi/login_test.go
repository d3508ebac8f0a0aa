package netapi

import (
	"crypto/sha256"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestARefusedLoginTakesNoPlace: a token whose user may not come from an address gives its connection back. All the
// connections of a login could otherwise be taken from where it may not come.
func TestARefusedLoginTakesNoPlace(t *testing.T) {
	p := newPool(nil)
	s := &Server{opts: Options{Users: map[string][]string{"*": {"192.0.2.1"}}}, pool: p, sessions: newSessions(), limits: newLimits(1)}
	token, address := strings.Repeat("a", 64), netip.MustParseAddr("192.0.2.2")
	k := &pooled{of: p, key: connKey{sha256.Sum256([]byte(token)), address}, made: make(chan struct{})}
	p.conns[k.key] = k
	r := &request{Request: httptest.NewRequest("POST", "/run", nil), principal: principal{s: s, address: address}}
	l := &logins{r: r, of: map[login]*caller{}}
	time.AfterFunc(10*time.Millisecond, func() { close(k.made) })
	_, err := l.as(chunk{login: login{token: token}})
	l.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil || k.users != 0 {
		t.Errorf("%v; the connection has %d users", err, k.users)
	}
}
