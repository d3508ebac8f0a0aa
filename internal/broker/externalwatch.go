package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// How the connections at the servers are compared with those that are known.
const (
	// compareEvery is between two comparisons without a reason. With a reason, such as a new
	// server or a connection of ours that was made again, it is done at once.
	compareEvery = 15 * time.Second
	// heartbeat is how often a server with minions is looked for. A server that was killed tells
	// nobody.
	heartbeat = time.Second
	// silentAfter is when a server that does not answer, though it is still known to the others,
	// counts as gone.
	silentAfter = 15 * time.Second
	// admittedBefore is how long a connection may be missing at its server after it was admitted.
	admittedBefore = 2 * externalTimeout
	// connzPage is how many connections are asked for at once.
	connzPage = 1000
	// maxAgain is how often in one comparison a page is asked for again.
	maxAgain = 5
)

// watch compares what is known with what is there, until ctx ends or another master goes on.
func (x *External) watch(ctx context.Context, claim string) {
	compare, look := time.NewTicker(compareEvery), time.NewTicker(heartbeat)
	defer compare.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-x.stop:
			return
		case <-look.C:
			x.checkServers(ctx)
			continue
		case <-compare.C:
		case <-x.look:
		}
		if x.held == "" && x.preceded(ctx, claim) { // the servers were separated
			x.log.Warn("another master has been at work on these NATS servers for longer; this one waits")
			return
		}
		x.compareAll(ctx)
	}
}

// disconnected hears of the end of a connection.
func (x *External) disconnected(m *nats.Msg) {
	var e struct {
		Server struct{ ID string }
		Client struct{ ID uint64 }
	}
	if json.Unmarshal(m.Data, &e) == nil {
		x.leave(place{e.Server.ID, e.Client.ID})
	}
}

// alive hears that a server lives. What is connected to one that is new here, or back, is not
// known yet.
func (x *External) alive(m *nats.Msg) {
	var e struct{ Server struct{ ID string } }
	if json.Unmarshal(m.Data, &e) != nil || e.Server.ID == "" {
		return
	}
	if x.heard(e.Server.ID) {
		x.wake()
	}
}

// heard records that a server lives, and reports whether it is new.
func (x *External) heard(id string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, known := x.servers[id]
	x.servers[id] = time.Now()
	return !known
}

// checkServers looks for each server on which somebody is connected.
func (x *External) checkServers(ctx context.Context) {
	if !x.watcher.IsConnected() {
		return // the servers may all be well
	}
	for _, id := range x.used() {
		asking, cancel := context.WithTimeout(ctx, heartbeat)
		_, err := x.watcher.RequestWithContext(asking, "$SYS.REQ.SERVER."+id+".IDZ", nil)
		cancel()
		switch {
		case err == nil:
			x.heard(id)
		case errors.Is(err, nats.ErrNoResponders):
			if examineSystem(ctx, x); x.reaching.isBlind() {
				return // the server may be well
			}
			x.lose(id)
		case x.silent(id):
			x.lose(id)
		}
	}
}

// used returns the servers on which somebody is connected.
func (x *External) used() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var list []string
	seen := map[string]bool{}
	for p := range x.in {
		if !seen[p.server] {
			seen[p.server] = true
			list = append(list, p.server)
		}
	}
	return list
}

func (x *External) silent(id string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return time.Since(x.servers[id]) > silentAfter
}

// lose forgets a server, and with it who was connected there. If it comes back with them, their
// connections are ended, since messages were lost meanwhile.
func (x *External) lose(id string) {
	x.mu.Lock()
	var there []place
	for p := range x.in {
		if p.server == id {
			there = append(there, p)
		}
	}
	delete(x.servers, id)
	x.mu.Unlock()
	x.log.Warn("a NATS server is gone", "server", id, "connections", len(there))
	x.leave(there...)
}

// compareAll compares the connections of all servers.
func (x *External) compareAll(ctx context.Context) {
	if !x.watcher.IsConnected() || x.reaching.isBlind() {
		return
	}
	for _, id := range x.find(ctx) {
		if err := x.compare(ctx, id); err != nil && ctx.Err() == nil {
			x.log.Warn("connections not compared with those of a NATS server", "server", id, "err", err)
		}
	}
}

// gather is how long answers of all servers are waited for.
const gather = 500 * time.Millisecond

