package job

import (
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// Summary is a job of which more is expected, as runners show it.
type Summary struct {
	JID        salt.JID
	User       string
	Target     string
	TargetType string
	Fun        any
	Args       any
	Until      time.Time // how long it waits for minions that are away
	Internal   bool
	Standings  map[salt.MinionID]Standing
}
