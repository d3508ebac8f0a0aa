package sink

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/event"
)

// hook is a web service that takes events.
type hook struct {
	*httptest.Server
	mu     sync.Mutex
	seqs   map[uint64]int
	keys   []string
	header http.Header
	answer func(n int, body string) int // the status of the nth request, 0 for 200
	count  int
}

func newHook() *hook {
	return &hook{seqs: map[uint64]int{}, answer: func(int, string) int { return 0 }}
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // what is missing shows below
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Method != http.MethodPost {
		return
	}
	h.count++
	h.header = r.Header.Clone()
	if status := h.answer(h.count, string(body)); status != 0 {
		http.Error(w, "that is not for me", status)
		return
	}
	h.keys = append(h.keys, r.Header.Get("Idempotency-Key"))
	var list []event.Event
	if json.Unmarshal(body, &list) != nil {
		for line := range bytes.Lines(body) {
			var e event.Event
			if json.Unmarshal(line, &e) == nil {
				list = append(list, e)
			}
		}
	}
	for _, e := range list {
		h.seqs[e.Seq]++
	}
}

// expectOnce checks that each event up to n came once, but those left out.
func (h *hook) expectOnce(t testing.TB, n int, but ...uint64) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.seqs) != n-len(but) {
		t.Errorf("%d events came, want %d", len(h.seqs), n-len(but))
	}
	for seq, times := range h.seqs {
		if times != 1 {
			t.Errorf("event %d came %d times", seq, times)
		}
	}
}

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{file: filepath.Join(t.TempDir(), "ca.pem")}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	c := a.sign(t, template, time.Now().Add(time.Hour))
	a.cert, a.key = c.Leaf, c.PrivateKey.(*ecdsa.PrivateKey)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})
	if err := os.WriteFile(a.file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return a
}

// sign makes a certificate; one of a without a key signs itself.
func (a *authority) sign(t testing.TB, c *x509.Certificate, until time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-2*time.Hour), until
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) server(t testing.TB, names []string, ips []net.IP, until time.Time) tls.Certificate {
	return a.sign(t, &x509.Certificate{DNSNames: names, IPAddresses: ips}, until)
}

var here = []net.IP{net.IPv4(127, 0, 0, 1)}

// serve starts the service over TLS.
func (h *hook) serve(t testing.TB, c tls.Certificate) {
	t.Helper()
	h.Server = httptest.NewUnstartedServer(h)
	h.TLS = &tls.Config{Certificates: []tls.Certificate{c}}
	h.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	h.StartTLS()
	t.Cleanup(h.Close)
}

func TestWebhookKnowsItsServer(t *testing.T) {
	ca, foreign := newAuthority(t), newAuthority(t)
	later := time.Now().Add(time.Hour)
	tests := []struct {
		name     string
		cert     tls.Certificate
		settings string
		mistake  string // "" where it is let in
	}{
		{"good", ca.server(t, nil, here, later), "ca_file: " + ca.file, ""},
		{"good, by another name", ca.server(t, []string{"hook.example"}, nil, later), "server_name: hook.example, ca_file: " + ca.file, ""},
		{"self-signed", new(authority).server(t, nil, here, later), "ca_file: " + ca.file, "unknown authority"},
		{"self-signed, the authorities of the system", new(authority).server(t, nil, here, later), "", "unknown authority"},
		{"of another authority", foreign.server(t, nil, here, later), "ca_file: " + ca.file, "unknown authority"},
		{"expired", ca.server(t, nil, here, time.Now().Add(-time.Hour)), "ca_file: " + ca.file, "expired"},
		{"wrong name", ca.server(t, []string{"other.example"}, nil, later), "ca_file: " + ca.file, "127.0.0.1"},
		{"self-signed, insecure", new(authority).server(t, nil, here, later), "insecure: true", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := newHook()
			h.serve(t, test.cert)
			to := configure(t, fmt.Sprintf("r: {to: {webhook: {url: %q, %s}}}", h.URL+"/in", test.settings)).Rules[0].to
			d, err := to.open(t.Context(), testLog(t))
			if err == nil {
				defer d.close()
				err = d.write(t.Context(), makeEvents(t, 1, 3))
			}
			for _, err := range []error{err, to.check(t.Context())} {
				if (err == nil) != (test.mistake == "") || err != nil && !strings.Contains(err.Error(), test.mistake) {
					t.Errorf("got %v, want %q", err, test.mistake)
				}
			}
			if want := map[bool]int{true: 3}[test.mistake == ""]; len(h.seqs) != want {
				t.Errorf("%d events were told, want %d", len(h.seqs), want)
			}
		})
	}
}

