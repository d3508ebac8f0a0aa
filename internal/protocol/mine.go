package protocol

import (
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// The requests for the mine: what minions keep at the master for each other.
const (
	OpMine    = "mine"     // MineChange → nothing: of the minion that asks
	OpMineGet = "mine_get" // MineGet → MineItem ...: what that minion may read
)

// MineChange changes what a minion keeps in the mine, as a whole or not at all.
type MineChange struct {
	Clear  bool                 `json:"clear,omitempty"` // first of all, drop everything
	Delete []string             `json:"delete,omitempty"`
	Put    map[string]MineEntry `json:"put,omitempty"`
}

// MineEntry is what a minion keeps under one name.
type MineEntry struct {
	Data      value.Value `json:"data"`
	Allow     string      `json:"allow_tgt,omitempty"`      // who may read it: a target; "" is everybody
	AllowType string      `json:"allow_tgt_type,omitempty"` // "" is a glob
}

// MineGet asks for entries of the minions of a target.
type MineGet struct {
	Target     string   `json:"tgt"`
	TargetType string   `json:"tgt_type"`
	Names      []string `json:"names"`
}

// MineItem is one entry of one minion.
type MineItem struct {
	ID   salt.MinionID `json:"id"`
	Name string        `json:"name"`
	Data value.Value   `json:"data"`
}
