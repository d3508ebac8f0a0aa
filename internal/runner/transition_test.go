package runner

import (
	"slices"
	"strings"
	"testing"
)

// TestARestoreStopsAllMembersFirst: members that are restored one after the other, while others run, lose
// what they have. So the steps stop all before anything is moved, and start none before all are done.
func TestARestoreStopsAllMembersFirst(t *testing.T) {
	members := []MemberStatus{{Name: "a", Self: true, Running: true}, {Name: "b", Running: true}, {Name: "c"}}
	list := BackupReport{Members: []string{"a", "b"}}.next("/backup", "/cache/cluster", members)
	at := func(text string) int {
		t.Helper()
		n := slices.IndexFunc(list, func(step string) bool { return strings.Contains(step, text) })
		if n < 0 {
			t.Errorf("there is no step %q in %q", text, list)
		}
		return n
	}
	stop, copied, start := at("on all members, before anything else: "+stopMaster), at("copy /backup"), at(startMaster)
	warned := at("still run")
	own := at("on a: mv /cache/cluster /cache/cluster.old; salt-master --restore /backup")
	other, lost := at("on b: mv STORE STORE.old; salt-master --restore /backup"), at("on c: mv STORE STORE.old; salt-master --restore /backup --restore-as NAME")
	if !slices.IsSorted([]int{warned, stop, copied, own, other, lost, start}) || start != len(list)-1 {
		t.Errorf("the steps are in the wrong order: %q", list)
	}
	if strings.Contains(list[warned], "c.") || !strings.Contains(list[warned], "b.") {
		t.Errorf("running are named wrongly: %q", list[warned])
	}
	alone := BackupReport{}.next("/backup", "/cache/journal", nil)
	if want := []string{stopMaster, "mv /cache/journal /cache/journal.old", "salt-master --restore /backup", startMaster}; !slices.Equal(alone, want) {
		t.Errorf("a single master: %q, want %q", alone, want)
	}
}
