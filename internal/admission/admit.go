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

// Admit says who a peer is. It is called by the broker for every connection.
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
	v, err := a.Keys.Admit(id, key, p.Remote, p.Host)
	if err != nil {
		a.unjudged(p, id, err)
	}
	if err == nil || v.State == pki.Accepted {
		a.tellAuth(p, id, key, v)
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
func (a *Admission) unjudged(p broker.Peer, id salt.MinionID, err error) {
	now := time.Now()
	if a.throttle.Few("unjudged keys of "+p.Host, now, maxUnjudged) && a.throttle.Few("unjudged keys", now, maxUnjudgedOfAll) {
		a.Log.Error("key not judged, and so not accepted", "minion", id, "remote", p.Remote, "err", err)
	}
}

// How often in a minute that is told, of one host and of all.
const (
	maxUnjudged      = 3
	maxUnjudgedOfAll = 20
)

// refuseUnaccepted tells the log of a peer whose certificate makes no sense: of each
// host now and then.
func (a *Admission) refuseUnaccepted(p broker.Peer, err error) {
	now := time.Now()
	if a.throttle.First("certificate "+p.Host, now) && a.throttle.Few("certificates", now, maxHostsLogged) {
		a.Log.Warn("connection refused", "remote", p.Remote, "err", err)
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
	maxHostsLogged  = 10 // of whom it is told that there is more of theirs
)

// tooMany says whether enough is told already of keys that are turned away, or begin to
// wait.
func (a *Admission) tooMany(p broker.Peer, begins bool) bool {
	what, line, ofHost, ofAnybody := "keys", "more keys are turned away than are told of", maxOfHost, maxOfAnybody
	if begins {
		what, line, ofHost, ofAnybody = "new keys", "more keys begin to wait than are told of", maxNewOfHost, maxNewOfAnybody
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
func (a *Admission) tellAuth(p broker.Peer, id salt.MinionID, key pki.PublicKey, v keyring.Verdict) {
	log := a.Log.With("minion", id, "remote", p.Remote)
	if v.Act != "accept" && !a.throttle.First(v.Act+" "+string(id)+" "+bus.KeyToken(key.Key()), time.Now()) {
		return // it keeps knocking; once a minute is enough for log and journal
	}
	if v.Act != "accept" && a.tooMany(p, v.Act == "pend" && v.New) {
		return
	}
	switch v.Act {
	case "accept":
		if p.Caller {
			return // salt-call comes with every command of a script
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
		log.Warn("Public key rejected for " + string(id) + ". Key is present in rejection key dir.")
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

// How often in a minute it is in the log that somebody has connected who may, and how often there
// is an event of it: they may do so as often as they like.
const (
	maxConnected = 10
	maxAnnounced = 60
)

// turnedAway is why a key gets no connection, by what became of it.
var turnedAway = map[string]string{
	"pend": "the key waits to be accepted", "reject": "the key is rejected", "full": "too many keys are waiting",
	"denied": "another key holds the id",
}
