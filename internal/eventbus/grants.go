package eventbus

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// ParseGrants reads the setting event_acl; its errors name file and line.
func ParseGrants(setting config.Located) (*event.Grants, error) {
	g, err := event.ParseGrants(setting.Node, setting.Where)
	var errs []error
	for _, one := range config.Mistakes(err) {
		var mistake *event.GrantError
		if errors.As(one, &mistake) {
			one = setting.At(mistake.Node, mistake.Err)
		}
		errs = append(errs, one)
	}
	return g, errors.Join(errs...)
}

// SetGrants puts the rules for ordinary users in force, also for those who listen
// already: their answers end, and they come back under the new rules.
func (r *Bus) SetGrants(g *event.Grants) {
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
func (r *Bus) Known(user string) bool { return r.grants.Load().Known(user) }

// Tags are the patterns of tags that somebody may fire and hear.
func (r *Bus) Tags(who Principal) (fire, listen []string) {
	if who.Operator {
		return []string{"*"}, []string{"*"}
	}
	return r.grants.Load().Fires(who.Name), who.Hearing.Limits()
}

// Principal describes a local user with what the rules let it hear.
func (r *Bus) Principal(uid int, name string, operator bool) Principal {
	a := Principal{Owner: strconv.Itoa(uid), Name: name, Sender: salt.UserPrefix + name, UID: uid, Operator: operator, Hearing: event.HearAll}
	if !operator {
		a.Hearing = r.grants.Load().Hearing(name)
	}
	return a
}

// External describes a user who has logged in by a backend of external_auth, with what the
// rules let them hear. They are never an operator, nor the user of this machine with the
// same name.
func (r *Bus) External(uid int, backend, name string) Principal {
	name = backend + ":" + name
	return Principal{Owner: name, Name: name, Sender: salt.UserPrefix + name, UID: uid, external: true, Hearing: r.grants.Load().Hearing(name)}
}

// Client describes a client with what the rules let it hear. It is never an
// operator.
func (r *Bus) Client(i bus.Identity) Principal {
	name := salt.ClientPrefix + i.Name
	return Principal{Owner: name, Name: name, Sender: name, UID: -1, Source: i.Source, client: true, Hearing: r.grants.Load().Hearing(name)}
}

// Decision is what was decided about a local user's use of the bus.
type Decision struct {
	Who     Principal
	Verb    string // fire, listen, purge, stat
	Tags    []string
	Count   int // of events to be fired
	Allowed bool
	event.Grant
	Reason string // of a refusal, or what is to be purged
}

// maxTold is how many tags of one request are told.
const maxTold = 20

// maxRefusals is how many refusals of one user are told in a minute where nobody
// counts them.
const maxRefusals = 100

// SetAudit sets who is told of each decision: of one to allow before it takes
// effect, which an error prevents. It returns false for a refusal that is only
// counted, since there are too many. It is set before anybody is served. Without it
// refusals are events, of each user now and then, and what is allowed is told to
// nobody.
func (r *Bus) SetAudit(tell func(context.Context, Decision) (told bool, err error)) { r.audit = tell }

// allowed tells of a decision before it takes effect.
func (r *Bus) allowed(ctx context.Context, d Decision) error {
	d.Allowed = true
	r.log.Debug("event permitted", "user", d.Who.Name, "verb", d.Verb, "rule", d.Rule)
	if r.audit == nil {
		return nil
	}
	_, err := r.audit(ctx, d)
	return err
}

const noGrant = "no rule of event_acl allows it"

// refused tells of a refusal.
func (r *Bus) refused(who Principal, verb, tag, reason string) {
	log := r.log.With("user", who.Name, "verb", verb, "tag", tag, "reason", reason)
	if r.audit == nil {
		if r.told.Few(who.Name, time.Now(), maxRefusals) {
			log.Warn("event refused")
			r.Announce(event.AuditSpace+"/refused", map[string]any{"user": who.Name, "fun": "event." + verb, "tag": tag, "reason": reason})
		}
		return
	}
	d := Decision{Who: who, Verb: verb, Reason: reason}
	if tag != "" {
		d.Tags = []string{tag}
	}
	told, err := r.audit(context.Background(), d)
	if told {
		log.Warn("event refused")
	}
	if err != nil {
		r.log.Error("refusal not written to the audit trail", "user", who.Name, "err", err)
	}
}

// ungranted tells of what no rule allows, and returns the refusal.
func (r *Bus) ungranted(who Principal, verb, tag string) error {
	r.refused(who, verb, tag, noGrant)
	return deny(who.Name, verb, tag)
}

// FireFor stores the events of a local user, or hands them out if they are not to be
// stored, if each tag is granted.
func (r *Bus) FireFor(ctx context.Context, req *rpc.Request, who Principal) error {
	var q protocol.Fire
	if err := req.Decode(&q); err != nil {
		return err
	}
	if err := r.Look(q, r.MayFire(who)); err != nil {
		return err
	}
	// What an operator fires is nobody's decision; the event names him.
	if !who.Operator {
		if err := r.allowed(ctx, r.firing(who, q)); err != nil {
			return err
		}
	}
	_ = req.Decide(nil)
	fired, err := r.Put(ctx, q, who.Sender)
	if err != nil {
		return err
	}
	return req.Last(ctx, fired)
}

// firing describes a request to fire that every rule allows.
func (r *Bus) firing(who Principal, q protocol.Fire) Decision {
	d := Decision{Who: who, Verb: "fire", Count: len(q.Events)}
	for _, e := range q.Events {
		if len(d.Tags) == maxTold {
			break
		}
		if !slices.Contains(d.Tags, e.Tag) {
			d.Tags = append(d.Tags, e.Tag)
		}
	}
	d.Grant, _ = r.grants.Load().MayFire(who.Name, q.Events[0].Tag)
	return d
}

// MayFire returns the check that Fire asks for each tag of a local user. The
// events of the audit trail are the daemon's own.
func (r *Bus) MayFire(who Principal) func(tag string) error {
	return func(tag string) error {
		if err := event.CheckTag(tag); err != nil {
			return err
		}
		if event.IsAudit(tag) {
			r.refused(who, "fire", tag, "events of the audit trail come from the daemon alone")
			return rpc.Errorf(rpc.Denied, "user %s may not fire events with the tag %s: those of the audit trail come from the daemon alone", who.Name, tag)
		}
		if who.Operator {
			return nil
		}
		if (who.client || who.external) && event.Reserved(tag) {
			return r.ungranted(who, "fire", tag)
		}
		if _, ok := r.grants.Load().MayFire(who.Name, tag); !ok {
			return r.ungranted(who, "fire", tag)
		}
		return nil
	}
}
