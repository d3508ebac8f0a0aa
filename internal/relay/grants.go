package relay

import (
	"context"
	"errors"

	"brine/internal/bus"
	"brine/internal/config"
	"brine/internal/event"
	"brine/internal/salt"
)

// ParseGrants reads the setting event_acl; its errors name file and line.
func ParseGrants(setting config.Located) (*event.Grants, error) {
	g, err := event.ParseGrants(setting.Node)
	var mistake *event.GrantError
	if errors.As(err, &mistake) {
		return nil, setting.At(mistake.Node, mistake.Err)
	}
	return g, err
}

// SetGrants puts the rules for ordinary users in force, also for those who listen
// already: their answers end, and they come back under the new rules.
func (r *Relay) SetGrants(g *event.Grants) {
	r.grants.Store(g)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.listeners {
		if !l.who.Operator {
			l.recall()
		}
	}
}

// Known says whether an ordinary user may use the bus for anything at all.
func (r *Relay) Known(user string) bool { return r.grants.Load().Known(user) }

// Asker describes a local user with what the rules let it hear.
func (r *Relay) Asker(uid int, name string, operator bool) Asker {
	a := Asker{UID: uid, Name: name, Operator: operator, Hearing: event.HearAll}
	if !operator {
		a.Hearing = r.grants.Load().Hearing(name)
	}
	return a
}

// refused logs a refusal and writes it to the audit trail.
func (r *Relay) refused(who Asker, verb, tag string) error {
	r.log.Warn("event refused", "user", who.Name, "verb", verb, "tag", tag, "rule", "")
	r.Announce("salt/audit/refused", map[string]any{"user": who.Name, "fun": "event." + verb, "tag": tag, "reason": "no rule of event_acl allows it"})
	return deny(who.Name, verb, tag)
}

// FireFor stores the events of a local user, if each tag is granted.
func (r *Relay) FireFor(ctx context.Context, req *bus.Request, who Asker) error {
	return r.fire(ctx, req, salt.UserPrefix+who.Name, r.MayFire(who))
}

// MayFire returns the check that Fire asks for each tag of a local user.
func (r *Relay) MayFire(who Asker) func(tag string) error {
	return func(tag string) error {
		if err := event.CheckTag(tag); err != nil || who.Operator {
			return err
		}
		rule, ok := r.grants.Load().MayFire(who.Name, tag)
		if !ok {
			return r.refused(who, "fire", tag)
		}
		r.log.Debug("event permitted", "user", who.Name, "tag", tag, "rule", rule)
		return nil
	}
}
