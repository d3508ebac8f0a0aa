package broker

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/salt"
)

// StepDown makes this member give away what it leads: streams, consumers and the group of all
// members. It returns how many streams it led. The others elect leaders within a second, so
// nothing waits when this member is stopped afterwards.
func (c *Cluster) StepDown(ctx context.Context) (led int, err error) {
	info, err := c.b.server.Jsz(&server.JSzOptions{Account: account, Streams: true, Consumer: true})
	if err != nil {
		return 0, fmt.Errorf("list the streams of this member: %w", err)
	}
	for _, a := range info.AccountDetails {
		for _, s := range a.Streams {
			for _, one := range s.Consumer {
				if c.b.server.JetStreamIsConsumerLeader(account, s.Name, one.Name) {
					_ = c.b.server.JetStreamStepdownConsumer(account, s.Name, one.Name) // it may be gone meanwhile
				}
			}
			if c.b.server.JetStreamIsStreamLeader(account, s.Name) {
				if err := c.b.server.JetStreamStepdownStream(account, s.Name); err != nil {
					return led, fmt.Errorf("give away the stream %s: %w", s.Name, err)
				}
				led++
			}
		}
	}
	if c.b.server.JetStreamIsLeader() {
		err = c.admin(ctx, server.JSApiLeaderStepDown, nil)
	}
	if err == nil {
		c.b.opts.Log.Info("this member has stepped down: it takes back nothing of what it led until it is restarted", "streams", led)
	}
	return led, err
}

// ErrNoMember is wrapped by the error of Forget about one that does not count.
var ErrNoMember = errors.New("the leader of the members does not know it")

// Forget makes the members forget the one with this name: it does not count for elections any more,
// and others get its copies if there are enough of them. It counts again once it connects.
//
// The leader finds a member by its name only if that was connected since the leader was started, so it
// is asked with the identifier where the group of all members has that. For the same reason its answer that it
// does not know the name does not mean that the member does not count.
func (c *Cluster) Forget(ctx context.Context, name string) error {
	for {
		request := server.JSApiMetaServerRemoveRequest{Server: name}
		if c.counts(name) {
			request.Peer = peerID(name)
		}
		err := c.admin(ctx, server.JSApiRemoveServer, request)
		if !errors.Is(err, ErrNoMember) || !c.counts(name) {
			return err
		}
		if !backoff.Sleep(ctx, leaderPause) { // this member may hear later than the leader that it is done
			return fmt.Errorf("the leader of the members does not know %s, which still counts", name)
		}
	}
}

// counts reports whether a member counts for elections, as far as this one knows: whether it runs or
// not, and whether its name is known or not.
func (c *Cluster) counts(name string) bool {
	info, err := c.b.server.Jsz(nil)
	if err != nil || info.Meta == nil {
		return false // it is stopping
	}
	id := peerID(name)
	return slices.ContainsFunc(info.Meta.Replicas, func(p *server.PeerInfo) bool { return p.Peer == id })
}

// Counts reports whether a member counts for elections, whether it runs or not. Only the leader of the
// members knows that for certain.
func (c *Cluster) Counts(name string) (counts, known bool) {
	known = c.b.server.JetStreamIsLeader() && c.r.minority() == nil
	return known && c.counts(name), known
}

// peerID is the identifier that the server gives to a member: eight characters of the SHA-256 of its
// name.
func peerID(name string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256([]byte(name))
	id := sum[:8]
	for i, b := range id {
		id[i] = digits[int(b)%len(digits)]
	}
	return string(id)
}

// admin sends a request about all members to the one that leads them. No other connection than
// this has the account that such requests need.
func (c *Cluster) admin(ctx context.Context, subject string, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if body == nil {
		b = nil
	}
	nc, err := c.connectAdmin()
	if err != nil {
		return err
	}
	defer nc.Close()
	for {
		m, lost, err := c.askLeader(ctx, nc, subject, b)
		why := c.r.minority()
		switch {
		case err == nil && why == nil:
			return leaderSays(m.Data)
		case err == nil: // it may be this member, which does not know yet that it no longer leads; or the one that was removed is what is missing
			if err := leaderSays(m.Data); err != nil {
				return fmt.Errorf("%w; %w", err, why)
			}
			return nil
		case lost && why != nil:
			return fmt.Errorf("ask the leader of the members: %w", why)
		}
		if backoff.Sleep(ctx, leaderPause) { // nobody answers during an election
			continue
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = c.leaderless()
		}
		return salt.WithHint(fmt.Errorf("ask the leader of the members: %w", err), "as long as most members are not reached they have no leader: salt-run cluster.status")
	}
}

