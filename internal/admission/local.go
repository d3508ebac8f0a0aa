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

// admitLocal lets a process of this machine in as its user. An operator is believed
// whom they name as the user behind sudo: they could as well not say it. Of others it
// means nothing.
func (a *Admission) admitLocal(p broker.Peer) bus.Identity {
	uid := int(p.Local.UID)
	i := bus.Identity{Role: bus.RoleUser, Name: strconv.Itoa(uid), Source: processOf(p.Local)}
	u := a.Users.Lookup(a.ctx, uid)
	if p.Sudo == "" || p.Sudo == "root" || p.Sudo == string(u.Name) || !u.Operator {
		return i
	}
	name, err := salt.ParseUserName(p.Sudo)
	if err != nil { // with sudo_acl no rule could hold for it
		a.Log.Warn("local connection refused: SUDO_USER names no user", "uid", uid, "err", err)
		return bus.Identity{}
	}
	i.Sudo = string(name)
	return i
}

// processOf names the process at the other end of a socket, for people: by the
// time that somebody reads it, the number may be another's.
func processOf(p socket.Peer) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID))
	if err != nil {
		return fmt.Sprintf("process %d", p.PID)
	}
	return fmt.Sprintf("process %d (%s)", p.PID, strings.TrimSpace(string(name)))
}
