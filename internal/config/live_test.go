package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Each setting of a daemon that has changed when the file is read again is named: as one that
// takes effect, or as one that needs a restart. None is skipped silently.
func TestEachChangedSettingIsNamed(t *testing.T) {
	m, _, err := master(t, "")
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := minion(t, "")
	if err != nil {
		t.Fatal(err)
	}
	for daemon, was := range map[string]*Common{"master": &m.Common, "minion": &s.Common} {
		for _, key := range was.Keys() {
			now := *was
			now.Raw = map[string]any{key: "changed"}
			taken, restart := was.Changes(&now)
			want := [][]string{nil, {key}}
			if slices.Contains(live[daemon], key) || slices.Contains(ofTools, key) || strings.HasPrefix(key, "auth.") {
				want = [][]string{{key}, nil}
			}
			if key == "include" {
				want = [][]string{nil, nil}
			}
			if got := [][]string{taken, restart}; !reflect.DeepEqual(got, want) {
				t.Errorf("%s of the %s has changed: told is %q, want %q", key, daemon, got, want)
			}
		}
		all, now := map[string]any{}, *was
		for _, key := range was.Keys() {
			all[key] = "changed"
		}
		now.Raw = all
		if taken, restart := was.Changes(&now); !slices.IsSorted(restart) || len(taken)+len(restart) < len(was.Keys())-1 {
			t.Errorf("of %d changed settings of the %s %d are told", len(was.Keys()), daemon, len(taken)+len(restart))
		}
	}
}
