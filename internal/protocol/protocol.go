// Package protocol has the bodies of requests and answers between the parts of Brine, one type
// each. It has no behaviour.
//
// All of them are sent as JSON over package bus. Fields may be added; the meaning of an
// existing one never changes, since master and minions are not upgraded at the same time.
package protocol

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// The requests, as the last token of their subject. The endpoints of package bus say who may
// send which.
const (
	OpAsk       = "ask"       // Ask → AskAnswer ... : is my key accepted?
	OpHello     = "hello"     // Hello → Welcome: a minion is ready for jobs
	OpGrains    = "grains"    // Hello → nothing: its facts have changed
	OpReturn    = "return"    // LocalReturn → nothing: what salt-call ran
	OpPillar    = "pillar"    // nothing → Pillar: of the requesting minion
	OpFire      = "fire"      // Fire → Fired
	OpListen    = "listen"    // Listen → Ready, then event.Event ...
	OpPublish   = "publish"   // Publish → job.Start, then job.Update ...
	OpFollow    = "follow"    // Follow → job.Start, then job.Update ...
	OpRun       = "run"       // Run → RunStart, then RunResult
	OpKeyAction = "keyaction" // KeyAction → KeyActed: who is about to change keys, for the audit log
	OpStatus    = "status"    // nothing → Status: of a minion's daemon
	OpMaster    = "master"    // Fire → Fired: a minion's daemon passes events on to its master
	OpEnd       = "place"     // nothing or EndOf → End: the present end of the journal
	OpConfirm   = "confirm"   // Confirm → nothing: how far a durable listener has come
	OpDead      = "dead"      // Dead → DeadLetter ...: events that a handler could not handle
	OpStat      = "stat"      // nothing → Stat: of the bus, for operators
	OpPurge     = "purge"     // Purge → Purged: of the journal, for operators
	OpRefresh   = "refresh"   // Refresh → nothing: a minion's daemon collects its data again
	OpComplete  = "complete"  // Complete → Words: completions of a command line
	OpProfile   = "profile"   // Profile → ProfileData: of the daemon, for operators
)

// Refresh names what to collect again.
type Refresh struct {
	Grains bool `json:"grains,omitempty"`
	Pillar bool `json:"pillar,omitempty"`
}

// WordKind is what a word of a command line names.
type WordKind string

// The kinds. A minion's daemon knows tags only.
const (
	MinionWords   WordKind = "minion"
	GroupWords    WordKind = "nodegroup"
	FunctionWords WordKind = "function"
	RunnerWords   WordKind = "runner"
	WheelWords    WordKind = "wheel"
	JobWords      WordKind = "job"
	TagWords      WordKind = "tag"
)

// Via is the field that a minion's daemon reads in a request that it passes on: the master to
// ask, "" for any.
type Via struct {
	Via string `json:"via"`
}

// Complete asks for words of a kind with this prefix.
type Complete struct {
	Kind   WordKind `json:"kind"`
	Prefix string   `json:"prefix,omitempty"`
}

// Words is the answer: some of them, sorted.
type Words struct {
	Words []string `json:"words"`
}

// Profile asks for a profile of the daemon: its kind, and for a CPU profile its duration.
type Profile struct {
	Kind    string  `json:"kind"`
	Seconds float64 `json:"seconds,omitempty"`
}

// ProfileData is the profile, as 'go tool pprof' reads it.
type ProfileData struct {
	Data []byte `json:"data"`
}

// Ask is the question of a key's holder. Master passes grains for autosign.
type Ask struct {
	AutosignGrains map[string]string `json:"autosign_grains,omitempty"`
	Version        string            `json:"version"`
	// Challenge asks for a proof of the master's key, where TLS does not end at the master:
	// ChallengeSize random bytes.
	Challenge []byte `json:"challenge,omitempty"`
}

// ChallengeSize is the size of a challenge in bytes.
const ChallengeSize = 32

// ProofText is what a master signs for a challenge on the connection with this inbox. Nothing
// else that a master signs begins like it.
func ProofText(challenge []byte, inbox string) []byte {
	return append([]byte("brine: this is the master of the connection "+inbox+" with the challenge "), challenge...)
}

// KeyState is the state of the client's key.
type KeyState string

