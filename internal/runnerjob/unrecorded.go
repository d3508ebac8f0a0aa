package runnerjob

import (
	"context"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
)

// unrecorded handles a permitted runner about which nothing could be stored: why is returned, unless
// an operator asks for one that says what is wrong with the store. That one causes no events and no
// entry in the audit log, only a line in the log of the master.
func (s *Server) unrecorded(ctx context.Context, r *rpc.Request, q protocol.Run, who authz.Principal, jid salt.JID, why error) error {
	if q.Wheel || q.Async || !who.Operator() || !runner.Unrecorded(q.Command.Function) || s.Host.Journal.StoreErr() == nil {
		return why
	}
	s.Host.Log.Warn("a runner is not recorded, since the store cannot be written", "user", who.Name(), "fun", q.Command.Function, "err", s.Host.Journal.StoreErr())
	if err := r.Send(ctx, protocol.RunStart{JID: jid, Tag: "salt/run/" + string(jid)}); err != nil {
		return err
	}
	long := s.longRead(who)
	defer long.sent()
	body, err := runResult(s.runOne(ctx, who, jid, q, salt.Reach{}, long), false).AppendBinary(nil)
	if err != nil {
		return err
	}
	return long.send(ctx, r, body)
}
