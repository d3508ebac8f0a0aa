package job

import (
	"bytes"
	"encoding/json"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// State is the state of a job on one minion. The zero value is Sent.
type State string

// The states. Those from Done on are final, except Disconnected; a late return still replaces a
// missing one.
const (
	Sent         State = ""              // no message from the minion yet
	Queued       State = "queued"        // not sent yet: it is away, or its turn in a batch has not come
	Received     State = "received"      // the minion has received it
	Running      State = "running"       // the minion is running it
	Done         State = "done"          // it returned
	Failed       State = "failed"        // it returned, and the function had failed
	Killed       State = "killed"        // a user has ended it
	Refused      State = "refused"       // the minion would not run it, and says why
	Expired      State = "expired"       // it came too late, or the minion did not come back in time
	Cancelled    State = "cancelled"     // never sent: it was withdrawn, or the batch was stopped
	NotTargeted  State = "not targeted"  // the target does not match its present grains
	Disconnected State = "disconnected"  // disconnected while the job ran
	NotConnected State = "not connected" // not connected when the job started
	Silent       State = "no response"   // connected, but no message in time
)

// Unknown is not a state: a minion answers so about a job that it never received.
const Unknown State = "unknown"

// Final reports whether no more is expected of the minion.
func (s State) Final() bool {
	switch s {
	case Sent, Queued, Received, Running, Disconnected:
		return false
	}
	return true
}

// Returned reports whether the state comes with a return of the minion.
func (s State) Returned() bool { return s == Done || s == Failed || s == Killed }

// reported reports whether a minion may report this state; the others are set by the master.
func (s State) reported() bool {
	switch s {
	case Received, Running, Done, Failed, Killed, Refused, Expired, NotTargeted:
		return true
	}
	return false
}

// Report is a message of a minion about a job: a receipt, a heartbeat, or the return.
type Report struct {
	State   State       `json:"state"`
	Return  value.Value `json:"return"`
	Retcode value.Value `json:"retcode"` // a number; for compound commands a map by function
	Success value.Value `json:"success"` // likewise a bool or a map
	Out     string      `json:"out,omitempty"`
	Text    string      `json:"text,omitempty"` // why it was refused, who killed it
	// Output is new output of a command. OutputEnd means that it was sent completely and no
	// more follows.
	Output    []Output `json:"output,omitempty"`
	OutputEnd bool     `json:"output_end,omitempty"`
	// Live means that the return is also in the minion's outbox: it is to be shown, and not stored.
	Live bool `json:"live,omitempty"`
}

// Output is output of a running command: some lines, the last of which may have no line end.
type Output struct {
	Error bool        `json:"error,omitempty"` // to standard error
	Text  value.Value `json:"text"`            // as written; it need not be UTF-8
}

// Update is a message to the caller of a job about one minion.
type Update struct {
	ID salt.MinionID `json:"id"`
	Report
	Begun []salt.MinionID `json:"begun,omitempty"` // of a batch: those that it is sent to now; then there is no ID
	// Waiting is what the job waits for, such as the election of a leader. There is nothing else then. Only who asks for
	// it gets it, as with Start.
	Waiting string `json:"-"`
}

// waitingStart begins the line of an update that only says what the job waits for.
const waitingStart = `{"waiting":`

// ReadWaiting returns what a job waits for, if that is what a line of its progress says.
func ReadWaiting(line []byte) (what string, ok bool) {
	if !bytes.HasPrefix(line, []byte(waitingStart)) {
		return "", false
	}
	var u struct{ Waiting string }
	err := json.Unmarshal(line, &u)
	return u.Waiting, err == nil
}

// Start is the first message to the caller.
type Start struct {
	JID     salt.JID        `json:"jid"`
	Minions []salt.MinionID `json:"minions"`
	Missing []salt.MinionID `json:"missing,omitempty"` // named by a list, but no accepted key has that id
	Batch   bool            `json:"batch,omitempty"`   // they begin a few at a time
	// Unstored is why the job is not in the journal yet, "" if it is.
	Unstored string `json:"unstored,omitempty"`
	// Waiting is what the start waits for, such as the election of a leader. There is nothing else
	// then, and another Start follows.
	Waiting string `json:"waiting,omitempty"`
}