// The states of a key, as reported to its holder.
const (
	KeyAccepted KeyState = "accepted"
	KeyPending  KeyState = "pending"
	KeyRejected KeyState = "rejected"
	KeyDenied   KeyState = "denied" // another key holds the id
	KeyFull     KeyState = "full"   // the master accepts no more waiting keys
)

// KeyAction announces what the user is about to do with keys: accept, reject or delete. It
// changes nothing and gives no right: only the files count.
type KeyAction struct {
	Act  string     `json:"act"`
	Keys []pki.Name `json:"keys"`
}

// KeyActed is the answer to KeyAction. Masters of earlier versions give none.
type KeyActed struct {
	Unstored string `json:"unstored,omitempty"` // why the master can store nothing at the moment; "" if it can
	// Elsewhere is true while another master is at work on the NATS servers, which does not hear of the decision.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// AskAnswer is the state of the key, sent at once and again when it changes.
type AskAnswer struct {
	State     KeyState `json:"state"`
	Reconnect bool     `json:"reconnect,omitempty"` // this connection does not have the rights of that state; a new one will
	Version   string   `json:"version"`

	// For a challenge, in the first answer: the certificate of the master, as in a TLS
	// handshake, and its signature of ProofText.
	Certificate []byte `json:"certificate,omitempty"`
	Proof       []byte `json:"proof,omitempty"`
}

// Hello announces a minion with its grains.
type Hello struct {
	Grains  value.Value `json:"grains"`
	Version string      `json:"version"`
	// Moves means that it follows a Control to another member of a cluster.
	Moves bool `json:"moves,omitempty"`
	// Process is a random text that each process of a minion's daemon makes at its start: by it the members
	// of a cluster tell a minion that is connected to several of them from two machines with one key.
	Process string `json:"process,omitempty"`
}

// MaxProcess is how long Hello.Process may be, in bytes.
const MaxProcess = 64

// Welcome answers Hello.
type Welcome struct {
	Time    time.Time `json:"time"` // the master's time: its clock counts for expiry
	Version string    `json:"version"`
	// Jobs are unfinished jobs that were sent to the minion. It reports the state of each as a
	// job.Report; job.Unknown for one that it never received.
	Jobs []salt.JID `json:"jobs,omitempty"`
	// Cluster is nil for a single master.
	Cluster *Cluster `json:"cluster,omitempty"`
	// Early means that the master answers the request early, see outbox.OpEarly.
	Early bool `json:"early,omitempty"`
}

// Pillar is the private data of the requesting minion. With errors, a master sends no data, and
// a minion's daemon the latest valid data.
type Pillar struct {
	Data   value.Value `json:"data"`
	Errors []string    `json:"errors,omitempty"` // the mistakes, each with its file and line
}

// Fire is a request to store events, all of them or none.
type Fire struct {
	ID string `json:"id,omitempty"` // id of the batch, so that a duplicate is not stored
	// Series, if not empty, is the common id of all batches of one input instead, and the first
	// event of this batch has the number First in it, from 0: so a duplicate is recognised even
	// if it is split into other batches. A daemon that does not support it uses ID.
	Series string   `json:"series,omitempty"`
	First  int      `json:"first,omitempty"`
	Form   FireForm `json:"form,omitempty"`
	Pretag *string  `json:"pretag"`
	// Live sends the events to present listeners without storing them.
	Live bool `json:"live,omitempty"`
	// Waiting asks for a message that says what the events wait for, see Fired.
	Waiting bool         `json:"waiting,omitempty"`
	Events  []event.Item `json:"events"`
}

// FireOne fires one event; id recognises duplicates, "" for none.
func FireOne(id, tag string, data json.RawMessage) Fire {
	return Fire{ID: id, Events: []event.Item{{Tag: tag, Data: data}}}
}

// FireForm is the form of a minion's event on the master's bus.
type FireForm string

// The forms of Salt: a single event is wrapped into {id, cmd, pretag, data, tag}; those of a
// list and those of local users are not.
const (
	FormPlain  FireForm = ""
	FormSingle FireForm = "single"
)

// Outcome is the result for events.
type Outcome string

// The outcomes; a refusal is an error.
const (
	Stored Outcome = "stored" // in the journal
	Queued Outcome = "outbox" // in the minion's outbox, delivered when there is a master
	Handed Outcome = "handed" // sent to present listeners, and not stored
)

// Fired answers Fire.
type Fired struct {
	Outcome Outcome `json:"outcome"`
	Seq     uint64  `json:"seq,omitempty"` // sequence of the last event
	// Masters has the result for each master if there are several: Outcome is Stored only when
	// all have stored them.
	Masters []MasterFired `json:"masters,omitempty"`
	// Waiting is what the events wait for. There is nothing else in such a message then, and the result follows. Only
	// those get it who ask for it in Fire.
	Waiting string `json:"waiting,omitempty"`
}

// Electing is what a job or an event waits for in a cluster, as commands say it: "waiting for ...".
const Electing = "the members of the cluster to elect a leader"

// TellTime is after how long whoever asks for it is told what a job or an event waits for: within the second after
// which commands say so.
const TellTime = 500 * time.Millisecond

// MasterFired is the result for events at one master.
type MasterFired struct {
	Master  string  `json:"master"`
	Outcome Outcome `json:"outcome"`
	Seq     uint64  `json:"seq,omitempty"`
}

// Listen asks for events. At most one of Since and FromSeq is set; without either it begins
// with events after Ready.
type Listen struct {
	Tags  []string  `json:"tags,omitempty"` // prefixes, or as Match says; none means all
	Since time.Time `json:"since,omitzero"` // from then on

	Match   event.MatchType `json:"match,omitempty"`
	Senders []string        `json:"senders,omitempty"`  // shell patterns for the sender; none means all
	FromSeq uint64          `json:"from_seq,omitempty"` // from this sequence on
	// UntilEnd ends the answer after the last event that was stored when it began.
	UntilEnd bool `json:"until_end,omitempty"`
	// Durable names a position that is stored for the user. The answer begins after the latest
	// Confirm; Since and FromSeq count only for a new position. One listener at a time may hold
	// it.
	Durable string `json:"durable,omitempty"`
	// Resume is set by a listener that reconnects: it has handled everything before FromSeq,
	// whether or not that was confirmed.
	Resume bool `json:"resume,omitempty"`
	// Lines asks for answers of one or more lines, each an event or a Progress, instead
	// of one event in each message.
	Lines bool `json:"lines,omitempty"`
	// Live also asks for events that are not stored, as they come. They have no sequence. It
	// cannot be combined with Durable or UntilEnd.
	Live bool `json:"live,omitempty"`
	// Mirrors also asks for the events of other masters' journals that are mirrored here. Each
	// has its own sequence, and MasterOf returns its journal. It needs Lines.
	Mirrors bool `json:"mirrors,omitempty"`
	// Members asks for the events of all members of a cluster, as Mirrors does. Of a single master
	// it asks for nothing more.
	Members bool `json:"members,omitempty"`
	// At are the sequences to begin at, by the names of journals. For other journals Since and
	// FromSeq count, the latter for the own journal only.
	At event.Position `json:"at,omitempty"`
}

// Ready means that the listener is set up: it gets every event fired from now on.
type Ready struct {
	Ready bool   `json:"ready"`
	Start uint64 `json:"start,omitempty"` // sequence where it begins
	Last  uint64 `json:"last,omitempty"`  // newest event of the journal
	Lost  uint64 `json:"lost,omitempty"`  // events, at most, that were discarded before this position got them
	// Ahead is the listener's position, if it is beyond the end of the journal: the journal is
	// another one, or has lost its end. The listener then begins at its start.
	Ahead uint64 `json:"ahead,omitempty"`
	// At are the sequences where it begins in the journals of other masters.
	At event.Position `json:"at,omitempty"`
	// Gone are the journals of the position of a listener with Resume that are not here any more. It
	// goes on without them.
	Gone []string `json:"gone,omitempty"`
	// Stored is the stored position of a listener with Durable, in each journal by its name; that of
	// a single master is "".
	Stored event.Position `json:"stored,omitempty"`
	// Journal is the name of the own journal, in a cluster.
	Journal string   `json:"journal,omitempty"`
	Limits  []string `json:"limits,omitempty"` // the only tags that this user may hear, as shell patterns; none means no limit
}

// Heard is one message of the answer to Listen.
type Heard = event.Event

// Progress comes between the events of an answer with Lines.
type Progress struct {
	Passed uint64 `json:"passed"` // everything up to this sequence has been sent, or does not match
	// End means that everything UntilEnd asked for was sent. The answer to a listener with a
	// position stays open, so that it can still confirm; it then disconnects.
	End bool `json:"end,omitempty"`
	// Missed is how many events that are not stored, of any tag, were dropped since the
	// previous Progress because the listener read too slowly.
	Missed uint64 `json:"missed,omitempty"`
	// Lost is how many stored events, at most and of any tag, were discarded since then by age
	// or size before they could be sent.
	Lost uint64 `json:"lost,omitempty"`
	// Master is the name of the other master's journal that this is about.
	Master string `json:"master,omitempty"`
}

// EndOf says which ends are wanted: without it those of all journals.
type EndOf struct {
	Own bool `json:"own,omitempty"` // of the own journal alone
}

// End is the end of a journal: its newest event.
type End struct {
	Seq uint64 `json:"seq"`
	// At is the same for all journals, including the own one, if others are mirrored here.
	At event.Position `json:"at,omitempty"`
}

// Confirm means that everything up to Seq is handled. It is answered when that is stored, and
// accepted only from the connection that holds the position.
type Confirm struct {
	Durable string `json:"durable"`
	Seq     uint64 `json:"seq"`
	// At is the same for the journals of other masters.
	At event.Position `json:"at,omitempty"`
}

// Dead is a request about the dead letters of the user.
type Dead struct {
	Do   DeadAction `json:"do"`
	Name string     `json:"name,omitempty"` // of the handler; "" for all
	Seq  uint64     `json:"seq,omitempty"`  // one dead letter; 0 means all
	// Journal is that of the event; "" means any.
	Journal string      `json:"journal,omitempty"`
	Letter  *DeadLetter `json:"letter,omitempty"`
}

// DeadAction is what to do with dead letters.
type DeadAction string

// The actions. Put has an empty answer, Drop returns the dropped dead letters.
//
// Take returns the one dead letter, which nobody else gets before the answer ends; it is empty if the
// dead letter is gone. On the same connection, Handled deletes what was taken and Release gives it back:
// both have an empty answer, and end that of Take. The end of the connection gives it back, too.
const (
	DeadPut     DeadAction = "put"
	DeadList    DeadAction = "list"
	DeadDrop    DeadAction = "drop"
	DeadTake    DeadAction = "take"
	DeadHandled DeadAction = "handled"
	DeadRelease DeadAction = "release"
)

// DeadLetter is an event that a handler has failed to handle in all attempts.
type DeadLetter struct {
	Name     string          `json:"name"` // of the handler
	Seq      uint64          `json:"seq"`
	Journal  string          `json:"journal,omitempty"` // that Seq belongs to; "" for the own one of a single master
	Tag      string          `json:"tag"`
	From     string          `json:"from,omitempty"`
	Event    json.RawMessage `json:"event,omitempty"` // the whole event; left out if it is too large to be stored twice
	Command  []string        `json:"command"`
	Attempts int             `json:"attempts"`
	Reason   string          `json:"reason"`           // how the last attempt ended
	Stderr   string          `json:"stderr,omitempty"` // the end of what it printed
	Time     time.Time       `json:"time"`
}

// Stat describes a bus to its operators.
type Stat struct {
	Journal   event.Extent   `json:"journal"`
	Fired     uint64         `json:"fired"` // by clients, since the daemon started
	Sent      uint64         `json:"sent"`  // to listeners
	Started   time.Time      `json:"started"`
	MaxEvent  int64          `json:"max_event"` // bytes of data
	Listeners []ListenerStat `json:"listeners"`
	Positions []PositionStat `json:"positions"`
	Dead      int            `json:"dead"` // dead letters
	Mirrors   []MirrorStat   `json:"mirrors,omitempty"`
	// Name is the name of the own journal in a cluster, Handler the member that handles its events.
	Name    string `json:"name,omitempty"`
	Handler string `json:"handler,omitempty"`
	// HandlerUnknown tells that it is not known at present whether a member handles them, as during an election.
	HandlerUnknown bool `json:"handler_unknown,omitempty"`
}

// MirrorStat is the state of the mirror of another master's journal.
type MirrorStat struct {
	Master string `json:"master"` // the name of the journal
	Linked bool   `json:"linked"` // the other master is linked
	Last   uint64 `json:"last"`   // newest event in the mirror
	Lag    uint64 `json:"lag"`    // messages not here yet, as far as known
	Bytes  uint64 `json:"bytes"`
	Unread bool   `json:"unread,omitempty"` // Last, Lag and Bytes are not known at present, as during an election
	// Handler is the member of the cluster that handles its events; "" if none does or HandlerUnknown.
	Handler        string `json:"handler,omitempty"`
	HandlerUnknown bool   `json:"handler_unknown,omitempty"` // as in Stat
}

// ListenerStat is one listener.
type ListenerStat struct {
	User    string    `json:"user"`
	Durable string    `json:"durable,omitempty"`
	Tags    []string  `json:"tags,omitempty"`
	Next    uint64    `json:"next"`
	Behind  uint64    `json:"behind"`
	Sent    uint64    `json:"sent"`
	Started time.Time `json:"started"`
}

// PositionStat is one stored position.
type PositionStat struct {
	User   string    `json:"user"`
	UID    int       `json:"uid"` // -1 for a client
	Name   string    `json:"name"`
	Seq    uint64    `json:"seq"` // everything up to here is handled
	Behind uint64    `json:"behind"`
	Held   bool      `json:"held"` // a listener holds it
	Time   time.Time `json:"time"` // of the last confirmation
	// Journal is that of a handler of the reactor in a cluster, which has a position in each.
	Journal string `json:"journal,omitempty"`
	// At is the position of a listener in each journal of a cluster; Behind is the sum.
	At event.Position `json:"at,omitempty"`
}

// Purge removes events, or a position. An event must match all fields that are set.
type Purge struct {
	Before  uint64          `json:"before,omitempty"` // events before this sequence
	Until   time.Time       `json:"until,omitzero"`   // events before this time
	Tags    []string        `json:"tags,omitempty"`
	Match   event.MatchType `json:"match,omitempty"`
	Durable string          `json:"durable,omitempty"` // forget this position of User instead
	User    string          `json:"user,omitempty"`    // "" is the requesting user

	// Journal is the one from which events are removed, "" for that of this daemon, and JournalBefore is
	// Before for it. Before is 1 then: a version that does not know these fields removes nothing.
	Journal       string `json:"journal,omitempty"`
	JournalBefore uint64 `json:"journal_before,omitempty"`
}

// Purged answers Purge.
type Purged struct {
	Count   uint64 `json:"count"`
	Journal string `json:"journal,omitempty"` // as in Purge
}

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
	Via        string        `json:"via,omitempty"`     // for a minion's daemon: the master to ask; masters ignore it
	ReturnTag  string        `json:"ret_tag,omitempty"` // for the returner master_bus

	ReturnConfig string      `json:"ret_config,omitempty"` // another set of the returners' settings
	ReturnKwargs value.Value `json:"ret_kwargs,omitzero"`  // single ones of them

	Batch    job.BatchOptions `json:"batch,omitzero"`
	Subset   int              `json:"subset,omitempty"`  // that many of the minions, at random
	Queue    job.Seconds      `json:"queue,omitempty"`   // how long the job waits for minions that are away
	Follow   bool             `json:"follow,omitempty"`  // send the output of commands while they run
	Metadata value.Value      `json:"metadata,omitzero"` // for the events of the job
	Lines    bool             `json:"lines,omitempty"`   // a message may have several updates, a line each
	Waiting  bool             `json:"waiting,omitempty"` // send what the start of the job waits for, see job.Start
	Internal bool             `json:"-"`                 // a job of a runner itself
}