// askLeader is one try of admin. It ends early, and lost is true, when most members are not reached.
func (c *Cluster) askLeader(ctx context.Context, nc *nats.Conn, subject string, body []byte) (m *nats.Msg, lost bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, adminTime)
	var watch sync.WaitGroup
	watch.Go(func() {
		lost = c.loses(ctx)
		cancel()
	})
	m, err = nc.RequestWithContext(ctx, subject, body)
	cancel()
	watch.Wait()
	return m, lost, err
}

// loses waits until most members have not been reached for a moment; it reports false if ctx ends first.
func (c *Cluster) loses(ctx context.Context) bool {
	for since := time.Now(); time.Since(since) < leaderAsk; {
		if c.r.minority() == nil {
			since = time.Now()
		}
		if !backoff.Sleep(ctx, leaderPause) {
			return false
		}
	}
	return true
}

func (c *Cluster) connectAdmin() (*nats.Conn, error) {
	nc, err := nats.Connect("nats://self", nats.InProcessServer(c.b.server), nats.UserInfo(c.b.auth.admin, ""), nats.SkipHostLookup(), nats.NoReconnect(), nats.CustomInboxPrefix("_INBOX.master"))
	if err != nil {
		return nil, fmt.Errorf("connect to the own bus: %w", err)
	}
	return nc, nil
}

// adminTime is how long the leader of the members may take to answer.
const adminTime = 2 * time.Second

// leaderSays reads the answer of the leader.
func leaderSays(data []byte) error {
	var answer server.ApiResponse
	if err := json.Unmarshal(data, &answer); err != nil {
		return fmt.Errorf("unreadable answer of the leader of the members: %w", err)
	}
	switch {
	case answer.Error == nil:
		return nil
	case answer.Error.ErrCode == uint16(server.JSClusterServerNotMemberErr):
		return fmt.Errorf("the leader of the members refuses: %s: %w", answer.Error.Description, ErrNoMember)
	}
	return fmt.Errorf("the leader of the members refuses: %s", answer.Error.Description)
}

// lookAgain are the pauses before Lacking looks once more: what is on its way to the copies at one moment, such as
// the audit entry of the request that asks for it, is there at the next.
var lookAgain = []time.Duration{50 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond}

// Lacking returns the streams that do not have all their copies, or have one that is not whole or
// not counted in elections yet, at each of several looks, as far as this member knows: of those that it leads, of
// those that have no leader, and of those with a copy at a member that is not linked with this one; with what is wrong. So does the group of all members, under the name of its own,
// if it counts one that does not run. It takes half a second if there are any.
func (c *Cluster) Lacking() map[string]string {
	lacking := c.lackingNow()
	for _, pause := range lookAgain {
		if len(lacking) == 0 {
			break
		}
		time.Sleep(pause)
		now := c.lackingNow()
		for name := range lacking {
			if what, still := now[name]; still {
				lacking[name] = what
			} else {
				delete(lacking, name)
			}
		}
	}
	return lacking
}

// lackingNow is one look of Lacking.
func (c *Cluster) lackingNow() map[string]string {
	lacking := map[string]string{}
	info, err := c.b.server.Jsz(&server.JSzOptions{Account: account, Streams: true, Config: true, RaftGroups: true})
	if err != nil {
		return nil // it is stopping
	}
	voters, members := c.voters(), c.Members()
	linked := func(name string) bool {
		return slices.ContainsFunc(members, func(m member.Member) bool { return m.Name == name })
	}
	for _, a := range info.AccountDetails {
		for _, s := range a.Streams {
			if s.Cluster == nil || s.Config == nil {
				continue
			}
			if what := c.lacks(s.Cluster, s.Config.Replicas, voters[s.RaftGroup], linked); what != "" {
				lacking[s.Name] = what
			}
		}
	}
	if n, leads := voters[metaGroup]; leads && n != c.Routes()+1 {
		lacking[metaGroup] = fmt.Sprintf("%d members count for elections, and %d are connected", n, c.Routes()+1)
	}
	return lacking
}

