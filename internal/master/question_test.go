package master_test

import (
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// TestQuestionOfAnUnacceptedKey: it has room for grains where those can have a key accepted,
// and else for a version. A minion that has many grains to show waits there all the same.
func TestQuestionOfAnUnacceptedKey(t *testing.T) {
	for config, want := range map[string]rpc.Code{"": rpc.Usage, "autosign_grains_dir: grains\n": rpc.Busy} {
		t.Run(config, func(t *testing.T) {
			w := start(t, config)
			long := map[string]string{"uuid": strings.Repeat("x", 700)}
			l, err := w.offerKey("waits", key(t), long)
			if err != nil || l.State() != protocol.KeyPending {
				t.Fatalf("%q: a minion with long grains: %v", config, err)
			}
			// The connection has asked already: what may be asked at all is told so.
			s, err := l.Call(protocol.OpAsk, protocol.Ask{AutosignGrains: long, Version: "test"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Next(t.Context()); rpc.CodeOf(err) != want {
				t.Errorf("%q: a question of 700 bytes: %v, want the code %s", config, err, want)
			}
			if s, err = l.Call(protocol.OpAsk, protocol.Ask{AutosignGrains: map[string]string{"uuid": strings.Repeat("x", 1100)}}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Next(t.Context()); rpc.CodeOf(err) != rpc.Usage {
				t.Errorf("%q: a question of 1100 bytes: %v, want a refusal", config, err)
			}
		})
	}
}
