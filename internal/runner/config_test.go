package runner

import (
	"errors"
	"testing"

	"github.com/brinebus/brine/internal/salt"
)

// TestNotReloadedHasAllHints: each mistake has its own, and the whole has one.
func TestNotReloadedHasAllHints(t *testing.T) {
	cause := errors.New("b")
	err := NotReloaded(errors.Join(salt.WithHint(errors.New("a"), "do x"), errors.Join(salt.WithHint(cause, "do y"), errors.New("c"))))
	if want := "the old configuration stays in force:\na\n  hint: do x\nb\n  hint: do y\nc"; err.Error() != want || salt.Hint(err) != "'salt-master --check' tells the same without a daemon" || !errors.Is(err, cause) {
		t.Errorf("%v (%s), want %s", err, salt.Hint(err), want)
	}
	if got := NotReloaded(salt.WithHint(cause, "do y")).Error(); got != "the old configuration stays in force:\nb\n  hint: do y" {
		t.Errorf("one alone: %s", got)
	}
}
