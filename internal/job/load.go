package job

import (
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Load is the event of the start of a job, as it is recorded and read again.
type Load struct {
	JID        salt.JID        `json:"jid"`
	Target     value.Value     `json:"tgt"`
	TargetType string          `json:"tgt_type"`
	User       string          `json:"user"`
	Fun        value.Value     `json:"fun"`
	Arg        value.Value     `json:"arg"`
	Minions    []salt.MinionID `json:"minions"`
	Missing    []salt.MinionID `json:"missing"`
	Metadata   value.Value     `json:"metadata"`
	Internal   bool            `json:"internal"`
}
