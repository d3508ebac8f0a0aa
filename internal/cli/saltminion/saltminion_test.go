package saltminion

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/upstream"
)

// TestWhyAMinionEnds: who is refused, or refuses, ends with 77, and Salt's words are in the
// log where the minion's key was rejected.
func TestWhyAMinionEnds(t *testing.T) {
	other := errors.New("the disk is gone")
	for _, test := range []struct {
		err  error
		want int
		said bool
	}{
		{nil, 0, false}, {upstream.ErrRejected, cli.NoPermission, true}, {upstream.ErrDenied, cli.NoPermission, true},
		{upstream.ErrMasterKey, cli.NoPermission, false}, {upstream.ErrSignature, cli.NoPermission, false},
		{upstream.ErrNoAddress, cli.Unavailable, false}, {other, cli.Failed, false},
	} {
		var words strings.Builder
		log := &logging.Log{Logger: slog.New(slog.NewTextHandler(&words, nil))}
		var was error
		if test.err != nil {
			was = fmt.Errorf("master m1: %w", test.err)
		}
		err := refusal(context.Background(), log, was)
		if cli.Code(err) != test.want || !errors.Is(err, test.err) {
			t.Errorf("%v ends as %v with %d, want %d", test.err, err, cli.Code(err), test.want)
		}
		if got := strings.Contains(words.String(), "The Salt Master has rejected this minion's public key!"); got != test.said {
			t.Errorf("%v: the log says %q", test.err, words.String())
		}
	}
}
