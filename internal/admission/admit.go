package admission

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// Admit says who a peer is. The broker calls it for every connection.
func (a *Admission) Admit(p broker.Peer) bus.Identity {
	if p.TLS == nil {
		return a.admitLocal(p)
	}
	if isGuest(p.TLS) {
		return a.admitGuest(p)
	}
	if name, ok := claimedClient(p.TLS); ok {
		return a.admitClient(p, name)
	}
	id, key, err := claim(p.TLS)
	if err != nil {
		a.refuseUnaccepted(p, err)
		return bus.Identity{}
	}
	i := bus.Identity{Role: bus.RoleUnaccepted, Name: string(id), Key: bus.KeyToken(key.Key()), Source: p.Remote}
	if a.ctx.Err() != nil { // this master stops: what a minion that was sent away finds here ends in a moment, and nothing can be stored about it
		return i
	}
	if a.stale() { // it asks, and is told why; until then the rules on new keys decide nothing that others may have decided
		a.tellStale()
		return i
	}
	v, err := a.Keys.Admit(id, key, p.Remote, p.Host)
	if err != nil {
		a.unjudged(p, id, err)
	}
	if v.Limited != nil {
		a.throttle.Log(a.Log, slog.LevelWarn, "limited "+v.Act, maxLimited, "a rule on new keys applies, but is limited", "minion", id, "remote", p.Remote, "act", v.Act, "err", v.Limited, "hint", salt.Hint(v.Limited))
	}
	if v.State == pki.Accepted && !p.Caller && a.full(id, true) { // likewise
		a.tellFull(p, id, key)
		return i
	}
	if err == nil || v.State == pki.Accepted {
		a.tellAuth(p, id, key, v)
	}
	if v.State == pki.Accepted {
		i.Role = bus.RoleMinion
		if p.Caller {
			i.Role = bus.RoleCaller
		}
	}
	return i
}

// unjudged logs a key that could not be checked, limited for each host: that a file cannot be
// read is not the peer's fault.
func (a *Admission) unjudged(p broker.Peer, id salt.MinionID, err error) {
	now := time.Now()
	if a.throttle.Few("unjudged keys of "+p.Host, now, maxUnjudged) && a.throttle.Few("unjudged keys", now, maxUnjudgedOfAll) {
		a.Log.Error("key not checked, and so not accepted", "minion", id, "remote", p.Remote, "err", err)
	}
}

// How often in a minute that is logged, for one host and in all; and that a rule is limited.
const (
	maxLimited       = 3
	maxUnjudged      = 3
	maxUnjudgedOfAll = 20
)

// refuseUnaccepted logs a peer with an unusable certificate, limited for each host.
func (a *Admission) refuseUnaccepted(p broker.Peer, err error) {
	now := time.Now()
	if a.throttle.First("certificate "+p.Host, now) && a.throttle.Few("certificates", now, maxHostsLogged) {
		a.Log.Warn("connection refused", "remote", p.Remote, "err", err)
	}
}

// Limits of what peers without an accepted key can write into log, audit log and journal:
// entries in a minute about the keys of one host, and in all. Anybody can make a new key for
// each connection. The limit is higher for keys that begin to wait, since somebody may accept
// them on their event.
const (
	maxOfHost       = 100
	maxOfAnybody    = 3000
	maxNewOfHost    = 3000
	maxNewOfAnybody = 6000
	maxHostsLogged  = 10 // for which it is logged that there is more
)

// tooMany reports whether the limit of entries about refused keys, or keys that begin to wait,
// is reached.
func (a *Admission) tooMany(p broker.Peer, begins bool) bool {
	what, line, ofHost, ofAnybody := "keys", "more keys are refused than are logged one by one", maxOfHost, maxOfAnybody
	if begins {
		what, line, ofHost, ofAnybody = "new keys", "more new keys are pending than are logged one by one", maxNewOfHost, maxNewOfAnybody
	}
	now := time.Now()
	if a.throttle.Few(what+" of "+p.Host, now, ofHost) && a.throttle.Few(what, now, ofAnybody) {
		return false
	}
	if a.throttle.First("too many "+what+" of "+p.Host, now) && a.throttle.Few("too many "+what, now, maxHostsLogged) {
		a.Log.Warn(line, "host", p.Host)
	}
	return true
}

// claim reads the id and the key of a client certificate. The handshake has proved that the
// peer holds the key; the id is only claimed.
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

// tellAuth logs and announces the result for a key, in Salt's words and forms.
func (a *Admission) tellAuth(p broker.Peer, id salt.MinionID, key pki.PublicKey, v keyring.Verdict) {
	log := a.Log.With("minion", id, "remote", p.Remote)
	if v.Act != "accept" && !a.throttle.First(v.Act+" "+string(id)+" "+bus.KeyToken(key.Key()), time.Now()) {
		return // it keeps trying; once a minute is enough for log and journal
	}
	if v.Act != "accept" && a.tooMany(p, v.Act == "pend" && v.New) {
		return
	}
	switch v.Act {
	case "accept":
		if p.Caller {
			return // salt-call connects for every command of a script
		}
		a.often.Log(log, slog.LevelInfo, "accept "+string(id), maxConnected, "Authentication accepted from "+string(id))
		if !a.often.Few("event "+string(id), time.Now(), maxAnnounced) {
			return
		}
	case "pend":
		if !v.New {
			log.Debug("Authentication failed from host " + string(id) + ", the key is in pending and needs to be accepted with salt-key -a " + string(id))
			return
		}
		log.Info("New public key for "+string(id)+" placed in pending", "fingerprint", key.SHA256())
	case "reject":
		where := "Key is present in rejection key dir."
		if v.Limited != nil {
			where = "A rule rejects it."
		}
		log.Warn("Public key rejected for " + string(id) + ". " + where)
	case "full":
		log.Error("too many keys are waiting; this one was not recorded", "limit", pki.MaxWaiting)
	default:
		log.Error("Authentication attempt from "+string(id)+" failed, the public keys did not match. This may be an attempt to compromise the Salt cluster.", "fingerprint", key.SHA256())
	}
	if v.Act != keyring.Accept {
		a.Audit.Note(audit.Entry{Kind: audit.Key, Who: keyring.Remote(id, p.Remote), Fun: "key.connect", Finger: key.SHA256(), Reason: turnedAway[v.Act]})
	}
	a.Events.Announce("salt/auth", map[string]any{
		"result": v.State == pki.Accepted || v.State == pki.Pending, "act": v.Act, "id": string(id), "pub": string(key.PEM()),
	})
}

// How often in a minute it is logged that an accepted peer has connected, and how often there
// is an event: they may connect as often as they like.
const (
	maxConnected = 10
	maxAnnounced = 60
)

// turnedAway is why a key gets no connection, by the result.
var turnedAway = map[string]string{
	"pend": "the key waits to be accepted", "reject": "the key is rejected", "full": "too many keys are waiting",
	"denied": "another key holds the id",
}
