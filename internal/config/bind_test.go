package config

import (
	"reflect"
	"testing"

	"gopkg.in/yaml.v3"
)

// TestEachDefaultIsValid: every setting has a kind, which accepts what its default would be in a file
// and keeps it as it is. Most defaults are filled in without it.
func TestEachDefaultIsValid(t *testing.T) {
	for daemon, c := range map[string]*Common{"master": &NewMaster().Common, "minion": &NewMinion().Common} {
		for _, s := range c.settings {
			value := reflect.ValueOf(s.to).Elem()
			if value.IsZero() {
				s.kind() // it panics without one
				continue
			}
			before := s.kind().get()
			var n yaml.Node
			if err := n.Encode(before); err != nil {
				t.Fatal(err)
			}
			if err := s.kind().set(Located{Node: &n}); err != nil || !reflect.DeepEqual(s.kind().get(), before) {
				t.Errorf("%s: %s: the default %v becomes %v: %v", daemon, s.key, before, s.kind().get(), err)
			}
		}
	}
}
