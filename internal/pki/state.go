package pki

import (
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// State is what the master thinks of a key. Only Accepted lets anybody in; the
// zero value does not.
type State int

// The states of a minion key. Where the same key lies in several directories, the greatest
// counts.
const (
	Unknown  State = iota // not in the store
	Pending               // waits for a decision
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

// maxRefused is how many denied, and how many rejected keys one id may have: an
// attacker can make keys without end, and nobody wants to read more of them.
// One digit numbers them, so that the longest id with its number still is a file
// name of 255 bytes.
const maxRefused = 8

// place is a directory of the store.
type place struct {
	state   State
	dir     string
	several bool // holds up to maxRefused keys of one id
}

// places lists the directories, those first whose word counts more where the
// same key lies in two of them.
var places = [...]place{
	{Denied, "minions_denied", true},
	{Rejected, "minions_rejected", true},
	{Accepted, "minions", false},
	{Pending, "minions_pre", false},
}

// autosignDir is made for Salt's autosign files and not read here.
const autosignDir = "minions_autosign"

// placeOf returns where keys of a state are; there is none for Unknown.
func placeOf(s State) (place, bool) {
	for _, p := range places {
		if p.state == s {
			return p, true
		}
	}
	return place{}, false
}

// names lists the file names that keys of id can have here.
func (p place) names(id salt.MinionID) []string {
	names := []string{string(id)}
	for n := 2; p.several && n <= maxRefused; n++ {
		names = append(names, string(id)+"#"+strconv.Itoa(n))
	}
	return names
}

// parseName returns the id whose key a file of that name holds.
func (p place) parseName(name string) (salt.MinionID, error) {
	if base, number, ok := strings.Cut(name, "#"); ok && p.several {
		if len(number) == 1 && number >= "2" && number <= strconv.Itoa(maxRefused) {
			name = base
		}
	}
	return salt.ParseMinionID(name)
}

// lossy says whether files here are written without a sync.
func (p place) lossy() bool { return p.state == Pending || p.state == Denied }