// Follow asks for the progress of a job that was started before. A message of the answer may
// have several updates, one a line.
type Follow struct {
	JID salt.JID `json:"jid"`
	// Waiting asks for a message when the progress waits for something, as with Publish.
	Waiting bool `json:"waiting,omitempty"`
}

// TakingOver is what the progress of a job waits for whose member is gone, see Electing.
const TakingOver = "another member of the cluster to carry the job on"

// Run asks the master to run a runner, or a wheel function.
type Run struct {
	Wheel   bool        `json:"wheel,omitempty"`
	Command job.Command `json:"command"`
	Timeout job.Seconds `json:"timeout"`
	Async   bool        `json:"async,omitempty"`
	Preview bool        `json:"preview,omitempty"` // decide and run nothing: the answer is empty, or the refusal
}

// RunStart is the first answer to Run.
type RunStart struct {
	JID salt.JID `json:"jid"`
	Tag string   `json:"tag"`
}

// RunRefused is the Retcode of a runner that has failed because its user may not do what it
// would have done: the exit code of a refusal.
const RunRefused = 77

// RunUnavailable is that of one that has failed because the store cannot be asked now: the exit code for it.
const RunUnavailable = 69

// RunUsage is that of one whose arguments are wrong: the exit code for a wrong command line.
const RunUsage = 64

