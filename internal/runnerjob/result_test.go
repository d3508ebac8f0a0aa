package runnerjob

import (
	"errors"
	"fmt"
	"testing"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// TestCodesOfFailedRunners: a runner that was refused something, or whose store cannot be asked now, or whose arguments
// are wrong, is told from one that has failed.
func TestCodesOfFailedRunners(t *testing.T) {
	const leaderless = salt.Unanswered("it has no leader")
	for _, c := range []struct {
		err  error
		want int
	}{
		{rpc.Errorf(rpc.Denied, "no rule allows it"), protocol.RunRefused},
		{salt.WithHint(fmt.Errorf("the stream EVENTS_a: %w", leaderless), "ask again"), protocol.RunUnavailable},
		{&function.ArgumentError{Function: "jobs.lookup_jid", Problem: "missing"}, protocol.RunUsage},
		{salt.WithHint(function.Invalid("which entry is meant?"), "say which"), protocol.RunUsage},
		{&function.UnknownError{Function: "nosuch.fun"}, 1},
		{errors.New("the disk is full"), 1},
	} {
		got := runResult(function.Result{Err: c.err, Retcode: 1}, false)
		if got.Retcode != c.want || got.Success || got.Error != c.err.Error() {
			t.Errorf("%v: %+v, want the code %d", c.err, got, c.want)
		}
	}
}