// At returns the streams with a copy at another member, as far as this one knows.
func (c *Cluster) At(name string) (streams []string) {
	info, err := c.b.server.Jsz(&server.JSzOptions{Account: account, Streams: true})
	if err != nil {
		return nil // it is stopping
	}
	for _, a := range info.AccountDetails {
		for _, s := range a.Streams {
			if s.Cluster != nil && slices.ContainsFunc(s.Cluster.Replicas, func(r *server.PeerInfo) bool { return peerName(r) == name }) {
				streams = append(streams, s.Name)
			}
		}
	}
	return streams
}

// metaGroup is the server's name of the group of all members.
const metaGroup = "_meta_"

// voters returns how many members count in the elections of each group that this member leads, 0
// while that is being changed. When a member takes the place of another one, the server first stores
// all at the new one, and then lets that one count, and the old one not any more: until then the
// loss of a third one may leave a group without a majority.
func (c *Cluster) voters() map[string]int {
	list := map[string]int{}
	for _, of := range []string{account, system} {
		status := c.b.server.Raftz(&server.RaftzOptions{AccountFilter: of})
		if status == nil {
			continue // it is stopping
		}
		for name, g := range (*status)[of] {
			if g.State == server.Leader.String() {
				list[name] = votersOf(g)
			}
		}
	}
	return list
}

// votersOf returns how many members count in a group, 0 while that is being changed.
func votersOf(g server.RaftzGroup) int {
	for _, p := range g.Peers {
		if !p.Known {
			return 0
		}
	}
	if len(g.Peers)+1 != g.Size {
		return 0
	}
	return g.Size
}

// Leaderless is what Lacking says of a stream that nothing can be stored in at the moment.
const Leaderless = "it has no leader"

// CopiesOf is what Lacking says of a stream that has fewer copies than it should have, none of which lags.
func CopiesOf(whole, copies int) string { return fmt.Sprintf("%d of %d copies", whole, copies) }

// lacks says what a stream lacks, "" for nothing; linked reports whether a member is connected to this one.
func (c *Cluster) lacks(i *server.ClusterInfo, copies, voters int, linked func(name string) bool) string {
	if i.Leader != c.r.opts.Rule.Card.Name {
		return lacksLed(i, linked)
	}
	whole, behind := 1, []string{}
	for _, r := range i.Replicas {
		switch {
		case r.Offline || !linked(peerName(r)): // the server needs a while to see that one is gone
			behind = append(behind, notConnected(r))
		case !r.Current && r.Active == 0: // so it is not known what it has, and the server counts all
			behind = append(behind, peerName(r)+" was not heard since this member leads")
		case !r.Current:
			behind = append(behind, fmt.Sprintf("%s is %d entries behind, and was heard %s ago", peerName(r), r.Lag, r.Active.Round(time.Millisecond)))
		default:
			whole++
		}
	}
	switch {
	case whole < copies && len(behind) > 0:
		return strings.Join(behind, "; ")
	case whole < copies:
		return CopiesOf(whole, copies)
	case i.Desired != nil || copies > 1 && voters != copies:
		return "its members are being changed"
	}
	return ""
}

// lacksLed is lacks for a stream that this member does not lead. Its leader says more, but there may be none for some
// seconds after it was lost, nor does one that this member is cut off from say anything to it.
func lacksLed(i *server.ClusterInfo, linked func(name string) bool) string {
	switch {
	case i.Leader == "":
		return Leaderless
	case !linked(i.Leader):
		return i.Leader + ", which leads it, is not connected"
	}
	var gone []string
	for _, r := range i.Replicas {
		if !linked(peerName(r)) {
			gone = append(gone, notConnected(r))
		}
	}
	return strings.Join(gone, "; ")
}

func notConnected(r *server.PeerInfo) string { return peerName(r) + " is not connected" }

// peerName is the name of a member, if this one has seen it since its start: the server writes a sentence of its own
// in the place of others.
func peerName(p *server.PeerInfo) string {
	if p.Peer != "" && peerID(p.Name) != p.Peer {
		return "a member that this one does not know by name"
	}
	return p.Name
}

// Known returns how many members count for elections, whether they run or not; 0 while there is
// no leader.
func (c *Cluster) Known() int { return voting(c.b.server) }

func voting(s *server.Server) int {
	info, err := s.Jsz(nil)
	if err != nil || info.Meta == nil || info.Meta.Leader == "" {
		return 0
	}
	return info.Meta.Size
}
