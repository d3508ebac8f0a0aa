package master

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
)

// admit says who a peer is. It is called by the broker for every connection.
func (m *Master) admit(p broker.Peer) bus.Identity {
	if p.TLS == nil {
		return m.admitLocal(p)
	}
	if name, ok := claimedClient(p.TLS); ok {
		return m.admitClient(p, name)
	}
	id, key, err := claim(p.TLS)
	if err != nil {
		m.refuseUnaccepted(p, err)
		return bus.Identity{}
	}
	v, err := m.keys.Admit(id, key, p.Remote, p.Host)
	if err != nil {
		m.unjudged(p, id, err)
	}
	if err == nil || v.State == pki.Accepted {
		m.tellAuth(p, id, key, v)
	}
	i := bus.Identity{Role: bus.RoleUnaccepted, Name: string(id), Key: bus.KeyToken(key.Key()), Source: p.Remote}
	if v.State == pki.Accepted {
		i.Role = bus.RoleMinion
		if p.Caller {
			i.Role = bus.RoleCaller
		}
	}
	return i
}

// unjudged tells of a key that could not be judged, of each host now and then: that a
// file cannot be read says nothing of who connects.
func (m *Master) unjudged(p broker.Peer, id salt.MinionID, err error) {
	now := time.Now()
	if m.told.Few("unjudged keys of "+p.Host, now, maxUnjudged) && m.told.Few("unjudged keys", now, maxUnjudgedOfAll) {
		m.log.Error("key not judged, and so not accepted", "minion", id, "remote", p.Remote, "err", err)
	}
}

// How often in a minute that is told, of one host and of all.
const (
	maxUnjudged      = 3
	maxUnjudgedOfAll = 20
)

// refuseUnaccepted tells the log of a peer whose certificate makes no sense: of each
// host now and then.
func (m *Master) refuseUnaccepted(p broker.Peer, err error) {
	now := time.Now()
	if m.told.First("certificate "+p.Host, now) && m.told.Few("certificates", now, maxHostsTold) {
		m.log.Warn("connection refused", "remote", p.Remote, "err", err)
	}
}

// Bounds of what those without an accepted key can fill log, audit log and journal with:
// words in a minute about the keys of one host, and about those of all. Anybody can
// make a new key for each connection. Of keys that begin to wait more is told: somebody
// may accept them by the event.
const (
	maxOfHost       = 100
	maxOfAnybody    = 3000
	maxNewOfHost    = 3000
	maxNewOfAnybody = 6000
	maxHostsTold    = 10 // of whom it is told that there is more of theirs
)

// tooMany says whether enough is told already of keys that are turned away, or begin to
// wait.
func (m *Master) tooMany(p broker.Peer, begins bool) bool {
	what, told, ofHost, ofAnybody := "keys", "more keys are turned away than are told of", maxOfHost, maxOfAnybody
	if begins {
		what, told, ofHost, ofAnybody = "new keys", "more keys begin to wait than are told of", maxNewOfHost, maxNewOfAnybody
	}
	now := time.Now()
	if m.told.Few(what+" of "+p.Host, now, ofHost) && m.told.Few(what, now, ofAnybody) {
		return false
	}
	if m.told.First("too many "+what+" of "+p.Host, now) && m.told.Few("too many "+what, now, maxHostsTold) {
		m.log.Warn(told, "host", p.Host)
	}
	return true
}

// admitLocal lets a process of this machine in as its user. An operator is believed
// whom they name as the user behind sudo: they could as well not say it. Of others it
// means nothing.
func (m *Master) admitLocal(p broker.Peer) bus.Identity {
	uid := int(p.Local.UID)
	i := bus.Identity{Role: bus.RoleUser, Name: strconv.Itoa(uid), Source: processOf(p.Local)}
	u := m.users.Lookup(m.ctx, uid)
	if p.Sudo == "" || p.Sudo == "root" || p.Sudo == string(u.Name) || !u.Operator {
		return i
	}
	name, err := salt.ParseUserName(p.Sudo)
	if err != nil { // with sudo_acl no rule could hold for it
		m.log.Warn("local connection refused: SUDO_USER names no user", "uid", uid, "err", err)
		return bus.Identity{}
	}
	i.Sudo = string(name)
	return i
}

