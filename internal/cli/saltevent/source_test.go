package saltevent

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/capture"
)

// A person is told that the journal ends before what was heard.
func TestAPositionAheadIsReported(t *testing.T) {
	var reported bytes.Buffer
	s := &source{env: &cli.Env{Name: "salt-event", Stderr: &reported}}
	s.warnAhead(97, 40)
	for _, want := range []string{"event 97", "ends with 40"} {
		if !strings.Contains(reported.String(), want) {
			t.Errorf("told is %q, want %q in it", reported.String(), want)
		}
	}
}

// A person is told of a journal that is not mirrored any more.
func TestAJournalThatIsGoneIsReported(t *testing.T) {
	var reported bytes.Buffer
	s := &source{env: &cli.Env{Name: "salt-event", Stderr: &reported}}
	s.warnGone(nil)
	if reported.Len() > 0 {
		t.Errorf("told is %q without a reason", reported.String())
	}
	s.warnGone([]string{"m2-0b"})
	if want := `journal "m2-0b" is not mirrored here any more`; !strings.Contains(reported.String(), want) {
		t.Errorf("told is %q, want %q in it", reported.String(), want)
	}
}

// TestAPositionThatDoesNotMoveIsReported: a listener runs for months. If its position cannot move, it says so when that
// happens, not only when it ends.
func TestAPositionThatDoesNotMoveIsReported(t *testing.T) {
	master := newSystem(t, "")
	var said capture.Buffer
	env := &cli.Env{Name: "salt-event", Stderr: &said}
	s := &session{env: env, dial: func(ctx context.Context) (*brine.Conn, error) {
		return brine.Connect(ctx, "unix://"+filepath.Join(master.dir, "run", "master.sock"))
	}}
	defer s.close()
	src := &source{session: s, env: env, q: brine.ListenOptions{Durable: "d"}, onReady: func(*brine.Listener) error { return nil }}
	if err := src.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := newConfirmer(s, "d")
	defer func() { _ = c.stop(src) }()
	c.done(1<<40, "")
	bustest.Until(t, "a warning", func() bool { return strings.Contains(said.String(), `the position "d" does not move`) })
}
