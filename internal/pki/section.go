package pki

import (
	"slices"
	"strings"
)

// sections are the states in the order in which they are shown, with their names in results, in
// arguments, and in sentences.
var sections = []struct {
	state State
	name  string   // in results, as in Salt
	args  []string // of --list and key.list
	word  string
}{
	{Accepted, "minions", []string{"acc", "accepted"}, "accepted"},
	{Denied, "minions_denied", []string{"den", "denied"}, "denied"},
	{Pending, "minions_pre", []string{"pre", "un", "unaccepted", "pending"}, "unaccepted"},
	{Rejected, "minions_rejected", []string{"rej", "rejected"}, "rejected"},
}

// Section returns the name of this state in results, as in Salt: "minions_pre"; "" for Unknown.
func (s State) Section() string {
	for _, sec := range sections {
		if sec.state == s {
			return sec.name
		}
	}
	return ""
}

// ParseState parses a state with the names of Salt: pre, un or unaccepted.
func ParseState(word string) (State, bool) {
	for _, sec := range sections {
		if slices.Contains(sec.args, word) {
			return sec.state, true
		}
	}
	return Unknown, false
}

// StateWords joins the names of states: "unaccepted or rejected".
func StateWords(states []State) string {
	var words []string
	for _, sec := range sections {
		if slices.Contains(states, sec.state) {
			words = append(words, sec.word)
		}
	}
	return strings.Join(words, " or ")
}

// AllStates returns the states that a stored key can have, in the order in which they are
// shown.
func AllStates() []State {
	var states []State
	for _, sec := range sections {
		states = append(states, sec.state)
	}
	return states
}
