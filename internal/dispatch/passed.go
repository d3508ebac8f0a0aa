package dispatch

import (
	"math"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Limits of the messages of minions at other members that are being handled here. Output waits for a
// user, who may read nothing, so it has less than the members may have under way: returns always have
// the rest.
const (
	maxPassed       = 32       // messages of one minion without output; the exchange limits those of all
	outputOfMinion  = 1 << 20  // bytes of output
	outputOfMember  = 32 << 20 // bytes of the output of all minions of one member
	outputOfMembers = 64 << 20 // and of all members
	// leastOutput is what a short output counts as, so that the number of outputs is limited, too: to 32
	// of a minion, and 1024 of a member.
	leastOutput = 32 << 10
)

// passed is what is under way of these messages.
type passed struct {
	messages *rpc.Shares // by minion
	outputs  *rpc.Shares // bytes by minion
	ofMember *rpc.Shares // likewise by member
}

func newPassed() passed {
	return passed{messages: rpc.NewShares(maxPassed, math.MaxInt), outputs: rpc.NewShares(outputOfMinion, outputOfMembers), ofMember: rpc.NewShares(outputOfMember, outputOfMembers)}
}

// begin counts a message of this size until done is called, or refuses it.
func (p *passed) begin(member string, id salt.MinionID, rep job.Report, size int) (done func(), err error) {
	name := string(id)
	if rep.Live || len(rep.Output) == 0 && !rep.OutputEnd {
		if !p.messages.Take(name, 1) {
			return nil, rpc.Errorf(rpc.Busy, "minion %s has %d messages about jobs under way", id, maxPassed)
		}
		return func() { p.messages.Give(name, 1) }, nil
	}
	size = max(size, leastOutput)
	if !p.outputs.Take(name, size) {
		return nil, rpc.Errorf(rpc.Busy, "the output of minion %s is not read fast enough", id)
	}
	if !p.ofMember.Take(member, size) {
		p.outputs.Give(name, size)
		return nil, rpc.Errorf(rpc.Busy, "the output of the minions of %s is not read fast enough", member)
	}
	return func() { p.outputs.Give(name, size); p.ofMember.Give(member, size) }, nil
}
