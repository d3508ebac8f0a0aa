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
	list := BackupReport{Members: []string{"a", "b", "old"}}.next("/backup", "/cache/cluster", members)
	at := func(text string) int {
		t.Helper()
		n := slices.IndexFunc(list, func(step string) bool { return strings.Contains(step, text) })
		if n < 0 {
			t.Errorf("there is no step %q in %q", text, list)
		}
		return n
	}
	stop, copied, start := at("on all members, before anything else: "+stopMaster), at("copy /backup"), at("done on each: systemctl start --no-block salt-master")
	warned := at("still run")
	own := at("on a: mv /cache/cluster /cache/cluster.old; salt-master --restore /backup")
	other, lost := at("on b: mv STORE STORE.old; salt-master --restore /backup"), at("on c: mv STORE STORE.old; salt-master --restore /backup --restore-as NAME")
	if !slices.IsSorted([]int{warned, stop, copied, own, other, lost, start}) || start != len(list)-1 {
		t.Errorf("the steps are in the wrong order: %q", list)
	}
	if strings.Contains(list[warned], "c.") || !strings.Contains(list[warned], "b.") {
		t.Errorf("running are named wrongly: %q", list[warned])
	}
	if named := at("NAME is one of old, "); named < lost || named > start {
		t.Errorf("the name is said at the wrong place: %q", list)
	}
	alone := BackupReport{}.next("/backup", "/cache/journal", nil)
	if want := []string{stopMaster, "mv /cache/journal /cache/journal.old", "salt-master --restore /backup", startMaster}; !slices.Equal(alone, want) {
		t.Errorf("a single master: %q, want %q", alone, want)
	}
}

// TestARestoreAtNATSServersMovesNoDirectory: there is none, and nothing is restored over streams.
func TestARestoreAtNATSServersMovesNoDirectory(t *testing.T) {
	for _, test := range []struct{ members, want []string }{
		{nil, []string{"salt-master --restore /backup"}},
		{[]string{"nats"}, []string{"salt-master --restore /backup"}},
		{[]string{"a", "b"}, []string{"salt-master --restore /backup --restore-as NAME", "NAME is one of a, b"}},
	} {
		list := BackupReport{Members: test.members}.next("/backup", "", nil)
		if len(list) != len(test.want)+3 || !strings.Contains(list[0], stopMaster) || !strings.Contains(list[1], "remove the streams") || !slices.Equal(list[2:len(list)-1], test.want) || list[len(list)-1] != startMaster {
			t.Errorf("%q: %q", test.members, list)
		}
	}
}

// TestWhatIsLeftFollowsTheSettings: a member does not start that names fewer members than it stores copies.
func TestWhatIsLeftFollowsTheSettings(t *testing.T) {
	for _, test := range []struct {
		left, copies int
		says         string
	}{
		{2, 3, "Until then leave the entry there, since at least 3 have to be named"},
		{2, 5, "Until then leave the entry there, since at least 5 have to be named"},
		{3, 5, "Until then leave the entry there. To go on without another one, set cluster_copies: 3"},
		{3, 3, "take this master out of cluster_peers on the others, and restart"},
		{4, 3, "take this master out of cluster_peers on the others, and restart"},
		{4, 5, "Until then leave the entry there. To go on without another one, set cluster_copies: 3"},
		{5, 5, "take this master out of cluster_peers on the others, and restart"},
	} {
		next := LeaveReport{Left: []string{"a", "b", "c", "d", "e"}[:test.left], Copies: test.copies}.next()
		if got := next[len(next)-1]; !strings.Contains(got, test.says) {
			t.Errorf("%d left with %d copies: %q, want %q", test.left, test.copies, got, test.says)
		}
	}
}

// TestNoJournalIsRestoredTwice: each event would be there twice.
func TestNoJournalIsRestoredTwice(t *testing.T) {
	members := []MemberStatus{{Name: "a"}, {Name: "b", Self: true}, {Name: "c"}}
	for _, test := range []struct {
		backup []string
		want   []string // how they restore
	}{
		{nil, []string{"on b: mv /cache/cluster /cache/cluster.old; salt-master --restore /backup"}}, // of a single master
		{[]string{"old"}, []string{"on b: mv /cache/cluster /cache/cluster.old; salt-master --restore /backup --restore-as NAME"}},
		{[]string{"a"}, []string{"on a: mv STORE STORE.old; salt-master --restore /backup"}},
	} {
		var got []string
		for _, step := range (BackupReport{Members: test.backup}).next("/backup", "/cache/cluster", members) {
			if strings.Contains(step, "--restore") {
				got = append(got, step)
			}
			if strings.HasPrefix(step, "copy") && !slices.Equal(test.backup, []string{"a"}) {
				t.Errorf("%q: the backup is copied in vain: %q", test.backup, step)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%q: restored by %q, want %q", test.backup, got, test.want)
		}
	}
}

// TestARemovalNamesItsMember: a call without one is a mistake in the call, and says nothing of the members.
func TestARemovalNamesItsMember(t *testing.T) {
	if got := call(t, Table(&Host{}), "cluster.remove", nil, nil); got.Err == nil || !strings.Contains(got.Err.Error(), `missing required argument "member"`) {
		t.Errorf("%v", got.Err)
	}
}