// checkVersion refuses, within the handshake, who speaks no protocol that this master
// does.
func (m *Master) checkVersion(s tls.ConnectionState) error {
	err := upstream.Spoken(m.version).CheckMinion(s)
	if err != nil && m.often.Few("version", time.Now(), maxUnfit) {
		id, _, _ := claim(&s) // it is only told
		m.log.Warn("connection refused", "minion", id, "err", err)
	}
	return err
}

// maxUnfit is how often in a minute that is told.
const maxUnfit = 10

// claim reads the id and the key of a client certificate. The handshake has
// proven that the peer holds the key; the id is only what it says.
func claim(s *tls.ConnectionState) (salt.MinionID, pki.PublicKey, error) {
	if len(s.PeerCertificates) == 0 {
		return "", pki.PublicKey{}, errors.New("no client certificate")
	}
	c := s.PeerCertificates[0]
	id, err := salt.ParseMinionID(c.Subject.CommonName)
	if err != nil {
		return "", pki.PublicKey{}, err
	}
	key, err := pki.PublicFromCertificate(c)
	return id, key, err
}

// tellAuth logs and announces what became of a key, in Salt's words and shapes.
func (m *Master) tellAuth(p broker.Peer, id salt.MinionID, key pki.PublicKey, v keyring.Verdict) {
	log := m.log.With("minion", id, "remote", p.Remote)
	if v.Act != "accept" && !m.told.First(v.Act+" "+string(id)+" "+bus.KeyToken(key.Key()), time.Now()) {
		return // it keeps knocking; once a minute is enough for log and journal
	}
	if v.Act != "accept" && m.tooMany(p, v.Act == "pend" && v.New) {
		return
	}
	switch v.Act {
	case "accept":
		if p.Caller {
			return // salt-call comes with every command of a script
		}
		log.Info("Authentication accepted from " + string(id))
	case "pend":
		if !v.New {
			log.Debug("Authentication failed from host " + string(id) + ", the key is in pending and needs to be accepted with salt-key -a " + string(id))
			return
		}
		log.Info("New public key for "+string(id)+" placed in pending", "fingerprint", key.SHA256())
	case "reject":
		log.Warn("Public key rejected for " + string(id) + ". Key is present in rejection key dir.")
	case "full":
		log.Error("too many keys are waiting; this one was not recorded", "limit", pki.MaxWaiting)
	default:
		log.Error("Authentication attempt from "+string(id)+" failed, the public keys did not match. This may be an attempt to compromise the Salt cluster.", "fingerprint", key.SHA256())
	}
	if v.Act != keyring.Accept {
		m.auditLog.Note(audit.Entry{Kind: audit.Key, Who: keyring.Remote(id, p.Remote), Fun: "key.connect", Finger: key.SHA256(), Reason: turnedAway[v.Act]})
	}
	m.events.Announce("salt/auth", map[string]any{
		"result": v.State == pki.Accepted || v.State == pki.Pending, "act": v.Act, "id": string(id), "pub": string(key.PEM()),
	})
}

// turnedAway is why a key gets no connection, by what became of it.
var turnedAway = map[string]string{
	"pend": "the key waits to be accepted", "reject": "the key is rejected", "full": "too many keys are waiting",
	"denied": "another key holds the id",
}

// gone is told by the broker of every connection that ended.
func (m *Master) gone(i bus.Identity) {
	m.server.Gone(i.Inbox())
	m.authz.Logins.Ended(i.Inbox())
	if i.Role != bus.RoleMinion {
		return
	}
	id := salt.MinionID(i.Name)
	if m.fleet.Leave(id, i.Inbox(), time.Now()) {
		m.log.Info("minion disconnected", "minion", id)
		m.dispatch.Lost(id)
	}
}

