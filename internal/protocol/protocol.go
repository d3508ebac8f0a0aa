// Package protocol is what the parts of Brine say to each other: the bodies of
// requests and of their answers, one type each. It holds no behaviour.
//
// All of them travel as JSON over package bus. Fields may be added; the meaning
// of one that stands never changes, since master and minions are not upgraded at
// the same moment.
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

// The requests, as the last token of their subject. Who may ask which is said
// where the handlers are registered.
const (
	OpAsk       = "ask"       // Ask → AskAnswer ... : is my key accepted?
	OpHello     = "hello"     // Hello → Welcome: a minion is ready for jobs
	OpGrains    = "grains"    // Hello → nothing: its facts have changed
	OpReturn    = "return"    // LocalReturn → nothing: what salt-call ran
	OpPillar    = "pillar"    // nothing → Pillar: of the minion that asks
	OpFire      = "fire"      // Fire → Fired
	OpListen    = "listen"    // Listen → Ready, then event.Event ...
	OpPublish   = "publish"   // Publish → job.Start, then job.Update ...
	OpFollow    = "follow"    // Follow → job.Start, then job.Update ...
	OpRun       = "run"       // Run → RunStart, then RunResult
	OpKeyAction = "keyaction" // KeyAction → nothing: who is about to change keys, for the audit log
	OpStatus    = "status"    // nothing → Status: of a minion's daemon
	OpMaster    = "master"    // Fire → Fired: a minion's daemon passes events on to its master
	OpEnd       = "place"     // nothing → End: where the journal ends now
	OpConfirm   = "confirm"   // Confirm → nothing: a durable listener has done its work up to here
	OpDead      = "dead"      // Dead → DeadLetter ...: events that a handler could not be brought to take
	OpStat      = "stat"      // nothing → Stat: of the bus, for operators
	OpPurge     = "purge"     // Purge → Purged: of the journal, for operators
	OpRefresh   = "refresh"   // Refresh → nothing: a minion's daemon finds out anew what it knows
	OpComplete  = "complete"  // Complete → Words: with which a command line may go on
	OpProfile   = "profile"   // Profile → ProfileData: of the daemon, for operators
)

// Refresh names what is to be found out anew.
type Refresh struct {
	Grains bool `json:"grains,omitempty"`
	Pillar bool `json:"pillar,omitempty"`
}

// WordKind is what a word of a command line names.
type WordKind string

// The kinds. A minion's daemon knows tags alone.
const (
	MinionWords   WordKind = "minion"
	GroupWords    WordKind = "nodegroup"
	FunctionWords WordKind = "function"
	RunnerWords   WordKind = "runner"
	WheelWords    WordKind = "wheel"
	JobWords      WordKind = "job"
	TagWords      WordKind = "tag"
)

// Via is what a minion's daemon reads of a request that it passes on: the master to ask, "" for
// any.
type Via struct {
	Via string `json:"via"`
}

// Complete asks for words of a kind that begin so.
type Complete struct {
	Kind   WordKind `json:"kind"`
	Prefix string   `json:"prefix,omitempty"`
}

// Words is the answer: some of them, sorted.
type Words struct {
	Words []string `json:"words"`
}

// Profile asks for a profile of the daemon: its kind, and for that of the processor how long.
type Profile struct {
	Kind    string  `json:"kind"`
	Seconds float64 `json:"seconds,omitempty"`
}

// ProfileData is the profile, as 'go tool pprof' reads it.
type ProfileData struct {
	Data []byte `json:"data"`
}

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

// KeyAction says what the asking user is about to do with keys: accept, reject or
// delete. It changes nothing and gives no right: the files decide.
type KeyAction struct {
	Act  string     `json:"act"`
	Keys []pki.Name `json:"keys"`
}

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
}

// Welcome answers Hello.
type Welcome struct {
	Time    time.Time `json:"time"` // of the master: expiry is judged by its clock
	Version string    `json:"version"`
	// Jobs are those that the minion was sent and that the master expects something of:
	// it tells of each where it stands, as a job.Report; job.Unknown of one that it
	// never got.
	Jobs []salt.JID `json:"jobs,omitempty"`
}

