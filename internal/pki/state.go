package pki

import (
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// State is the master's decision about a key. Only Accepted admits its minion; the zero value
// does not.
type State int

// The states of a minion key. If the same key is in several directories, the greatest applies.
const (
	Unknown  State = iota // not in the store
	Pending               // waiting for a decision
	Accepted              // belongs to the minion
	Rejected              // refused by a decision
	Denied                // claimed an id that another key holds
)

var stateNames = [...]string{"unknown", "pending", "accepted", "rejected", "denied"}

// String returns the lower-case name of the state.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return "unknown"
	}
	return stateNames[s]
}

// MaxRefused is how many denied, and how many rejected keys one id may have: an attacker can
// make any number of keys, and more are of no use to an operator. It is a single digit, so that
// the longest id with its number is a file name of at most 255 bytes.
const MaxRefused = 8

// place is a directory of the store.
type place struct {
	state   State
	dir     string
	several bool // holds up to MaxRefused keys of one id
}

// places lists the directories. If the same key is in two of them, the earlier one applies.
var places = [...]place{
	{Denied, "minions_denied", true},
	{Rejected, "minions_rejected", true},
	{Accepted, "minions", false},
	{Pending, "minions_pre", false},
}

// autosignDir is made for Salt's autosign files and not read here.
const autosignDir = "minions_autosign"

// placeOf returns the directory for keys of a state; there is none for Unknown.
func placeOf(s State) (place, bool) {
	for _, p := range places {
		if p.state == s {
			return p, true
		}
	}
	return place{}, false
}

// names returns the file names that keys of id can have here.
func (p place) names(id salt.MinionID) []string {
	names := []string{string(id)}
	for n := 2; p.several && n <= MaxRefused; n++ {
		names = append(names, string(id)+"#"+strconv.Itoa(n))
	}
	return names
}

// parseName returns the id of the key in a file of that name.
func (p place) parseName(name string) (salt.MinionID, error) {
	if base, number, ok := strings.Cut(name, "#"); ok && p.several {
		if len(number) == 1 && number >= "2" && number <= strconv.Itoa(MaxRefused) {
			name = base
		}
	}
	return salt.ParseMinionID(name)
}

// lossy reports whether files here are written without a sync.
func (p place) lossy() bool { return p.state == Pending || p.state == Denied }
