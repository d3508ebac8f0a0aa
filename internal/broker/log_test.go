package broker

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Connections that try what they may not, or speak no TLS, fill no log: a few lines
// of each, or of all of them, are told in a minute, and how many others there were.
func TestConnectionsFillNoLog(t *testing.T) {
	var text bytes.Buffer
	l := &serverLog{log: slog.New(slog.NewTextHandler(&text, nil)), health: newHealth(Options{})}
	for i := range 3 * maxOthers {
		l.Errorf("192.0.2.1:%d - cid:%d - TLS handshake error: EOF", i, i)
	}
	for range 3 * maxViolations {
		l.Errorf("192.0.2.1:1 - cid:1 - Subscription Violation - Subject %q", ">")
	}
	l.Errorf("192.0.2.1:2 - cid:2 - Subscription Violation - Subject %q", ">")
	l.Errorf("JetStream is unhappy")
	for what, want := range map[string]int{"handshake": maxOthers, "cid:1 - Subscription": maxViolations, "cid:2 - Subscription": 1, "JetStream": 1} {
		if n := strings.Count(text.String(), what); n != want {
			t.Errorf("%q is in the log %d times, want %d", what, n, want)
		}
	}
	text.Reset()
	if l.repeated("192.0.2.1:3 - cid:3 - TLS handshake error: EOF", time.Now().Add(2*time.Minute)) {
		t.Error("the first line of another minute is left out")
	}
	if want := fmt.Sprintf("repeated=%d", 2*maxOthers); !strings.Contains(text.String(), want) {
		t.Errorf("the log says %q, want %s", text.String(), want)
	}
}

// Who is turned away again and again is told of once a minute, from whichever port.
func TestRefusedConnectionsFillNoLog(t *testing.T) {
	var text bytes.Buffer
	g := &gate{log: slog.New(slog.NewTextHandler(&text, nil))}
	for i := range 100 {
		g.refused(hostOf(fmt.Sprintf("192.0.2.1:%d", i)), "remote", i)
		g.refused(hostOf(fmt.Sprintf("[2001:db8::1]:%d", i)), "remote", i)
	}
	if n := strings.Count(text.String(), "connection refused"); n != 2 {
		t.Errorf("%d lines, want one of each host", n)
	}
}
