package accord

import (
	"fmt"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/pki"
)

// TestDeletionsUseUpNothing: however many keys a member has deleted, it can decide about others, and its oldest deletions
// are forgotten.
func TestDeletionsUseUpNothing(t *testing.T) {
	j := openStore(t)
	a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
	const most = 40
	a.shared.most = most
	key := newKey(t).Public()
	for i := range most / 2 {
		a.act(Accept, fmt.Sprint("m", i), key)
		settled(a)
		a.act(Delete, fmt.Sprint("m", i), key)
		settled(a)
	}
	a.act(Accept, "web1", key)
	settled(a, b)
	b.is("web1", key, pki.Accepted)
	a.shared.forgetOld(t.Context(), time.Now().Add(time.Minute))
	if n := len(a.shared.view.rulings); n != most/shares/2+1 {
		t.Errorf("%d decisions are remembered, want %d", n, most/shares/2+1)
	}
}