func TestWebhookForms(t *testing.T) {
	for form, requests := range map[string]int{"array": 1, "lines": 1, "event": 5} {
		t.Run(form, func(t *testing.T) {
			h := newHook()
			h.Server = httptest.NewServer(h)
			defer h.Close()
			d := openOne(t, fmt.Sprintf("r: {to: {webhook: {url: %s, form: %s}}}", h.URL, form))
			write(t, d, makeEvents(t, 1, 5))
			h.expectOnce(t, 5)
			if h.count != requests || h.keys[0] == "" {
				t.Errorf("%d requests with the keys %q, want %d", h.count, h.keys, requests)
			}
		})
	}
}

func TestWebhookAwayAndBack(t *testing.T) {
	for _, form := range []string{"array", "event"} {
		t.Run(form, func(t *testing.T) {
			h := newHook()
			h.answer = func(n int, _ string) int {
				return map[int]int{2: http.StatusInternalServerError, 3: http.StatusTooManyRequests, 4: http.StatusForbidden}[n]
			}
			h.Server = httptest.NewServer(h)
			defer h.Close()
			j := newJournal()
			j.fire(t, 20)
			start(t, j, configure(t, fmt.Sprintf("r: {batch: 5, wait: 0s, to: {webhook: {url: %s, form: %s}}}", h.URL, form)))
			j.waitFor(t, "r", 20)
			h.expectOnce(t, 20)
		})
	}
}

func TestWebhookRefusesOneEvent(t *testing.T) {
	h := newHook()
	h.answer = func(_ int, body string) int {
		if strings.Contains(body, `"n":7,`) {
			return http.StatusUnprocessableEntity
		}
		return 0
	}
	h.Server = httptest.NewServer(h)
	defer h.Close()
	j := newJournal()
	j.fire(t, 20)
	start(t, j, configure(t, "r: {to: {webhook: {url: "+h.URL+"}}}"))
	j.waitFor(t, "r", 20)
	h.expectOnce(t, 20, 7)
	if fmt.Sprint(j.dead) != "[7]" {
		t.Errorf("dead letters %v, want 7", j.dead)
	}
}

// TestWebhookFailsAmongRefusals: what was written before a failure is not written again.
func TestWebhookFailsAmongRefusals(t *testing.T) {
	h := newHook()
	h.answer = func(n int, body string) int {
		switch {
		case n == 7: // one half is written, the other one has been halved
			return http.StatusServiceUnavailable
		case strings.Contains(body, `"n":12,`):
			return http.StatusUnprocessableEntity
		}
		return 0
	}
	h.Server = httptest.NewServer(h)
	defer h.Close()
	j := newJournal()
	j.fire(t, 20)
	start(t, j, configure(t, "r: {to: {webhook: {url: "+h.URL+"}}}"))
	j.waitFor(t, "r", 20)
	h.expectOnce(t, 20, 12)
	if fmt.Sprint(j.dead) != "[12]" {
		t.Errorf("dead letters %v, want 12", j.dead)
	}
}

