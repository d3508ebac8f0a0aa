package bus

import (
	"strings"
	"testing"
)

func TestCheckJournalName(t *testing.T) {
	for _, name := range []string{"a", "7", "web1_backup-2", strings.Repeat("a", 64)} {
		if err := CheckJournalName(name); err != nil {
			t.Errorf("CheckJournalName(%q): %v", name, err)
		}
	}
	for _, name := range []string{"", "-a", "_a", "a.b", "a b", "*", ">", "a/b", "a\n", "é", "a\xff", strings.Repeat("a", 65)} {
		if CheckJournalName(name) == nil {
			t.Errorf("CheckJournalName(%q) took it", name)
		}
	}
}
