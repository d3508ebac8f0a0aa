// Package mine has the words about the mine, what minions keep at the master for each other
// to read. Who keeps it, and who may read what, is for the master.
package mine

import (
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Change changes what a minion keeps, as a whole or not at all.
type Change struct {
	Clear  bool             `json:"clear,omitempty"` // first of all, drop everything
	Delete []string         `json:"delete,omitempty"`
	Put    map[string]Entry `json:"put,omitempty"`
}

// Entry is what a minion keeps under one name.
type Entry struct {
	Data      value.Value `json:"data"`
	Allow     string      `json:"allow_tgt,omitempty"`      // who may read it: a target; "" is everybody
	AllowType string      `json:"allow_tgt_type,omitempty"` // "" is a glob
}

// Query asks for entries of the minions of a target.
type Query struct {
	Target     string   `json:"tgt"`
	TargetType string   `json:"tgt_type"`
	Names      []string `json:"names"`
}

// Item is one entry of one minion.
type Item struct {
	ID   salt.MinionID `json:"id"`
	Name string        `json:"name"`
	Data value.Value   `json:"data"`
}
