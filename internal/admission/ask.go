package admission

import (
	"context"
	"errors"
	"log/slog"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Ask tells the holder of a key whether it is accepted, and again when that changes. It is the
// only request of an unaccepted key, once for each connection.
func (a *Admission) Ask(ctx context.Context, r *rpc.Request) error {
	var q protocol.Ask
	if err := r.Decode(&q); err != nil {
		return err
	}
	if r.Body = nil; !a.Keys.GrainsCount() { // the request may go on for long
		q.AutosignGrains = nil
	}
	i, ok := a.Connections.Owner(r.Inbox())
	if !ok {
		return nil // the connection has ended already
	}
	if a.stale() {
		return errStale
	}
	if a.turnedAway(i) {
		return errTooMany
	}
	certificate, proof, err := a.prove(q.Challenge, r.Inbox())
	if err != nil {
		return err
	}
	changes, stop, first := a.waiting.Wait(salt.MinionID(i.Name), r.Inbox())
	if !first {
		return rpc.Errorf(rpc.Busy, "this connection has asked already")
	}
	defer stop()
	last := protocol.KeyState("")
	for {
		state, err := a.stateOf(i, q.AutosignGrains)
		if err != nil {
			return err
		}
		if state != last {
			answer := protocol.AskAnswer{State: state, Reconnect: i.Role == bus.RoleUnaccepted, Version: a.Version, Certificate: certificate, Proof: proof}
			certificate, proof = nil, nil
			if err := r.Send(ctx, answer); err != nil {
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

// prove answers the challenge of a peer that has not seen the master's key in TLS.
func (a *Admission) prove(challenge []byte, inbox string) (certificate, proof []byte, err error) {
	switch {
	case len(challenge) == 0:
		return nil, nil, nil
	case a.Prove == nil || len(challenge) != protocol.ChallengeSize:
		return nil, nil, rpc.Errorf(rpc.Usage, "this master answers no challenge here, or the challenge does not have %d bytes", protocol.ChallengeSize)
	}
	return a.Prove(protocol.ProofText(challenge, inbox))
}

// stateOf returns the present state of a connection's key.
func (a *Admission) stateOf(i bus.Identity, grains map[string]string) (protocol.KeyState, error) {
	id := salt.MinionID(i.Name)
	key, state, err := a.Keys.ByToken(id, i.Key)
	if err != nil {
		return "", err
	}
	if state == pki.Pending && len(grains) > 0 {
		signed, err := a.Keys.SignByGrains(pki.Entry{ID: id, State: pki.Pending, Key: key}, i.Source, grains)
		if errors.Is(err, keyring.ErrLimited) {
			a.throttle.Log(a.Log, slog.LevelWarn, "limited grains", maxLimited, "a rule on new keys applies, but is limited", "minion", id, "remote", i.Source, "err", err, "hint", salt.Hint(err))
			return "", errLimited
		}
		if err != nil {
			a.throttle.Log(a.Log, slog.LevelError, "autosign_grains", maxUnjudged, "autosign_grains not applied", "minion", id, "err", err)
		}
		if signed {
			a.Log.Info("key accepted by autosign_grains", "minion", id)
			state = pki.Accepted
		}
	}
	switch state {
	case pki.Accepted:
		return protocol.KeyAccepted, nil
	case pki.Pending:
		if later, err := a.Keys.AcceptsByRule(id); err == nil && later {
			return "", errLimited
		}
		return protocol.KeyPending, nil
	case pki.Rejected:
		return protocol.KeyRejected, nil
	case pki.Denied:
		return protocol.KeyDenied, nil
	}
	if barred, err := a.Keys.Bars(id); err == nil && barred {
		return protocol.KeyRejected, nil // without a record
	}
	return protocol.KeyFull, nil
}

// errLimited is the answer to a minion whose key a rule will accept, but not now. It says nothing about the key: the
// minion tries its other masters, and this one again later.
var errLimited = rpc.Errorf(rpc.Unavailable, "the rules of this master on new keys accept no more for now")
