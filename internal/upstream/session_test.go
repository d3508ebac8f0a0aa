package upstream

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/rpc"
)

// TestUnreadableJobsDoNotFillTheLog: whoever runs the NATS servers between may send anything.
func TestUnreadableJobsDoNotFillTheLog(t *testing.T) {
	var log bytes.Buffer
	s := &Session{Up: &Uplink{all: &Uplinks{Setup: Setup{Log: slog.New(slog.NewTextHandler(&log, nil))}}}}
	asm := rpc.Assembler{Framed: true}
	for range 1000 {
		if body, whole := s.piece(&asm, &nats.Msg{Data: []byte{0xff}}); whole {
			t.Fatalf("%q is a job", body)
		}
	}
	if n := strings.Count(log.String(), "unreadable job"); n == 0 || n > 2*maxUnreadable {
		t.Errorf("the log has %d lines about 1000 unreadable jobs", n)
	}
	plain := rpc.Assembler{}
	if body, whole := s.piece(&plain, &nats.Msg{Data: []byte("job")}); !whole || string(body) != "job" {
		t.Errorf("a job: %q", body)
	}
}