// TestWebhookThatRefusesEverything is set up wrongly: the events must wait.
func TestWebhookThatRefusesEverything(t *testing.T) {
	const events, tries = 20, 2
	h := newHook()
	h.answer = func(n int, _ string) int {
		if n <= tries*(2*events-1) { // a batch is halved until each event has been refused by itself
			return http.StatusBadRequest
		}
		return 0
	}
	h.Server = httptest.NewServer(h)
	defer h.Close()
	j := newJournal()
	j.fire(t, events)
	start(t, j, configure(t, "r: {to: {webhook: {url: "+h.URL+"}}}"))
	j.waitFor(t, "r", events)
	h.expectOnce(t, events)
	if len(j.dead) != 0 {
		t.Errorf("dead letters %v, want none", j.dead)
	}
}

// TestRefusedBatchesDoNotHoldUpOthers has batches that are refused completely, as one sender can fire
// them, and behind them an event that is accepted.
func TestRefusedBatchesDoNotHoldUpOthers(t *testing.T) {
	h := newHook()
	h.answer = func(_ int, body string) int {
		if strings.Contains(body, `"bad"`) {
			return http.StatusBadRequest
		}
		return 0
	}
	h.Server = httptest.NewServer(h)
	defer h.Close()
	j := newJournal()
	for range 45 {
		j.add(t, "num/x", `{"n":"bad"}`)
	}
	j.fire(t, 5)
	start(t, j, configure(t, "r: {batch: 20, wait: 0s, to: {webhook: {url: "+h.URL+"}}}"))
	j.waitFor(t, "r", 50)
	h.mu.Lock()
	for seq := range uint64(45) {
		h.seqs[seq+1]++ // what is refused did not come
	}
	h.mu.Unlock()
	h.expectOnce(t, 50)
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.dead) != 45 || j.dead[0] != 1 || j.dead[44] != 45 {
		t.Errorf("dead letters %v, want 1 to 45", j.dead)
	}
}

func TestWebhookFollowsNoRedirection(t *testing.T) {
	other := newHook()
	other.Server = httptest.NewServer(other)
	defer other.Close()
	s := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer s.Close()
	d := openOne(t, "r: {to: {webhook: {url: "+s.URL+"}}}")
	if err := d.write(t.Context(), makeEvents(t, 1, 1)); err == nil || !strings.Contains(err.Error(), "307") {
		t.Errorf("got %v, want an error with the status", err)
	}
	if other.count != 0 {
		t.Error("the events went elsewhere")
	}
}

func TestWebhookSecrets(t *testing.T) {
	const token, path = "Bearer geheim-99", "/hidden-path-42"
	secret := filepath.Join(t.TempDir(), "token")
	writeSecret(t, secret, token)
	h := newHook()
	h.Server = httptest.NewServer(h)
	address := filepath.Join(t.TempDir(), "url")
	writeSecret(t, address, h.URL+path)
	rule := fmt.Sprintf("r: {to: {webhook: {url_file: %s, headers: {x-team: ops}, secret_headers: {authorization: %s}}}}", address, secret)
	d := openOne(t, rule)
	write(t, d, makeEvents(t, 1, 1))
	if h.header.Get("Authorization") != token || h.header.Get("X-Team") != "ops" {
		t.Errorf("the headers were %v", h.header)
	}
	h.Close()
	err := d.write(t.Context(), makeEvents(t, 1, 1))
	if err == nil || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "geheim") {
		t.Errorf("got %v, want an error without secrets", err)
	}
	if text := configure(t, rule).Rules[0].String(); strings.Contains(text, "hidden") {
		t.Errorf("the destination is shown as %q", text)
	}
}

func TestNoSecretOverPlainHTTP(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "token")
	writeSecret(t, secret, "geheim")
	for url, refused := range map[string]bool{"http://hook.example/": true, "http://127.0.0.1:1/": false, "https://hook.example/": false} {
		to := configure(t, fmt.Sprintf("r: {to: {webhook: {url: %q, secret_headers: {x-key: %s}}}}", url, secret)).Rules[0].to
		d, err := to.open(t.Context(), testLog(t))
		if err == nil {
			d.close()
		}
		if (err != nil) != refused {
			t.Errorf("%s: %v, want refused %t", url, err, refused)
		}
	}
}