// find returns the ids of all servers.
func (x *External) find(ctx context.Context) []string {
	found := map[string]bool{}
	inbox := x.watcher.NewInbox()
	sub, err := x.watcher.SubscribeSync(inbox)
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }() // fails if the connection has ended
		err = x.watcher.PublishRequest("$SYS.REQ.SERVER.PING.IDZ", inbox, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, gather)
	defer cancel()
	for err == nil {
		var m *nats.Msg
		if m, err = sub.NextMsgWithContext(ctx); err == nil {
			var e server.ServerID
			if json.Unmarshal(m.Data, &e) == nil && e.ID != "" {
				found[e.ID] = true
				x.heard(e.ID)
			}
		}
	}
	list := x.used()
	for _, id := range list {
		delete(found, id)
	}
	for id := range found {
		list = append(list, id)
	}
	return list
}

// compare ends the connections of a server that are not known, and forgets those that are not
// there.
func (x *External) compare(ctx context.Context, id string) error {
	began, there := time.Now(), map[uint64]bool{}
	own := public(x.opts.Credentials.traffic)
	err := eachThere(ctx, x, id, func(c *server.ConnInfo) {
		if there[c.Cid] = true; c.AuthorizedUser != own {
			x.endUnknown(place{id, c.Cid})
		}
	})
	if err != nil {
		return err // who is not among those that were listed may be there
	}
	x.mu.Lock()
	var missing []place
	for p, g := range x.in {
		if p.server == id && !there[p.cid] && began.Sub(g.since) > admittedBefore {
			missing = append(missing, p)
		}
	}
	x.mu.Unlock()
	x.leave(missing...)
	return nil
}

// eachThere calls f for the connections at a server, in pages; for some of them more than once. None is
// left out that is there all the time.
//
// The server makes each page from the list of that time, in the order of their numbers. If one of a
// former page has ended, the others have moved towards the beginning: so pages overlap, and one
// that does not reach back to the end of the one before is asked for again from further ahead.
func eachThere(ctx context.Context, x *External, id string, f func(*server.ConnInfo)) error {
	overlap := max(1, x.page/10)
	last := uint64(0)
	for offset, again := 0, 0; ; {
		var page struct{ Data *server.Connz }
		q := server.ConnzOptions{Username: true, Account: ExternalAccount, Sort: server.ByCid, Offset: offset, Limit: x.page}
		if err := x.ask(ctx, "$SYS.REQ.SERVER."+id+".CONNZ", q, &page); err != nil {
			return err
		}
		if page.Data == nil {
			return errors.New("it has not answered with a list")
		}
		list := page.Data.Conns
		if offset > 0 && (len(list) == 0 || list[0].Cid > last) {
			if again++; again > maxAgain {
				return errors.New("its connections end faster than they are listed")
			}
			offset = max(0, offset-x.page)
			continue
		}
		for _, c := range list {
			f(c)
		}
		if len(list) < x.page {
			return nil
		}
		last = list[len(list)-1].Cid
		offset += x.page - overlap
	}
}

// endUnknown ends a connection that this process has not admitted. It cannot be one that is
// just being admitted, since those are registered before the server knows them.
func (x *External) endUnknown(p place) {
	x.mu.Lock()
	_, known := x.in[p]
	x.mu.Unlock()
	if !known {
		x.kick(p)
	}
}

// cut ends a connection: at once here, so that nothing of it counts any more, and then at its
// server.
func (x *External) cut(p place) {
	x.leave(p)
	x.kick(p)
}

// kicked is where servers answer that they have ended a connection. Nobody listens there: the
// end itself is heard of.
const kicked = "_INBOX.master.kicked"

// kick has a server end a connection. If it is not told now, the next comparison ends the
// connection.
func (x *External) kick(p place) {
	body, err := json.Marshal(server.KickClientReq{CID: p.cid})
	if err == nil {
		err = x.watcher.PublishRequest("$SYS.REQ.SERVER."+p.server+".KICK", kicked, body) // without a reply subject it would be ignored
	}
	if err != nil {
		x.log.Warn("a NATS server could not be asked to end a connection; it is asked again", "server", p.server, "err", err)
		x.wake()
	}
}

// ask asks a server, and decodes its answer.
func (x *External) ask(ctx context.Context, subject string, q, answer any) error {
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, externalTimeout)
	defer cancel()
	m, err := x.watcher.RequestWithContext(ctx, subject, body)
	if err != nil {
		return fmt.Errorf("ask %s: %w", subject, err)
	}
	return json.Unmarshal(m.Data, answer)
}
