package broker_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/capture"
	"github.com/brinebus/brine/test/natslab"
)

// TestARefusedServerBesideOthersIsLoggedOnce: everything works, so nothing else would tell of it.
func TestARefusedServerBesideOthersIsLoggedOnce(t *testing.T) {
	t.Parallel()
	c, err := broker.EnsureCredentials(filepath.Join(t.TempDir(), "seed"))
	if err != nil {
		t.Fatal(err)
	}
	good, bad := natslab.New(t, 1), natslab.New(t, 1)
	good.Start(broker.ExternalConfig(c, externals, false))
	bad.Start(broker.ExternalConfig(c, externals, false))
	refused := bad.Servers[0].Address
	for range 40 { // the client library tries them in random order
		said := new(capture.Buffer)
		x, err := broker.NewExternal(broker.ExternalOptions{
			Servers: append(good.Addresses(), refused), Fingers: []string{good.Finger}, Credentials: c, Name: "test", Endpoints: externals, Fail: func(err error) { t.Error(err) }, Log: slog.New(slog.NewTextHandler(said, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		bustest.Until(t, "it to be connected", func() bool { return broker.Unreached(x) == nil })
		x.Close()
		var lines []string
		for line := range strings.Lines(said.String()) {
			if strings.Contains(line, "is not trusted") {
				lines = append(lines, line)
			}
		}
		if len(lines) == 0 {
			continue
		}
		if len(lines) > 1 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "server="+refused) || !strings.Contains(lines[0], "it has the fingerprint") || !strings.Contains(lines[0], "add it to nats_finger") {
			t.Errorf("it logs: %q", lines)
		}
		return
	}
	t.Error("a server whose certificate is refused is never logged")
}