// RunResult is the last answer.
type RunResult struct {
	Return  value.Value `json:"return"`
	Success bool        `json:"success"`
	Retcode int         `json:"retcode"`
	Out     string      `json:"out,omitempty"`
	Error   string      `json:"error,omitempty"` // why the runner failed, "" if it returned
	Hint    string      `json:"hint,omitempty"`  // hint for that error
}

// AppendBinary writes the result as JSON behind b, in one pass: what was returned may be
// large.
func (r RunResult) AppendBinary(b []byte) ([]byte, error) {
	b = slices.Grow(b, value.RawSize(r.Return.V)+512) // avoids copying to grow the buffer
	b, err := value.Append(append(b, `{"return":`...), r.Return.V)
	if err != nil {
		return nil, err
	}
	members := []value.Member{{Key: "success", V: r.Success}, {Key: "retcode", V: int64(r.Retcode)}}
	for _, m := range []struct{ key, text string }{{"out", r.Out}, {"error", r.Error}, {"hint", r.Hint}} {
		if m.text != "" {
			members = append(members, value.Member{Key: m.key, V: m.text})
		}
	}
	b, err = value.AppendMembers(b, members...)
	return append(b, '}'), err
}

// Return is the body of a message "ret." and the jid: the return of a job. Commands are for a
// master that does not know the job, because another one that is gone has sent it: it records
// the return as that of a job of the minion itself.
type Return struct {
	job.Report
	Commands []job.Command `json:"commands,omitempty"`
}

