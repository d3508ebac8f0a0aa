package admission

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/socket"
)

// admitLocal admits a process of this machine as its user. If an operator names a user behind
// sudo, that is trusted: they could also leave it out. The same from other users has no effect.
func (a *Admission) admitLocal(p broker.Peer) bus.Identity {
	uid := int(p.Local.UID)
	i := bus.Identity{Role: bus.RoleUser, Name: strconv.Itoa(uid), Source: processOf(p.Local)}
	u := a.Users.Lookup(a.ctx, uid)
	if p.Sudo == "" || p.Sudo == "root" || p.Sudo == string(u.Name) || !u.Operator {
		return i
	}
	name, err := salt.ParseUserName(p.Sudo)
	if err != nil { // with sudo_acl no rule could apply to it
		a.Log.Warn("local connection refused: SUDO_USER names no user", "uid", uid, "err", err)
		return bus.Identity{}
	}
	i.Sudo = string(name)
	return i
}

// processOf names the process at the other end of a socket, for people. The number may have
// been reused when somebody reads it.
func processOf(p socket.Peer) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID))
	if err != nil {
		return fmt.Sprintf("process %d", p.PID)
	}
	return fmt.Sprintf("process %d (%s)", p.PID, strings.TrimSpace(string(name)))
}
