// Package eventacl decides who may do what with the events of a daemon's bus, by the setting
// event_acl, in both daemons. What is allowed is recorded in the audit log, if there is one,
// before it takes effect.
//
// It does not carry events: eventbus does.
package eventacl

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/authz/internal/seal"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Parse parses the setting event_acl; its errors name file and line.
func Parse(setting config.Located) (*event.Grants, error) {
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

// Rules are those of event_acl in force, and where decisions are recorded. They may be used
// concurrently.
type Rules struct {
	// Tell records each decision: that to allow before it takes effect, which an error
	// prevents. It returns false for a refusal that is only counted, since there are too many.
	// It is set before any request is served. Without it, refusals become events, limited for
	// each user, and what is allowed is not recorded.
	Tell func(context.Context, Record) (written bool, err error)

	grants   atomic.Pointer[event.Grants]
	announce func(tag string, data any)
	log      *slog.Logger
	throttle logging.Throttle // of refusals without Tell
}

// New returns rules that grant nothing yet. announce fires an event of the daemon itself.
func New(announce func(tag string, data any), log *slog.Logger) *Rules {
	return &Rules{announce: announce, log: log}
}

// Set puts other rules in force. Present listeners go on with the old ones.
func (r *Rules) Set(g *event.Grants) { r.grants.Store(g) }

// Known reports whether an ordinary user may use the bus for anything at all.
func (r *Rules) Known(user string) bool { return r.grants.Load().Known(user) }

// Principal is a verified sender or listener, with what the rules let them hear. Only Rules
// makes them.
type Principal struct {
	Owner  string // owner of positions and dead letters: a number, a login, a client
	Sender string // sender of the events that it fires
	UID    int    // according to the kernel, for the audit log; -1 for clients
	Sudo   string // the user behind sudo
	Source string // for people: an address, or a process of this machine

	name     string // its name in the rules
	operator bool
	external bool // has logged in with a backend: may not use the tag spaces of the master
	client   bool // comes over the network: likewise
	hearing  event.Hearing
}

// Name is the name in the rules and for people.
func (p Principal) Name() string { return p.name }

// Operator reports whether it may do everything that anybody may, see the positions of all, and
// purge.
func (p Principal) Operator() bool { return p.operator }

// Hearing is what it may listen to.
func (p Principal) Hearing() event.Hearing { return p.hearing }

// User describes a local user.
func (r *Rules) User(uid int, name string, operator bool) Principal {
	p := Principal{Owner: strconv.Itoa(uid), name: name, Sender: salt.UserPrefix + name, UID: uid, operator: operator, hearing: event.HearAll}
	if !operator {
		p.hearing = r.grants.Load().Hearing(name)
	}
	return p
}

// External describes a user who has logged in with a backend of external_auth. They are never
// an operator, nor the user of this machine with the same name.
func (r *Rules) External(uid int, backend, name string) Principal {
	name = backend + ":" + name
	return Principal{Owner: name, name: name, Sender: salt.UserPrefix + name, UID: uid, external: true, hearing: r.grants.Load().Hearing(name)}
}

// Client describes a client. It is never an operator.
func (r *Rules) Client(i bus.Identity) Principal {
	name := salt.ClientPrefix + i.Name
	return Principal{Owner: name, name: name, Sender: name, UID: -1, Source: i.Source, client: true, hearing: r.grants.Load().Hearing(name)}
}

// Tags returns the patterns of tags that a principal may fire and listen to.
func (r *Rules) Tags(who Principal) (fire, listen []string) {
	if who.operator {
		return []string{"*"}, []string{"*"}
	}
	return r.grants.Load().Fires(who.name), who.hearing.Limits()
}

// Record is a decision about a principal's use of the bus, for the audit log.
type Record struct {
	Who     Principal
	Verb    string // fire, listen, purge, stat
	Tags    []string
	Count   int // of events to be fired
	Allowed bool
	event.Grant
	Reason string // reason of a refusal, or what is purged
}

// Limits of what is recorded.
const (
	maxTags     = 20  // of one request
	maxRefusals = 100 // of one user in a minute, if they are not counted elsewhere
)

// allow is the only place in this package that allows what event_acl is about.
func allow() decision.Decision { return seal.Allow(string(bus.EventGrant)) }

// allowed records a decision before it takes effect.
func (r *Rules) allowed(ctx context.Context, d Record) decision.Decision {
	d.Allowed = true
	r.log.Debug("event permitted", "user", d.Who.name, "verb", d.Verb, "rule", d.Rule)
	if r.Tell != nil {
		if _, err := r.Tell(ctx, d); err != nil {
			return seal.Refuse(err)
		}
	}
	return allow()
}

const noGrant = "no rule of event_acl allows it"

// refused records a refusal.
func (r *Rules) refused(who Principal, verb, tag, reason string) {
	log := r.log.With("user", who.name, "verb", verb, "tag", tag, "reason", reason)
	if r.Tell == nil {
		if r.throttle.Few(who.name, time.Now(), maxRefusals) {
			log.Warn("event refused")
			r.announce(event.AuditSpace+"/refused", map[string]any{"user": who.name, "fun": "event." + verb, "tag": tag, "reason": reason})
		}
		return
	}
	d := Record{Who: who, Verb: verb, Reason: reason}
	if tag != "" {
		d.Tags = []string{tag}
	}
	written, err := r.Tell(context.Background(), d)
	if written {
		log.Warn("event refused")
	}
	if err != nil {
		r.log.Error("refusal not written to the audit log", "user", who.name, "err", err)
	}
}

// ungranted records what no rule allows, and returns the refusal.
func (r *Rules) ungranted(who Principal, verb, tag string) error {
	r.refused(who, verb, tag, noGrant)
	return deny(who.name, verb, tag)
}

// deny returns the refusal for a local user, in terms of event_acl.
func deny(user, verb, tag string) error {
	what := "events"
	if tag != "" {
		what = "events with the tag " + tag
	}
	if verb == "listen" {
		verb = "listen to"
	}
	return rpc.Errorf(rpc.Denied, "user %s may not %s %s: no rule of event_acl allows it", user, verb, what).
		WithHint("root may; an operator grants it with event_acl in the configuration")
}

// operatorOnly refuses what is for operators only.
func (r *Rules) operatorOnly(who Principal, verb, what string) decision.Decision {
	r.refused(who, verb, "", "it is for operators")
	return seal.Refuse(rpc.Errorf(rpc.Denied, "user %s may not %s: that is for operators", who.name, what).WithHint("root may do this"))
}

// ForOperator decides about a request that is for operators only.
func ForOperator(who Principal, c bus.Check, refusal error) decision.Decision {
	if c != bus.Operator || !who.operator {
		return seal.Refuse(refusal)
	}
	return seal.Allow(string(bus.Operator))
}

// Stat decides about a look at the state of the bus.
func (r *Rules) Stat(who Principal) decision.Decision {
	if !who.operator {
		return r.operatorOnly(who, "stat", "look at the state of the bus")
	}
	return allow()
}

// Purge decides about removing events. query describes the request, for the audit log.
func (r *Rules) Purge(ctx context.Context, who Principal, query string) decision.Decision {
	if !who.operator {
		return r.operatorOnly(who, "purge", "purge the bus")
	}
	return r.allowed(ctx, Record{Who: who, Verb: "purge", Grant: event.Grant{Rule: "operator"}, Reason: query})
}

// Position decides about forgetting the position of a user of this name; "" is the principal's
// own.
func (r *Rules) Position(who Principal, user string) decision.Decision {
	if !who.operator && user != "" && user != who.name {
		return r.operatorOnly(who, "purge", "purge the bus")
	}
	return allow()
}

// Heard decides about what every listener may read: where the journal ends, and the dead
// letters of their own listeners.
func (r *Rules) Heard(who Principal) decision.Decision {
	if _, ok := who.hearing.Covers(""); !ok {
		return seal.Refuse(r.ungranted(who, "listen", ""))
	}
	return allow()
}

// MayListen refuses a listener that could not hear anything below one of the prefixes.
func (r *Rules) MayListen(who Principal, prefixes []string) error {
	for _, prefix := range prefixes {
		if _, ok := who.hearing.Covers(prefix); !ok {
			return r.ungranted(who, "listen", prefix)
		}
	}
	return nil
}

// Listen decides about a listener to all tags that begin with one of prefixes; tags are the
// patterns that it has sent.
func (r *Rules) Listen(ctx context.Context, who Principal, prefixes, tags []string) decision.Decision {
	if err := r.MayListen(who, prefixes); err != nil || len(prefixes) == 0 {
		return seal.Refuse(err)
	}
	d := Record{Who: who, Verb: "listen", Tags: tags[:min(len(tags), maxTags)]}
	d.Grant, _ = who.hearing.Covers(prefixes[0])
	return r.allowed(ctx, d)
}
