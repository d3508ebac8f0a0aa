package natslab_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/brinebus/brine/test/deadline"
	"github.com/brinebus/brine/test/natslab"
)

// TestAServerWithoutACertificateIsNotLinked: whoever can link a server sees all that minions and master send, so the configuration
// in doc/nats.md has the servers ask each other for a certificate of their authority.
func TestAServerWithoutACertificateIsNotLinked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tls    func(lab *natslab.Cluster) string
		linked bool
	}{
		"none":            {func(*natslab.Cluster) string { return "" }, false},
		"of another":      {func(*natslab.Cluster) string { return pair(natslab.New(t, 0)) }, false},
		"of the servers'": {pair, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lab := natslab.New(t, 2)
			lab.Start("")
			monitor := lab.Foreign(c.tls(lab))
			routes := func() (n int) {
				r, err := http.Get("http://" + monitor + "/routez")
				if err != nil {
					return -1
				}
				defer r.Body.Close()
				var got struct {
					Routes int `json:"num_routes"`
				}
				if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
					return -1
				}
				return got.Routes
			}
			if c.linked {
				deadline.Until(t, func() bool { return routes() > 0 }, "a server with a certificate to be linked")
				return
			}
			deadline.Until(t, func() bool { return routes() >= 0 }, "the server to run")
			for range 20 {
				if n := routes(); n != 0 {
					t.Fatalf("it is linked, with %d routes", n)
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
}

// pair is the TLS of a link with the certificate of a cluster.
func pair(c *natslab.Cluster) string {
	return fmt.Sprintf("tls {cert_file: %q, key_file: %q, ca_file: %q},", c.CA, filepath.Join(filepath.Dir(c.CA), "key.pem"), c.CA)
}
