// Package protocol is what the parts of Brine say to each other: the bodies of
// requests and of their answers, one type each. It holds no behaviour.
//
// All of them travel as JSON over package bus. Fields may be added; the meaning
// of one that stands never changes, since master and minions are not upgraded at
// the same moment.
package protocol

import (
	"encoding/json"
	"time"

	"brine/internal/event"
	"brine/internal/job"
	"brine/internal/salt"
	"brine/internal/value"
)

// The requests, as the last token of their subject. Who may ask which is said
// where the handlers are registered.
const (
	OpAsk     = "ask"     // Ask → AskAnswer ... : is my key accepted?
	OpHello   = "hello"   // Hello → Welcome: a minion is ready for jobs
	OpGrains  = "grains"  // Hello → nothing: its facts have changed
	OpReturn  = "return"  // LocalReturn → nothing: what salt-call ran
	OpFire    = "fire"    // Fire → Fired
	OpListen  = "listen"  // Listen → Ready, then event.Event ...
	OpPublish = "publish" // Publish → job.Start, then job.Update ...
	OpRun     = "run"     // Run → RunStart, then RunResult
	OpStatus  = "status"  // nothing → Status: of a minion's daemon
	OpMaster  = "master"  // Fire → Fired: a minion's daemon passes events on to its master
)

// Ask is the question of the holder of a key. Master passes what autosign looks at.
type Ask struct {
	AutosignGrains map[string]string `json:"autosign_grains,omitempty"`
	Version        string            `json:"version"`
}

// KeyState is where the key of the asking side stands.
type KeyState string

// The states of a key as its holder is told.
const (
	KeyAccepted KeyState = "accepted"
	KeyPending  KeyState = "pending"
	KeyRejected KeyState = "rejected"
	KeyDenied   KeyState = "denied" // another key holds the id
	KeyFull     KeyState = "full"   // the master takes no more waiting keys
)

// AskAnswer tells the state of the key, at once and again when it changes.
type AskAnswer struct {
	State     KeyState `json:"state"`
	Reconnect bool     `json:"reconnect,omitempty"` // this connection has not the rights of the state; a new one will
	Version   string   `json:"version"`
}

// Hello announces a minion with its facts.
type Hello struct {
	Grains  value.Value `json:"grains"`
	Version string      `json:"version"`
	Running []salt.JID  `json:"running,omitempty"` // jobs that it works on, after a reconnect
}

// Welcome answers Hello.
type Welcome struct {
	Time    time.Time `json:"time"` // of the master: expiry is judged by its clock
	Version string    `json:"version"`
}

// Fire hands events over to be stored, all of them or none.
type Fire struct {
	ID     string      `json:"id,omitempty"` // names the batch, so that a repetition is not stored twice
	Form   FireForm    `json:"form,omitempty"`
	Pretag *string     `json:"pretag"`
	Events []FireEvent `json:"events"`
}

// FireForm says how a minion's event looks on the master's bus.
type FireForm string

// The forms of Salt: a single event is wrapped into {id, cmd, pretag, data, tag};
// those of a list and those of local users stand as they are.
const (
	FormPlain  FireForm = ""
	FormSingle FireForm = "single"
)

// FireEvent is one event of Fire.
type FireEvent struct {
	Tag  string          `json:"tag"`
	Data json.RawMessage `json:"data"`
}

// Outcome is what became of events.
type Outcome string

// The outcomes; a refusal is an error.
const (
	Stored Outcome = "stored" // in the journal
	Queued Outcome = "outbox" // kept on the minion, delivered when a master is there
)

// Fired answers Fire.
type Fired struct {
	Outcome Outcome `json:"outcome"`
	Seq     uint64  `json:"seq,omitempty"` // of the last event
}

// Listen asks for events.
type Listen struct {
	Tags  []string  `json:"tags,omitempty"` // prefixes; none is everything
	Since time.Time `json:"since,omitzero"` // from then on; zero for what comes after Ready
}

// Ready says that the listener stands: what is fired from now on is heard.
type Ready struct {
	Ready bool `json:"ready"`
}

// Heard is one message of the answer to Listen.
type Heard = event.Event

// Publish asks the master to run commands on minions.
type Publish struct {
	Target     string        `json:"tgt"`
	TargetType string        `json:"tgt_type"`
	Delimiter  string        `json:"delimiter,omitempty"`
	Commands   []job.Command `json:"commands"`
	Compound   bool          `json:"compound,omitempty"`
	Timeout    job.Seconds   `json:"timeout"`
	Async      bool          `json:"async,omitempty"`   // answer with the start only
	Preview    bool          `json:"preview,omitempty"` // answer with the targeted minions, run nothing
	Returner   string        `json:"ret,omitempty"`
}

// Run asks the master to run a runner.
type Run struct {
	Command job.Command `json:"command"`
	Timeout job.Seconds `json:"timeout"`
	Async   bool        `json:"async,omitempty"`
}

// RunStart is the first answer to Run.
type RunStart struct {
	JID salt.JID `json:"jid"`
	Tag string   `json:"tag"`
}

// RunResult is the last.
type RunResult struct {
	Return  value.Value `json:"return"`
	Success bool        `json:"success"`
	Retcode int         `json:"retcode"`
	Out     string      `json:"out,omitempty"`
}

// LocalReturn is what salt-call ran on its own.
type LocalReturn struct {
	JID     salt.JID    `json:"jid"`
	Command job.Command `json:"command"`
	job.Report
}

// Status describes a minion's daemon to the tools beside it.
type Status struct {
	ID        salt.MinionID `json:"id"`
	Version   string        `json:"version"`
	Master    string        `json:"master"` // the address in use, "" if there is none
	Connected bool          `json:"connected"`
	Waiting   string        `json:"waiting,omitempty"` // what for, when not connected
	Outbox    uint64        `json:"outbox"`            // how many messages wait for a master
	Grains    value.Value   `json:"grains"`
}
