package master_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/upstream"
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

// TestAWaitingKeyIsDeletedAtOnce: who waits is told that a key was deleted, so as to show it again,
// also where it was deleted before the master had noticed that it waits.
func TestAWaitingKeyIsDeletedAtOnce(t *testing.T) {
	w := start(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for round := range 5 {
		l, err := w.offerKey("web1", key(t), nil)
		if err != nil || l.State() != protocol.KeyPending {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := os.Remove(filepath.Join(w.cfg.PKIDir, "minions_pre", "web1")); err != nil {
			t.Fatal(err)
		}
		if err := l.Wait(ctx); !errors.Is(err, upstream.ErrForgotten) {
			t.Fatalf("round %d: the connection waits for a key that was deleted: %v", round, err)
		}
		l.Close()
	}
}
