package master

import (
	"testing"

	"github.com/brinebus/brine/internal/rpc"
)

// TestAMemberThatStartsDoesNotReload: a start puts into force what it has read, which would undo what another member
// has made it read since.
func TestAMemberThatStartsDoesNotReload(t *testing.T) {
	m := &Master{serving: make(chan struct{})}
	if r, err := (standing{m}).Reload(); rpc.CodeOf(err) != rpc.Busy || len(r.Changed) > 0 {
		t.Errorf("it answers %v, %v", r, err)
	}
}
