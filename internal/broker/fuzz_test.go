package broker

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/socket"
)

// FuzzFirstLineOfALocalProcess gives the first line of a local process to the broker, which inserts the
// identity that the kernel reports: nothing that the process sends may replace that identity.
func FuzzFirstLineOfALocalProcess(f *testing.F) {
	f.Add([]byte(`CONNECT {"user":"AAAAAAAAAAAAAAAAAAAA","pass":"guess","jwt":"x","account":"SYS"}`))
	f.Add([]byte(`CONNECT {"PASS":"guess","Pass":"guess","auth_token":"x"}`))
	f.Add([]byte("PING"))
	f.Fuzz(func(t *testing.T, line []byte) {
		g := newAuthenticator(Options{Log: slog.New(slog.DiscardHandler)})
		out, err := (&Broker{auth: g}).identify(line, &localClient{Peer: socket.Peer{UID: 1000}})
		if err != nil {
			return
		}
		if bytes.Count(out, []byte("\n")) != 1 || !bytes.HasSuffix(out, []byte("\r\n")) {
			t.Fatalf("%q becomes several lines: %q", line, out)
		}
		body := bytes.TrimPrefix(out, []byte("CONNECT "))
		var all map[string]any
		if err := json.Unmarshal(body, &all); err != nil {
			t.Fatal(err)
		}
		for name := range all {
			switch strings.ToLower(name) {
			case "user", "pass", "name", "lang", "version", "protocol", "verbose", "pedantic", "echo", "headers", "no_responders":
			default:
				t.Errorf("%q passes on %q", line, name)
			}
		}
		secret, _ := all["pass"].(string)
		if p, ok := g.takeLocal(secret); !ok || p.UID != 1000 {
			t.Errorf("%q passes on a password of its own", line)
		}
	})
}
