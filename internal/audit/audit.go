// Package audit keeps the audit log of a master's decisions: who requested what, and whether it was
// allowed. The entries form a chain: each has the hash of the previous one, so a changed or removed
// entry is detected. The head of the chain is kept in a separate file, so that a cut end is
// detected too.
//
// The package decides nothing, and it is not an ordinary log: an entry is written before the
// decision takes effect; if it cannot be written, the decision does not take effect.
//
// A user who can write the journal, the head and the configuration, which is root, can also make a
// new chain. Keep a head on another machine against that: Verify compares it.
package audit

import (
	"encoding/json"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// Verdict is the outcome of a request. The zero value is a refusal.
type Verdict string

// The verdicts.
const (
	Refused Verdict = ""
	Allowed Verdict = "allowed"
	// Noted is for entries that are not decisions: the audit log was pruned, the rules were read
	// again.
	Noted Verdict = "noted"
)

// MarshalText writes the zero value as the word for a refusal.
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

// Kind is the kind of request.
type Kind string

// The kinds of entries.
const (
	Publish Kind = "publish" // functions on minions
	Runner  Kind = "runner"
	Wheel   Kind = "wheel"
	Fire    Kind = "fire"   // events
	Listen  Kind = "listen" // to events
	Mine    Kind = "mine"   // data that minions keep for each other was read
	File    Kind = "file"   // a file of the master was requested
	Return  Kind = "return" // of a job
	Purge   Kind = "purge"  // of events
	Stat    Kind = "stat"   // of the bus
	Key     Kind = "key"    // a minion's key was accepted, rejected, deleted, or refused
	Login   Kind = "login"  // of a user of external_auth
	Token   Kind = "token"  // a token was made, used or revoked
	Rules   Kind = "rules"  // the rules were read again
	OfLog   Kind = "trail"  // the audit log itself
)

// Who is the verified principal of a request. Only Sudo is not verified: it comes from an
// operator's tool.
type Who struct {
	User    string `json:"user,omitempty"`   // in the form that jobs use: fred, sudo_fred, minion:web1
	UID     *int   `json:"uid,omitempty"`    // of a local user, nil for others
	Sudo    string `json:"sudo,omitempty"`   // the user who called sudo
	Backend string `json:"eauth,omitempty"`  // that authenticated the user
	Minion  string `json:"minion,omitempty"` // the minion that sent the request
	Source  string `json:"source,omitempty"` // an address, or a process on this machine
	// Elsewhere means that it was done at another master of the same system, whose journal has the event that tells of it. What a
	// member concludes by itself from decisions of others is not.
	Elsewhere bool `json:"-"`
}

// maxMinions is how many ids an entry lists; Count has the total.
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
	Inner      []string        `json:"inner,omitempty"` // functions that it runs
	Target     string          `json:"tgt,omitempty"`
	TargetType string          `json:"tgt_type,omitempty"`
	Minions    []salt.MinionID `json:"minions,omitempty"`
	Count      int             `json:"count,omitempty"` // of minions or events
	Tags       []string        `json:"tags,omitempty"`
	JID        salt.JID        `json:"jid,omitempty"`
	Finger     string          `json:"fingerprint,omitempty"` // of a key
	Rule       string          `json:"rule,omitempty"`
	Where      string          `json:"where,omitempty"` // the rule as file:line
	Reason     string          `json:"reason,omitempty"`
	Outside    []salt.MinionID `json:"outside,omitempty"` // minions that the closest rule does not cover
	// Repeated is the number of further refusals of this kind within a minute.
	Repeated int `json:"repeated,omitempty"`
	// Spooled names the record of a member that could not store anything when it decided this: the
	// entry was put into the chain later, with the time of the decision.
	Spooled string `json:"without_quorum,omitempty"`
	// Omitted names the fields that are left out, or cut in the case of texts, since the entry would be too long.
	Omitted []string `json:"omitted,omitempty"`
	// Upto and Hash identify the last pruned entry.
	Upto uint64 `json:"upto,omitempty"`
	Hash string `json:"upto_hash,omitempty"`

	Commands []salt.Command `json:"-"`
}

// Tag is the tag of the event that announces the entry.
func (e *Entry) Tag() string {
	switch e.Verdict {
	case Allowed:
		return "salt/audit/allowed"
	case Noted:
		return "salt/audit/noted"
	}
	return "salt/audit/refused"
}
