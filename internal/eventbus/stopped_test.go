package eventbus

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestAnEventOfADaemonThatStopsIsNoError: what happens while a daemon closes its connection cannot be stored any more.
func TestAnEventOfADaemonThatStopsIsNoError(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{{fmt.Errorf("store the event: %w", nats.ErrConnectionClosed), "level=INFO"}, {errors.New("no space left"), "level=ERROR"}} {
		var text bytes.Buffer
		notStored(slog.New(slog.NewTextHandler(&text, nil)), "salt/auth", test.err)
		if got := text.String(); !strings.Contains(got, test.want) || !strings.Contains(got, "salt/auth") {
			t.Errorf("%v logs %s", test.err, got)
		}
	}
}