// Pillar is the private data of the minion that asked. Where it has errors, a master sends no
// data, and a minion what was good last.
type Pillar struct {
	Data   value.Value `json:"data"`
	Errors []string    `json:"errors,omitempty"` // the mistakes, each with its file and line
}

// Fire hands events over to be stored, all of them or none.
type Fire struct {
	ID string `json:"id,omitempty"` // names the batch, so that a repetition is not stored twice
	// Series, where it is not empty, names all batches of one input instead, in which the first
	// event of this one has the number First, from 0: so a repetition is known when it is cut
	// into other batches, too. A daemon that does not know it goes by ID.
	Series string   `json:"series,omitempty"`
	First  int      `json:"first,omitempty"`
	Form   FireForm `json:"form,omitempty"`
	Pretag *string  `json:"pretag"`
	// Live hands the events to who listens at this moment, and stores them nowhere.
	Live   bool         `json:"live,omitempty"`
	Events []event.Item `json:"events"`
}

// FireOne fires one event; id names it for repetitions, "" for none.
func FireOne(id, tag string, data json.RawMessage) Fire {
	return Fire{ID: id, Events: []event.Item{{Tag: tag, Data: data}}}
}

// FireForm says how a minion's event looks on the master's bus.
type FireForm string

// The forms of Salt: a single event is wrapped into {id, cmd, pretag, data, tag};
// those of a list and those of local users stand as they are.
const (
	FormPlain  FireForm = ""
	FormSingle FireForm = "single"
)

// Outcome is what became of events.
type Outcome string

// The outcomes; a refusal is an error.
const (
	Stored Outcome = "stored" // in the journal
	Queued Outcome = "outbox" // kept on the minion, delivered when a master is there
	Handed Outcome = "handed" // given to who listened at that moment, and stored nowhere
)

// Fired answers Fire.
type Fired struct {
	Outcome Outcome `json:"outcome"`
	Seq     uint64  `json:"seq,omitempty"` // of the last event
	// Masters tells of each master where events went to several: Outcome is stored
	// only when all have stored them.
	Masters []MasterFired `json:"masters,omitempty"`
}

// MasterFired is what became of events at one master.
type MasterFired struct {
	Master  string  `json:"master"`
	Outcome Outcome `json:"outcome"`
	Seq     uint64  `json:"seq,omitempty"`
}

// Listen asks for events. At most one of Since and FromSeq is set; without either
// it begins with what comes after Ready.
type Listen struct {
	Tags  []string  `json:"tags,omitempty"` // prefixes, or what Match makes of them; none is everything
	Since time.Time `json:"since,omitzero"` // from then on

	Match   event.MatchType `json:"match,omitempty"`
	Senders []string        `json:"senders,omitempty"`  // shell patterns for the sender; none is everybody
	FromSeq uint64          `json:"from_seq,omitempty"` // from this sequence on
	// UntilEnd ends the answer behind the last event that was stored when it began.
	UntilEnd bool `json:"until_end,omitempty"`
	// Durable names a position that is kept for the asking user. It begins where the
	// last Confirm left it; Since and FromSeq count only where it is new. One
	// listener at a time may hold it.
	Durable string `json:"durable,omitempty"`
	// Resume is set by a listener that comes back by itself: it has done everything
	// before FromSeq, whether or not that was confirmed.
	Resume bool `json:"resume,omitempty"`
	// Lines asks for answers of one or more lines, each an event or a Progress, instead
	// of one event in each message.
	Lines bool `json:"lines,omitempty"`
	// Live asks for the events that are not stored, too, as they come. They have no
	// sequence. It goes with neither Durable nor UntilEnd.
	Live bool `json:"live,omitempty"`
	// Mirrors asks for the events of the journals of other masters, too, as far as they are
	// mirrored here. Each has a place of its own, which MasterOf reads. It goes with Lines.
	Mirrors bool `json:"mirrors,omitempty"`
	// At are the sequences to begin at, by the names of journals; of those that it leaves out
	// Since and FromSeq say it, the latter of the own journal alone.
	At event.Position `json:"at,omitempty"`
}

