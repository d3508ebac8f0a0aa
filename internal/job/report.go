package job

import (
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// State is where a job stands on one minion. The zero value is Sent.
type State string

// The states. Those from Done on are final, but for Disconnected; a late return
// still overrides what was only missing.
const (
	Sent         State = ""              // nothing was heard yet
	Queued       State = "queued"        // not sent yet: it is away, or its turn in a batch has not come
	Received     State = "received"      // the minion has it
	Running      State = "running"       // it works on it
	Done         State = "done"          // it returned
	Failed       State = "failed"        // it returned, and the function had failed
	Killed       State = "killed"        // somebody ended it
	Refused      State = "refused"       // the minion would not run it, and says why
	Expired      State = "expired"       // it came too late, or the minion did not come back in time
	Cancelled    State = "cancelled"     // it was never sent: somebody withdrew it, or the batch was stopped
	NotTargeted  State = "not targeted"  // by its live facts the target does not mean it
	Disconnected State = "disconnected"  // it was lost while the job ran
	NotConnected State = "not connected" // it was away when the job started
	Silent       State = "no response"   // connected, and nothing was heard in time
)

// Unknown is no state: a minion that is asked for a job answers so if it never got it.
const Unknown State = "unknown"

// Final says whether nothing more is expected of the minion.
func (s State) Final() bool {
	switch s {
	case Sent, Queued, Received, Running, Disconnected:
		return false
	}
	return true
}

// Returned says whether the state comes with a return of the minion.
func (s State) Returned() bool { return s == Done || s == Failed || s == Killed }

// reported says whether the state is one that a minion may report of itself; the
// others are what the master concludes.
func (s State) reported() bool {
	switch s {
	case Received, Running, Done, Failed, Killed, Refused, Expired, NotTargeted:
		return true
	}
	return false
}

// Report is what a minion says of a job: a receipt, a sign of life, or the
// return.
type Report struct {
	State   State       `json:"state"`
	Return  value.Value `json:"return"`
	Retcode value.Value `json:"retcode"` // a number; for compound commands a map by function
	Success value.Value `json:"success"` // likewise a bool or a map
	Out     string      `json:"out,omitempty"`
	Text    string      `json:"text,omitempty"` // why it was refused, who killed it
	// Output is what a command has written meanwhile, OutputEnd that nothing of it
	// was left out and no more comes.
	Output    []Output `json:"output,omitempty"`
	OutputEnd bool     `json:"output_end,omitempty"`
}

// Output is what a command has written, while it runs: some lines, the last of
// which may have no end.
type Output struct {
	Error bool        `json:"error,omitempty"` // to standard error
	Text  value.Value `json:"text"`            // as written; it need not be UTF-8
}

// Update is what the caller of a job is told of one minion.
type Update struct {
	ID salt.MinionID `json:"id"`
	Report
	Begun []salt.MinionID `json:"begun,omitempty"` // of a batch: those that it is sent to now; then there is no ID
}

// Start is the first thing that the caller is told.
type Start struct {
	JID     salt.JID        `json:"jid"`
	Minions []salt.MinionID `json:"minions"`
	Missing []salt.MinionID `json:"missing,omitempty"` // named by a list, but no accepted key has that id
	Batch   bool            `json:"batch,omitempty"`   // they begin a few at a time
}
