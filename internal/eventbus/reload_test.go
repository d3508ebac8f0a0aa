package eventbus

import (
	"testing"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// TestRulesChangeWhileAListenerBegins: a listener that was checked by rules that have changed
// when it starts is checked again. Operators continue.
func TestRulesChangeWhileAListenerBegins(t *testing.T) {
	w := start(t)
	root, c := w.dial(), w.dial()
	w.grant("fred: {listen: [app/*]}")
	w.as("fred")
	change := func() { w.grant("eve: {listen: ['*']}") }
	w.after.Store(&change)
	h, err := w.listen(c, protocol.Listen{Tags: []string{"app/"}})
	w.as("")
	w.mustFire(root, "app/1")
	if err == nil {
		_, err = h.stream.Next(w.bounded())
	}
	if rpc.CodeOf(err) != rpc.Unavailable {
		t.Errorf("by the old rules: %v, want the listener to end", err)
	}
	w.as("fred")
	if _, err := w.listen(c, protocol.Listen{Tags: []string{"app/"}}); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("by the new rules: %v, want a refusal", err)
	}
	w.as("")
	w.after.Store(&change)
	w.mustListen(root, protocol.Listen{FromSeq: 1, Tags: []string{"app/"}}).wantTag("app/1")
}