// ask tells the holder of a key whether it is accepted, and again when that
// changes. It is all that an unaccepted key is answered, and a connection asks it once.
func (m *Master) ask(ctx context.Context, r *rpc.Request) error {
	var q protocol.Ask
	if err := r.Decode(&q); err != nil {
		return err
	}
	if r.Body = nil; !m.keys.GrainsCount() { // it may stand for long
		q.AutosignGrains = nil
	}
	i, ok := m.broker.Owner(r.Inbox())
	if !ok {
		return nil // it is gone already
	}
	changes, stop, first := m.waiting.Wait(salt.MinionID(i.Name), r.Inbox())
	if !first {
		return rpc.Errorf(rpc.Busy, "this connection has asked already")
	}
	defer stop()
	last := protocol.KeyState("")
	for {
		state, err := m.stateOf(i, q.AutosignGrains)
		if err != nil {
			return err
		}
		if state != last {
			a := protocol.AskAnswer{State: state, Reconnect: i.Role == bus.RoleUnaccepted, Version: m.version}
			if err := r.Send(ctx, a); err != nil {
				return err
			}
			last = state
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stateOf looks up where the key of a connection stands now.
func (m *Master) stateOf(i bus.Identity, grains map[string]string) (protocol.KeyState, error) {
	id := salt.MinionID(i.Name)
	key, state, err := m.keys.ByToken(id, i.Key)
	if err != nil {
		return "", err
	}
	if state == pki.Pending && len(grains) > 0 {
		signed, err := m.keys.SignByGrains(pki.Entry{ID: id, State: pki.Pending, Key: key}, i.Source, grains)
		if err != nil {
			m.log.Error("autosign_grains not applied", "minion", id, "err", err)
		}
		if signed {
			m.log.Info("key accepted by autosign_grains", "minion", id)
			state = pki.Accepted
		}
	}
	switch state {
	case pki.Accepted:
		return protocol.KeyAccepted, nil
	case pki.Pending:
		return protocol.KeyPending, nil
	case pki.Rejected:
		return protocol.KeyRejected, nil
	case pki.Denied:
		return protocol.KeyDenied, nil
	}
	return protocol.KeyFull, nil
}

// secondLook is when connections are looked at once more after a change of keys:
// well after the microseconds between judging and booking one.
const secondLook = time.Second

// watchKeys acts on every change of the key store: it cuts the connections whose
// key is no longer what it was, and wakes those that wait for it.
func (m *Master) watchKeys(changed <-chan pki.Seen) {
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	lost := map[salt.MinionID]bool{} // ids to look at once more
	for {
		select {
		case seen, ok := <-changed:
			if !ok {
				return
			}
			changes := m.lookAtKeys(seen)
			now := lostBy(changes)
			// A minion that was judged by the store may have come in with a key of which
			// nothing is known here: accepted and deleted again before the first look.
			suspects := maps.Clone(now)
			maps.Copy(suspects, seen.IDs)
			maps.Copy(lost, suspects)
			if len(suspects) > 0 || seen.Clients || seen.All {
				again.Reset(secondLook)
			}
			m.cutRefused(suspects, seen.Clients || seen.All)
			if len(now) > 0 {
				m.dispatch.Revoke()
			}
			m.waiting.Wake(changes)
		case <-again.C:
			// A connection that was judged just before the change and booked just
			// after it was missed by the first look.
			m.cutRefused(lost, true)
			clear(lost)
		}
	}
}

// lookAtKeys reads what is said to have changed, and tells of what did.
func (m *Master) lookAtKeys(seen pki.Seen) []keyring.Change {
	var err error
	if seen.All {
		err = m.keys.Refresh()
	} else if len(seen.IDs) > 0 {
		err = m.keys.Look(slices.Collect(maps.Keys(seen.IDs))...)
	}
	if err != nil {
		m.log.Error("key store not read", "err", err)
	}
	changes := m.keys.Take()
	m.announceKeys(changes)
	return changes
}

// lostBy are the ids of which an accepted key is accepted no more.
func lostBy(changes []keyring.Change) map[salt.MinionID]bool {
	ids := map[salt.MinionID]bool{}
	for _, c := range changes {
		if c.Before == pki.Accepted {
			ids[c.ID] = true
		}
	}
	return ids
}

// cutRefused ends the connections of these ids whose key is not accepted any more, those
// of clients if they are to be looked at, and nobody else's.
func (m *Master) cutRefused(ids map[salt.MinionID]bool, clients bool) {
	if len(ids) == 0 && !clients {
		return
	}
	suspect := func(i bus.Identity) bool {
		return i.Role == bus.RoleClient && clients || (i.Role == bus.RoleMinion || i.Role == bus.RoleCaller) && ids[salt.MinionID(i.Name)]
	}
	m.broker.ConnectionsOf(suspect, func(i bus.Identity, cut func()) {
		if i.Role == bus.RoleClient {
			m.cutClient(i, cut)
			return
		}
		_, state, err := m.keys.ByToken(salt.MinionID(i.Name), i.Key)
		if err == nil && state == pki.Accepted {
			return
		}
		m.log.Info("cutting a connection: its key is no longer accepted", "minion", i.Name, "state", state.String())
		if err == nil && state == pki.Unknown {
			// The store was read just now and may be ahead of what was announced: who
			// sees the end of the connection must find nothing of the minion.
			m.fleet.Forget(m.ctx, salt.MinionID(i.Name))
		}
		cut()
	})
}

// cut ends the connection with this inbox.
func (m *Master) cut(inbox string) {
	m.broker.Connections(func(i bus.Identity, cut func()) {
		if i.Inbox() == inbox {
			cut()
		}
	})
}

// announceKeys fires salt/key for what changed, as salt-key does in Salt; here
// it happens whoever moved the file. Of keys that made room for others the log has their
// number.
func (m *Master) announceKeys(changes []keyring.Change) {
	gaveWay := 0
	for _, c := range changes {
		switch {
		case c.GaveWay:
			gaveWay++
		case c.After == pki.Unknown:
			m.tellKey(c.Name, keyring.Delete)
			m.fleet.Forget(m.ctx, c.ID)
		case c.After == pki.Accepted || c.After == pki.Rejected:
			m.tellKey(c.Name, keyring.Act(c.After))
		}
	}
	if gaveWay > 0 && m.told.First("keys gave way", time.Now()) {
		m.log.Warn("too many keys wait to be accepted: those that were not seen for the longest time make room", "limit", pki.MaxWaiting, "limit_of_host", pki.MaxWaitingOfHost, "now", gaveWay)
	}
}

func (m *Master) tellKey(name keyring.Name, act string) {
	who, rule := m.keys.TakeAction(name, act)
	m.log.Info("key "+act, "minion", name.ID, "user", who.User, "rule", rule)
	m.auditLog.Note(audit.Entry{
		Kind: audit.Key, Verdict: audit.Allowed, Who: who, Fun: "key." + act, Minions: []salt.MinionID{name.ID}, Count: 1, Finger: name.Finger, Rule: rule,
	})
	m.events.Announce("salt/key", map[string]any{"result": true, "act": act, "id": string(name.ID)})
}

// keyAction notes which operator is about to change keys by files of their own.
func (m *Master) keyAction(ctx context.Context, r *rpc.Request) error {
	var q protocol.KeyAction
	if err := r.Decode(&q); err != nil {
		return err
	}
	who := m.authz.Local(ctx, r.From)
	for _, k := range q.Keys {
		m.keys.Expect(keyring.Name{ID: k.ID, Finger: k.Finger}, q.Act, who.Who())
	}
	return nil
}

// hello makes a minion a target: it has subscribed to its jobs.
func (m *Master) hello(ctx context.Context, r *rpc.Request) error {
	if err := m.fleet.CheckGrains(r); err != nil {
		return err
	}
	var q protocol.Hello
	if err := r.Decode(&q); err != nil {
		return err
	}
	i, ok := m.broker.Owner(r.Inbox())
	if !ok || i.Role != bus.RoleMinion {
		return rpc.Errorf(rpc.Denied, "only the daemon of a minion takes jobs")
	}
	id := salt.MinionID(i.Name)
	if err := m.fleet.StoreGrains(ctx, id, q.Grains.V); err != nil {
		return fmt.Errorf("store the facts of %s: %w", id, err)
	}
	m.cutTwin(id, r.Inbox())
	m.fleet.Join(id, r.Inbox())
	if _, alive := m.broker.Owner(r.Inbox()); !alive {
		m.gone(i) // it went while it was let in
	}
	if n, tell := m.often.Count("hello "+string(id), time.Now(), maxHellos); tell {
		m.log.Info("minion connected", "minion", id, "version", logging.Shorten(q.Version), "repeated", n)
	}
	defer m.dispatch.Back(id, i.Key) // behind the welcome: it tells the time by which jobs are judged
	return r.Send(ctx, protocol.Welcome{Time: m.steady.Now(), Version: m.version, Jobs: m.dispatch.Awaited(id)})
}

// cutTwin ends the older connection of a minion that connects once more: one
// that has not noticed its end, or a machine with a copy of the key. Both would
// run every job.
func (m *Master) cutTwin(id salt.MinionID, inbox string) {
	m.broker.Connections(func(i bus.Identity, cut func()) {
		if i.Role != bus.RoleMinion || i.Name != string(id) || i.Inbox() == inbox {
			return
		}
		m.log.Warn("minion connected again while its older connection lasts; the older one is cut. If this goes on, two machines share its key", "minion", id)
		cut()
	})
}

// maxHellos is how often in a minute it is told that a minion has connected.
const maxHellos = 3