// Ready says that the listener stands: what is fired from now on is heard.
type Ready struct {
	Ready bool   `json:"ready"`
	Start uint64 `json:"start,omitempty"` // the sequence where it begins
	Last  uint64 `json:"last,omitempty"`  // the newest event of the journal
	Lost  uint64 `json:"lost,omitempty"`  // events that were discarded before this position got them, at most
	// Ahead is the position that the listener had, where the journal ends before it: it is not
	// the journal of that position, or has lost its end. The listener begins at its start.
	Ahead uint64 `json:"ahead,omitempty"`
	// At are the sequences where it begins in the journals of other masters.
	At     event.Position `json:"at,omitempty"`
	Limits []string       `json:"limits,omitempty"` // the only tags that this user may hear, as shell patterns; none is no limit
}

// Heard is one message of the answer to Listen.
type Heard = event.Event

// Progress stands between the events of an answer with Lines.
type Progress struct {
	Passed uint64 `json:"passed"` // everything up to this sequence has been sent, or does not match
	// End says that this was all that UntilEnd asked for. The answer to a listener
	// with a position stays open, so that it still can confirm; it hangs up itself.
	End bool `json:"end,omitempty"`
	// Missed is how many events that are not stored, of any tag, went by since the last
	// Progress while the principal took too little.
	Missed uint64 `json:"missed,omitempty"`
	// Lost is how many stored events, at most and of any tag, were discarded since then
	// by age or size before they could be sent.
	Lost uint64 `json:"lost,omitempty"`
	// Master is the name of the journal of another master, of which this is.
	Master string `json:"master,omitempty"`
}

// End is where a journal ends: the newest event is there.
type End struct {
	Seq uint64 `json:"seq"`
	// At is the same for all journals, the own one among them, where others are mirrored here.
	At event.Position `json:"at,omitempty"`
}

// Confirm says that everything up to Seq is done. It is answered when that is
// stored, and taken from the connection that holds the position only.
type Confirm struct {
	Durable string `json:"durable"`
	Seq     uint64 `json:"seq"`
	// At is the same for the journals of other masters.
	At event.Position `json:"at,omitempty"`
}

// Dead asks for something to be done with the dead letters of the asking user.
type Dead struct {
	Do     DeadAction  `json:"do"`
	Name   string      `json:"name,omitempty"` // of the handler; "" is every one
	Seq    uint64      `json:"seq,omitempty"`  // one letter; 0 is all
	Letter *DeadLetter `json:"letter,omitempty"`
}

// DeadAction is what Dead asks for.
type DeadAction string

// The actions. Put is answered with nothing, Drop with the letters that went.
const (
	DeadPut  DeadAction = "put"
	DeadList DeadAction = "list"
	DeadDrop DeadAction = "drop"
)

// DeadLetter is an event that a handler failed on until its retries were used up.
type DeadLetter struct {
	Name     string          `json:"name"` // of the handler
	Seq      uint64          `json:"seq"`
	Tag      string          `json:"tag"`
	From     string          `json:"from,omitempty"`
	Event    json.RawMessage `json:"event,omitempty"` // the whole event; left out where it is too large to be kept twice
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
	Dead      int            `json:"dead"` // letters
	Mirrors   []MirrorStat   `json:"mirrors,omitempty"`
}

