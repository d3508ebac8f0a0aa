// Package audit keeps the audit log of a master's decisions: who wanted what, and
// whether it was allowed. The entries are a chain, each with the hash of the one
// before, so that it shows when one is changed or taken out; the head of the
// chain is kept in a file elsewhere, so that it shows when its end is.
//
// It decides nothing, and it is no log: what is written here is written before
// the decision takes effect, or the effect does not come.
//
// Whoever can write the journal, the head and the configuration at once, which
// is root, can also make a new chain. Against that helps a head that is kept on
// another machine, which Verify compares.
package audit

import (
	"encoding/json"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// Verdict is what came of a question. The zero value is a refusal.
type Verdict string

// The verdicts.
const (
	Refused Verdict = ""
	Allowed Verdict = "allowed"
	// Noted is for what nobody decided: the audit log was pruned, the rules were read
	// anew.
	Noted Verdict = "noted"
)

// MarshalText writes the zero value as the word that it means.
func (v Verdict) MarshalText() ([]byte, error) {
	if v == Refused {
		return []byte("refused"), nil
	}
	return []byte(v), nil
}

// UnmarshalText is the inverse of MarshalText.
func (v *Verdict) UnmarshalText(text []byte) error {
	*v = Verdict(text)
	if *v == "refused" {
		*v = Refused
	}
	return nil
}

// Kind is what was asked for.
type Kind string

// The kinds of entries.
const (
	Publish Kind = "publish" // functions on minions
	Runner  Kind = "runner"
	Wheel   Kind = "wheel"
	Fire    Kind = "fire"   // events
	Listen  Kind = "listen" // to events
	Mine    Kind = "mine"   // what minions keep for each other was read
	File    Kind = "file"   // of the master was asked for
	Return  Kind = "return" // of a job
	Purge   Kind = "purge"  // of events
	Stat    Kind = "stat"   // of the bus
	Key     Kind = "key"    // a minion's key was accepted, rejected, deleted, or turned away
	Login   Kind = "login"  // of a user of external_auth
	Token   Kind = "token"  // it was made, used or revoked
	Rules   Kind = "rules"  // they were read anew
	OfLog   Kind = "trail"  // the audit log itself
)

// Who is who asked, as verified. Sudo alone is what a tool of an operator says.
type Who struct {
	User    string `json:"user,omitempty"`   // as jobs name it: fred, sudo_fred, minion:web1
	UID     *int   `json:"uid,omitempty"`    // of a local user, nil for others
	Sudo    string `json:"sudo,omitempty"`   // the user behind sudo
	Backend string `json:"eauth,omitempty"`  // that authenticated the user
	Minion  string `json:"minion,omitempty"` // that asked
	Source  string `json:"source,omitempty"` // an address, or a process of this machine
}

// maxMinions is how many ids an entry lists; Count has their number.
const maxMinions = 1000

// Entry is one decision. N, Time, Prev, Digest and Arguments are set by the Log.
type Entry struct {
	N       uint64    `json:"n"` // from 1
	Time    time.Time `json:"time"`
	Prev    string    `json:"prev"` // the hash of the entry before
	Kind    Kind      `json:"kind"`
	Verdict Verdict   `json:"verdict"`
	Who
	Fun        string          `json:"fun,omitempty"`
	Digest     string          `json:"args,omitempty"`
	Arguments  json.RawMessage `json:"arg,omitempty"`
	Inner      []string        `json:"inner,omitempty"` // functions inside it
	Target     string          `json:"tgt,omitempty"`
	TargetType string          `json:"tgt_type,omitempty"`
	Minions    []salt.MinionID `json:"minions,omitempty"`
	Count      int             `json:"count,omitempty"` // of minions, or of events
	Tags       []string        `json:"tags,omitempty"`
	JID        salt.JID        `json:"jid,omitempty"`
	Finger     string          `json:"fingerprint,omitempty"` // of a key
	Rule       string          `json:"rule,omitempty"`
	Where      string          `json:"where,omitempty"` // the rule's place, file:line
	Reason     string          `json:"reason,omitempty"`
	Outside    []salt.MinionID `json:"outside,omitempty"` // minions that the nearest rule does not cover
	// Repeated is how many more such refusals came within a minute.
	Repeated int `json:"repeated,omitempty"`
	// Upto and Hash are the last entry that was pruned.
	Upto uint64 `json:"upto,omitempty"`
	Hash string `json:"upto_hash,omitempty"`

	Commands []salt.Command `json:"-"`
}

// Tag is the tag of the event that tells of the entry.
func (e *Entry) Tag() string {
	switch e.Verdict {
	case Allowed:
		return "salt/audit/allowed"
	case Noted:
		return "salt/audit/noted"
	}
	return "salt/audit/refused"
}
