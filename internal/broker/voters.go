package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/brinebus/brine/internal/backoff"
)

// Voters is who counts in the elections of the group of all members, as far as this member knows.
//
// The leader of the group lets everybody count who answers it under an identifier that it does not know yet, and
// whoever is linked may answer under any. So there may be identifiers that belong to no member; if they are the
// majority, and nobody answers for them any more, the members elect no leader.
type Voters struct {
	Leads   bool     // this member is the leader
	Leader  bool     // there is one
	Quorum  int      // how many have to agree
	Known   int      // how many are members with one of the names that Voters was called with, this one included
	Reached int      // how many of these are linked, this one included
	Unknown []string // the identifiers that are of none of the names
}

// Voters returns who counts, by the names of the members.
func (c *Cluster) Voters(names []string) Voters {
	info, err := c.b.server.Jsz(nil)
	if err != nil || info.Meta == nil {
		return Voters{} // it is stopping
	}
	ids, own := map[string]bool{}, peerID(c.r.opts.Rule.Card.Name)
	for _, name := range names {
		ids[peerID(name)] = true
	}
	linked := map[string]bool{}
	for _, m := range c.Members() {
		linked[peerID(m.Name)] = true
	}
	v := Voters{Leads: c.b.server.JetStreamIsLeader(), Leader: info.Meta.Leader != "", Quorum: info.Meta.QuorumNeeded, Known: 1, Reached: 1}
	for _, p := range info.Meta.Replicas {
		switch {
		case p.Peer == own:
		case !ids[p.Peer]:
			v.Unknown = append(v.Unknown, p.Peer)
		case linked[p.Peer]:
			v.Known, v.Reached = v.Known+1, v.Reached+1
		default:
			v.Known++
		}
	}
	return v
}

// ForgetUnknown makes the members forget an identifier, see Voters.
func (c *Cluster) ForgetUnknown(ctx context.Context, id string) (err error) {
	if utf8.ValidString(id) {
		err = c.admin(ctx, server.JSApiRemoveServer, server.JSApiMetaServerRemoveRequest{Peer: id})
	} else { // no request can name it
		err = c.forgetBytes(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("forget %q: %w", id, err)
	}
	return nil
}

// removePeerSubject is where the leader is asked by the servers of the other members.
const removePeerSubject = "$NRG.RP." + metaGroup

// forgetBytes sends the leader what its own server would send it. That is not answered.
func (c *Cluster) forgetBytes(ctx context.Context, id string) error {
	nc, err := c.connectAdmin()
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := nc.Publish(removePeerSubject, []byte(id)); err != nil {
		return err
	}
	for slices.Contains(c.Voters(nil).Unknown, id) {
		if !backoff.Sleep(ctx, leaderPause) {
			return errors.New("the leader of the members still counts it")
		}
	}
	return nil
}

// Rescue lets so many members elect a leader for some minutes, so that those which do not exist can be
// forgotten. Whoever calls it knows that the others cannot elect another one meanwhile.
func (c *Cluster) Rescue(ctx context.Context, quorum int) error {
	return c.admin(ctx, server.JSApiMetaRescue, server.JSApiMetaRescueRequest{QuorumNeeded: quorum})
}