// MirrorStat is the mirror of another master's journal.
type MirrorStat struct {
	Master string `json:"master"` // the name of the journal
	Linked bool   `json:"linked"` // the other master is there
	Last   uint64 `json:"last"`   // the newest event that is here
	Lag    uint64 `json:"lag"`    // messages that are not here yet, as far as is known
	Bytes  uint64 `json:"bytes"`
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

// PositionStat is one position that is kept.
type PositionStat struct {
	User   string    `json:"user"`
	UID    int       `json:"uid"` // -1 for a client
	Name   string    `json:"name"`
	Seq    uint64    `json:"seq"` // everything up to here is done
	Behind uint64    `json:"behind"`
	Held   bool      `json:"held"` // a listener works on it
	Time   time.Time `json:"time"` // of the last confirmation
}

// Purge removes events, or a position. All that is set must hold of an event.
type Purge struct {
	Before  uint64          `json:"before,omitempty"` // events before this sequence
	Until   time.Time       `json:"until,omitzero"`   // events before this moment
	Tags    []string        `json:"tags,omitempty"`
	Match   event.MatchType `json:"match,omitempty"`
	Durable string          `json:"durable,omitempty"` // forget this position of User instead
	User    string          `json:"user,omitempty"`    // "" is the asking user
}

// Purged answers Purge.
type Purged struct {
	Count uint64 `json:"count"`
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
	Subset   int              `json:"subset,omitempty"`  // so many of the minions, at random
	Queue    job.Seconds      `json:"queue,omitempty"`   // how long the job waits for those that are away
	Follow   bool             `json:"follow,omitempty"`  // send what commands write while they run
	Metadata value.Value      `json:"metadata,omitzero"` // for the events of the job
	Lines    bool             `json:"lines,omitempty"`   // a message may have several updates, a line each
	Internal bool             `json:"-"`                 // a runner's own question
}

// Follow asks for the course of a job that was started before. A message of the
// answer may have several updates, a line each.
type Follow struct {
	JID salt.JID `json:"jid"`
}

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

// RunRefused is the Retcode of a runner that has failed since who asked for it may not
// have what it would have done: the exit code of a refusal.
const RunRefused = 77

// RunResult is the last.
type RunResult struct {
	Return  value.Value `json:"return"`
	Success bool        `json:"success"`
	Retcode int         `json:"retcode"`
	Out     string      `json:"out,omitempty"`
	Error   string      `json:"error,omitempty"` // why the runner failed, "" if it returned
	Hint    string      `json:"hint,omitempty"`  // the way out of that
}

// AppendBinary writes the result as JSON behind b, in one pass: what was returned may be
// large.
func (r RunResult) AppendBinary(b []byte) ([]byte, error) {
	b = slices.Grow(b, value.RawSize(r.Return.V)+512) // what was written is not copied to make room
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

// Return is the body of a letter "ret." and the jid: the return of a job. Commands
// are for a master that does not know the job, since another one has sent it and is
// gone: it records the return as what the minion ran.
type Return struct {
	job.Report
	Commands []job.Command `json:"commands,omitempty"`
}

// MarshalBinary writes the return as JSON, in one pass. It carries no output beside what
// was returned.
func (r Return) MarshalBinary() ([]byte, error) { return r.AppendReturn(nil, r.Commands) }

// LocalReturn is what a minion ran on its own: salt-call, or its schedule.
type LocalReturn struct {
	JID      salt.JID    `json:"jid"`
	Command  job.Command `json:"command"`
	Schedule string      `json:"schedule,omitempty"` // the name of the scheduled job
	job.Report
}

// UnmarshalBinary reads the body of a request without decoding what was returned, which is a
// value.Raw and a part of b, as it is with job.ReadReport.
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
	Master    string `json:"master"` // in use, or the first that would be
	Connected bool   `json:"connected"`
	Waiting   string `json:"waiting,omitempty"`
	Outbox    uint64 `json:"outbox"` // how many messages wait for it
}

// Status describes a minion's daemon to the tools beside it.
type Status struct {
	ID         salt.MinionID  `json:"id"`
	Version    string         `json:"version"`
	Master     string         `json:"master"` // the first that is connected, "" if none is
	Connected  bool           `json:"connected"`
	Masters    []MasterStatus `json:"masters,omitempty"`     // one for each connection that the minion keeps
	Waiting    string         `json:"waiting,omitempty"`     // what for, when not connected
	Outbox     uint64         `json:"outbox"`                // how many messages wait for a master
	OutboxLost uint64         `json:"outbox_lost,omitempty"` // events and returns that it had to drop, ever
	Grains     value.Value    `json:"grains"`
}