// MarshalBinary writes the return as JSON, in one pass. It has no output besides the return.
func (r Return) MarshalBinary() ([]byte, error) { return r.AppendReturn(nil, r.Commands) }

// LocalReturn is what a minion ran on its own: salt-call, or its schedule.
type LocalReturn struct {
	JID      salt.JID    `json:"jid"`
	Command  job.Command `json:"command"`
	Schedule string      `json:"schedule,omitempty"` // the name of the scheduled job
	job.Report
}

// UnmarshalBinary reads the body of a request without decoding the return, which is a value.Raw
// and a part of b, as with job.ReadReport.
func (r *LocalReturn) UnmarshalBinary(b []byte) (err error) {
	r.Report, err = job.ReadReport(b, func(key string, v []byte) error {
		switch key {
		case "jid":
			return value.Text(v, &r.JID)
		case "schedule":
			return value.Text(v, &r.Schedule)
		case "command":
			if err := rpc.CheckBuilt(v); err != nil {
				return err
			}
			return json.Unmarshal(v, &r.Command)
		}
		return nil
	})
	return err
}

// MasterStatus is one connection of a minion to a master.
type MasterStatus struct {
	Master    string `json:"master"` // the one in use, or the first to be tried
	Connected bool   `json:"connected"`
	Waiting   string `json:"waiting,omitempty"`
	Outbox    uint64 `json:"outbox"` // how many messages wait for it
}

// Status describes a minion's daemon to the tools beside it.
type Status struct {
	ID         salt.MinionID  `json:"id"`
	Version    string         `json:"version"`
	Master     string         `json:"master"` // the first connected one, "" if none
	Connected  bool           `json:"connected"`
	Masters    []MasterStatus `json:"masters,omitempty"`     // one for each connection that the minion keeps
	Waiting    string         `json:"waiting,omitempty"`     // for what, if not connected
	Outbox     uint64         `json:"outbox"`                // how many messages wait for a master
	OutboxLost uint64         `json:"outbox_lost,omitempty"` // events and returns that it had to drop, in all
	Grains     value.Value    `json:"grains"`
}
