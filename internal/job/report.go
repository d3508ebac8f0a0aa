package job

import (
	"brine/internal/salt"
	"brine/internal/value"
)

// State is where a job stands on one minion. The zero value is Sent.
type State string

// The states. Those below the first three are final, except that a late return
// still overrides what was only missing.
const (
	Sent         State = ""              // nothing was heard yet
	Received     State = "received"      // the minion has it
	Running      State = "running"       // it works on it
	Done         State = "done"          // it returned
	Failed       State = "failed"        // it returned, and the function had failed
	Killed       State = "killed"        // somebody ended it
	Refused      State = "refused"       // the minion would not run it, and says why
	Expired      State = "expired"       // it came too late
	NotTargeted  State = "not targeted"  // by its live facts the target does not mean it
	Disconnected State = "disconnected"  // it was lost while the job ran
	NotConnected State = "not connected" // it was away when the job started
	Silent       State = "no response"   // connected, and nothing was heard in time
)

// Final says whether nothing more is expected of the minion.
func (s State) Final() bool {
	switch s {
	case Sent, Received, Running, Disconnected:
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
}

// Update is what the caller of a job is told of one minion.
type Update struct {
	ID salt.MinionID `json:"id"`
	Report
}

// Start is the first thing that the caller is told.
type Start struct {
	JID     salt.JID        `json:"jid"`
	Minions []salt.MinionID `json:"minions"`
	Missing []salt.MinionID `json:"missing,omitempty"` // named by a list, but no accepted key has that id
}
