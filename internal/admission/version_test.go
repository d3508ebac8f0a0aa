package admission

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/upstream"
)

// TestProtocolsAreRefusedInTheHandshake: the master refuses by itself, whatever the minion makes
// of what it is shown.
func TestProtocolsAreRefusedInTheHandshake(t *testing.T) {
	log := new(strings.Builder)
	a := New(t.Context(), Options{Version: "test", Log: slog.New(slog.NewTextHandler(log, nil))})
	for name, c := range map[string]struct {
		speaks upstream.Protocol
		fits   bool
	}{
		"newer":                        {upstream.Protocol{Newest: 9, Oldest: 9, Version: "9.0.0"}, false},
		"older":                        {upstream.Protocol{Newest: -1, Oldest: -1, Version: "0.0.1"}, false},
		"newer, and still understands": {upstream.Protocol{Newest: 9, Oldest: 1, Version: "9.0.0"}, true},
		"the same":                     {upstream.Spoken("test"), true},
	} {
		log.Reset()
		shown, err := c.speaks.Extension()
		if err != nil {
			t.Fatal(err)
		}
		err = a.CheckVersion(tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Extensions: []pkix.Extension{shown}}}})
		if (err == nil) != c.fits {
			t.Errorf("%s: %v", name, err)
		}
		if logged := strings.Contains(log.String(), "connection refused"); logged == c.fits {
			t.Errorf("%s: the log has %q", name, log)
		}
	}
}
