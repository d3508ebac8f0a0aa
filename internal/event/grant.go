package event

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/target/fnmatch"
)

// Grants defines which ordinary users may fire and listen to which tags: the setting
// event_acl. Users and tags are shell patterns for the whole name, in which * also matches
// slashes; everything without a grant is refused. Root and the daemon's user need no grant.
//
//	event_acl:
//	  nagios:                 # a user
//	    fire: monitoring/*    # one pattern, or a list of them
//	    listen:
//	      - monitoring/*
//	      - salt/minion/*/start
//	  'web-*':
//	    - deploy/*            # a list applies to both
//	  client:dashboard:       # a client, by the name of its credentials
//	    listen: monitoring/*
//	  ldap:fred:              # a user who has logged in through a backend of external_auth
//	    listen: deploy/*
//
// A nil Grants grants nothing.
type Grants struct{ rules []grant }

type grant struct {
	user         *fnmatch.Pattern
	fire, listen []right
}

// right is one pattern of tags that a user may fire or listen to.
type right struct {
	*fnmatch.Pattern
	Grant
}

// Grant is the rule that allows something, and its position as file:line.
type Grant struct{ Rule, Where string }

// holds reports whether the rule applies to this user. Rules for clients, which are programs on the
// network, and for users who have logged in through a backend begin with that kind: a pattern for
// the users of this machine never matches them.
func (g grant) holds(user string) bool {
	return g.user.Match(user) && kindOf(g.user.String()) == kindOf(user)
}

// kindOf returns the part of a name before the colon: "client", or a backend; "" for a user of this
// machine.
func kindOf(name string) string {
	kind, _, found := strings.Cut(name, ":")
	if !found {
		return ""
	}
	return kind
}

// GrantError is an error in event_acl. Node is its position; nil is the setting as a whole.
type GrantError struct {
	Node *yaml.Node
	Err  error
}

// Error implements error.
func (e *GrantError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *GrantError) Unwrap() error { return e.Err }

func grantErrorf(n *yaml.Node, format string, args ...any) error {
	return &GrantError{n, fmt.Errorf(format, args...)}
}

// ParseGrants reads event_acl; n is nil if it is not set. where returns the position of a node. Its
// errors are *GrantError.
func ParseGrants(n *yaml.Node, where func(*yaml.Node) string) (*Grants, error) {
	if n == nil || n.Tag == "!!null" {
		return nil, nil
	}
	if n.Kind != yaml.MappingNode {
		return nil, grantErrorf(n, "it must map users to tags")
	}
	g := &Grants{}
	var errs []error
	for i := 0; i+1 < len(n.Content); i += 2 {
		user, rights := n.Content[i], n.Content[i+1]
		if user.Value == "" {
			errs = append(errs, grantErrorf(user, "the name of a user is empty"))
			continue
		}
		one := grant{user: fnmatch.Compile(user.Value)}
		if err := one.parse(rights, where); err != nil {
			errs = append(errs, err)
		}
		g.rules = append(g.rules, one)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return g, nil
}

func (g *grant) parse(rights *yaml.Node, where func(*yaml.Node) string) (err error) {
	if rights.Kind != yaml.MappingNode {
		if g.fire, err = g.rights("fire", rights, where); err == nil {
			g.listen, err = g.rights("listen", rights, where)
		}
		return err
	}
	for i := 0; i+1 < len(rights.Content); i += 2 {
		verb := rights.Content[i]
		list, err := g.rights(verb.Value, rights.Content[i+1], where)
		if err != nil {
			return err
		}
		switch verb.Value {
		case "fire":
			g.fire = list
		case "listen":
			g.listen = list
		default:
			return grantErrorf(verb, "%q is not a right: there are fire and listen", verb.Value)
		}
	}
	return nil
}

// rights reads the tags that may be fired or listened to.
func (g *grant) rights(verb string, n *yaml.Node, where func(*yaml.Node) string) ([]right, error) {
	nodes, err := parseTags(n)
	list := make([]right, len(nodes))
	for i, one := range nodes {
		list[i] = right{fnmatch.Compile(one.Value), Grant{Rule: "event_acl: " + g.user.String() + ": " + verb + ": " + one.Value, Where: where(one)}}
	}
	return list, err
}

// parseTags reads one pattern or a list of patterns.
func parseTags(n *yaml.Node) ([]*yaml.Node, error) {
	nodes := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		nodes = n.Content
	}
	for _, one := range nodes {
		if one.Kind != yaml.ScalarNode || one.Tag == "!!null" {
			return nil, grantErrorf(one, "a tag or a list of tags is needed here")
		}
		if err := CheckTag(one.Value); err != nil {
			return nil, grantErrorf(one, "%w", err)
		}
	}
	return nodes, nil
}

// MayFire reports whether user may fire tag, and returns the rule that allows it. Only the daemon
// may fire the events of the audit log, whatever is granted.
func (g *Grants) MayFire(user, tag string) (Grant, bool) {
	if g == nil || IsAudit(tag) {
		return Grant{}, false
	}
	for _, one := range g.rules {
		if !one.holds(user) {
			continue
		}
		for _, t := range one.fire {
			if t.Match(tag) {
				return t.Grant, true
			}
		}
	}
	return Grant{}, false
}

// Fires returns the patterns of tags that user may fire.
func (g *Grants) Fires(user string) []string {
	var list []string
	if g == nil {
		return nil
	}
	for _, one := range g.rules {
		if !one.holds(user) {
			continue
		}
		for _, t := range one.fire {
			list = append(list, t.String())
		}
	}
	return list
}

// Known reports whether user has any grant.
func (g *Grants) Known(user string) bool {
	return g != nil && slices.ContainsFunc(g.rules, func(one grant) bool {
		return one.holds(user) && len(one.fire)+len(one.listen) > 0
	})
}

// Hearing is what one user may listen to. The zero value is nothing.
type Hearing struct {
	all  bool
	tags []right
}

// HearAll is for root and the daemon's user.
var HearAll = Hearing{all: true}

// Hearing returns what user may listen to.
func (g *Grants) Hearing(user string) Hearing {
	var h Hearing
	if g == nil {
		return h
	}
	for _, one := range g.rules {
		if one.holds(user) {
			h.tags = append(h.tags, one.listen...)
		}
	}
	return h
}

// May reports whether an event with this tag may be received. Those of the audit log need a pattern
// that names them: * alone is not enough.
func (h Hearing) May(tag string) bool {
	return h.all || slices.ContainsFunc(h.tags, func(t right) bool { return t.Match(tag) && (!IsAudit(tag) || t.namesAudit()) })
}

// namesAudit reports whether the pattern explicitly names the audit log.
func (r right) namesAudit() bool { return IsAudit(r.Prefix()) }

// Limits returns the patterns to which the hearing is limited; nil means no limit.
func (h Hearing) Limits() []string {
	if h.all {
		return nil
	}
	limits := make([]string, len(h.tags))
	for i, t := range h.tags {
		limits[i] = t.String()
	}
	return limits
}

// Covers reports whether some tag that begins with prefix may be received, as far as the patterns
// show it, and returns the first rule that allows it.
func (h Hearing) Covers(prefix string) (Grant, bool) {
	if h.all {
		return Grant{Rule: "operator"}, true
	}
	i := slices.IndexFunc(h.tags, func(t right) bool {
		p := t.Prefix()
		return strings.HasPrefix(p, prefix) || p != t.String() && strings.HasPrefix(prefix, p) && (!IsAudit(prefix) || t.namesAudit())
	})
	if i < 0 {
		return Grant{}, false
	}
	return h.tags[i].Grant, true
}
