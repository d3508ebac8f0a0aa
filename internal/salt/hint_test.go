package salt_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/brinebus/brine/internal/salt"
)

// TestUnwritten: what is nearest to the reader is named, and the cause behind it stays.
func TestUnwritten(t *testing.T) {
	journal, log := error(salt.Unwritten("the journal")), error(salt.Unwritten("the audit log"))
	err := fmt.Errorf("record a job: %w", fmt.Errorf("%w: %w", log, fmt.Errorf("%w: %w", journal, syscall.ENOSPC)))
	var what salt.Unwritten
	if !errors.As(err, &what) || what.Error() != "the audit log cannot be written" {
		t.Errorf("%v: %q", err, what)
	}
	if !errors.Is(err, log) || !errors.Is(err, journal) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v has lost a cause", err)
	}
	if errors.Is(journal, log) || errors.As(syscall.ENOSPC, &what) {
		t.Error("errors of different stores, or of none, are the same")
	}
}
