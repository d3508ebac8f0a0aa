package eventacl

import (
	"context"
	"slices"

	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/authz/internal/seal"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/rpc"
)

// Firing decides about the events of one request, tag by tag. It is not for concurrent use.
type Firing struct {
	rules   *Rules
	who     Principal
	tags    []string
	grant   event.Grant // of the first tag
	looked  bool
	refusal error
}

// Fire begins the decision about a request to fire.
func (r *Rules) Fire(who Principal) *Firing { return &Firing{rules: r, who: who} }

// Check checks a tag of the request. It is called for each tag at least once.
func (f *Firing) Check(tag string) error {
	if f.refusal != nil {
		return f.refusal
	}
	grant, err := f.rules.mayFire(f.who, tag)
	if err != nil {
		f.refusal = err
		return err
	}
	if !f.looked {
		f.looked, f.grant = true, grant
	}
	if len(f.tags) < maxTags && !slices.Contains(f.tags, tag) {
		f.tags = append(f.tags, tag)
	}
	return nil
}

// Decide decides about all tags that Check has seen: count events.
func (f *Firing) Decide(ctx context.Context, count int) decision.Decision {
	switch {
	case f.refusal != nil || !f.looked:
		return seal.Refuse(f.refusal)
	case f.who.operator: // events of an operator need no record; they name their sender
		return allow()
	}
	return f.rules.allowed(ctx, Record{Who: f.who, Verb: "fire", Count: count, Tags: f.tags, Grant: f.grant})
}

// mayFire checks one tag. Only the daemon fires events of the audit log.
func (r *Rules) mayFire(who Principal, tag string) (event.Grant, error) {
	if err := event.CheckTag(tag); err != nil {
		return event.Grant{}, err
	}
	if event.IsAudit(tag) {
		r.refused(who, "fire", tag, "events of the audit log come from the daemon alone")
		return event.Grant{}, rpc.Errorf(rpc.Denied, "user %s may not fire events with the tag %s: those of the audit log come from the daemon alone", who.name, tag)
	}
	if who.operator {
		return event.Grant{}, nil
	}
	grant, ok := r.fires(who, tag)
	if !ok {
		return event.Grant{}, r.ungranted(who, "fire", tag)
	}
	return grant, nil
}

// fires returns the rule that lets a principal other than an operator fire a tag.
func (r *Rules) fires(who Principal, tag string) (event.Grant, bool) {
	if (who.client || who.external) && event.Reserved(tag) {
		return event.Grant{}, false
	}
	return r.grants.Load().MayFire(who.name, tag)
}

// Explain answers what would be decided about firing a tag, or listening to all tags that begin
// with it, without recording it.
func (r *Rules) Explain(who Principal, listen bool, tag string) (grant event.Grant, allowed bool) {
	switch {
	case event.CheckTag(tag) != nil, !listen && event.IsAudit(tag):
		return event.Grant{}, false
	case who.operator:
		return event.Grant{Rule: "operator"}, true
	case listen:
		return who.hearing.Covers(tag)
	}
	return r.fires(who, tag)
}
