package acl

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// maxCommands limits a compound command. People write a handful of functions.
const maxCommands = 100

// Decide decides whether the question's subject may do what it asks. In doubt it denies:
// anything that is not understood or takes too long is refused.
func (r *Rules) Decide(q Question) Decision {
	if r == nil {
		r = &Rules{}
	}
	if q.Scope == Machine {
		return refusal("functions on the master's machine are asked for as a runner")
	}
	in := inside{r: r, left: maxInner}
	d := r.decide(&q, &in)
	d.Inner, d.Operator = in.names, r.standing(q.Subject).Operator
	return d
}

// decide answers for the commands of a question and those inside them.
func (r *Rules) decide(q *Question, in *inside) Decision {
	d := r.decideAsked(q)
	if d.Verdict != Allow {
		return d
	}
	return in.decide(q, d)
}

// decideAsked decides about the commands of a question without inner ones.
func (r *Rules) decideAsked(q *Question) Decision {
	s := r.standing(q.Subject)
	switch {
	case s.Kind == Nobody || s.Name == "":
		return refusal("the user is not known")
	case len(q.Commands) == 0:
		return refusal("there is nothing to run")
	case len(q.Commands) > maxCommands:
		return refusal("a compound command has %d functions, at most %d are looked at", len(q.Commands), maxCommands)
	}
	if q.Scope == Mine {
		return r.decideMine(q, &s)
	}
	for i := range q.Commands {
		if _, err := salt.ParseFunction(string(q.Commands[i].Function)); err != nil {
			return refusal("%v", err)
		}
	}
	if d, barred := r.barred(q, &s); barred {
		return d
	}
	if s.Operator {
		return Decision{Verdict: Allow, Rule: "operator", Reason: "root and the daemon's own user may do what the blacklist leaves"}
	}
	if d, closed := closed(q, &s); closed {
		return d
	}
	if q.Scope == Machine {
		return Decision{Verdict: Allow, Reason: "the rule for the runner is the permission"}
	}
	d := r.judge(q, &s)
	if d.Verdict != Allow && q.owned(&s) {
		return Decision{Verdict: Allow, Rule: ownRule, Reason: d.Reason, Own: true}
	}
	return d
}

// ownRule is the rule in decisions that allow somebody what is their own.
const ownRule = "own"

// owned reports whether people may use the commands without a rule, for what is their own.
func (q *Question) owned(s *Subject) bool {
	if !q.Own || q.Scope != Runner || s.Kind != Local && s.Kind != External {
		return false
	}
	for i := range q.Commands {
		if !q.reading(&q.Commands[i]).Own {
			return false
		}
	}
	return true
}

func refusal(format string, args ...any) Decision {
	return Decision{Reason: fmt.Sprintf(format, args...)}
}

// standing returns the subject whose rules apply: with sudo_acl, a user through sudo counts
// under their own name.
func (r *Rules) standing(s Subject) Subject {
	if s.Operator && s.Sudo != "" && r.sudo {
		s.Name, s.Operator = s.Sudo, false
	}
	return s
}

// barred checks the blacklist, which applies to functions on minions, also for operators, as in
// Salt. For users other than operators it also applies to runners. It is for users: minions are
// restricted by peer only, except for functions that would run on the master itself.
func (r *Rules) barred(q *Question, s *Subject) (Decision, bool) {
	if s.Kind != Peer && (!s.Operator || q.Scope == Minions) {
		if b, err := r.barredUser(q, s); b != nil {
			return b.refusal("the user is on the blacklist", err), true
		}
	}
	if q.Scope != Machine && (q.Scope != Minions || s.Kind == Peer) {
		return Decision{}, false
	}
	for i := range q.Commands {
		fun := string(q.Commands[i].Function)
		if b, err := find(r.blacklist.modules, fun); b != nil {
			return b.refusal(fun+" is on the blacklist", err), true
		}
	}
	return Decision{}, false
}

// barredUser checks the names of the subject.
func (r *Rules) barredUser(q *Question, s *Subject) (*barred, error) {
	names := append([]string{s.Name}, s.Unix...)
	if q.Subject.Operator && q.Subject.Sudo != "" {
		names[0] = "sudo_" + q.Subject.Sudo // as in Salt, whose users have such patterns
		if !s.Operator {
			names = append(names, s.Name) // the blacklist also applies to users with sudo under their own name
		}
	}
	for _, name := range names {
		if b, err := find(r.blacklist.users, name); b != nil {
			return b, err
		}
	}
	return nil, nil
}

func (b *barred) refusal(reason string, err error) Decision {
	if err != nil {
		reason = "the blacklist could not be asked: " + err.Error()
	}
	return Decision{Rule: b.rule, Where: b.where, Reason: reason}
}

// closed refuses what no rule can allow.
func closed(q *Question, s *Subject) (Decision, bool) {
	if s.Kind != Peer {
		return Decision{}, false
	}
	for i := range q.Commands {
		if q.Scope == Runner && q.Commands[i].Function.Module() == auditModule {
			return Decision{Reason: auditClosed, Closed: true}, true
		}
	}
	if q.Scope != Minions {
		return Decision{}, false
	}
	for i := range q.Commands {
		if publishes(q.Commands[i].Function) {
			d := refusal("%s may not be published by a minion: it would publish again", q.Commands[i].Function)
			d.Closed = true
			return d, true
		}
	}
	return Decision{}, false
}

const auditClosed = "the audit log is not for minions"

// publishes reports whether a function makes a minion send requests to others.
func publishes(f salt.Function) bool {
	return strings.HasPrefix(string(f), "publish") || f == "saltutil.cmd" || f == "saltutil.runner" || f == "saltutil.wheel"
}

// holders returns the holders whose rules apply.
func (r *Rules) holders(q *Question, s *Subject) ([]*holder, string, error) {
	switch s.Kind {
	case Local:
		h, err := r.local.of(s, false)
		return h, "publisher_acl", err
	case External:
		h, err := r.external[s.Backend].of(s, r.permissive)
		return h, "external_auth: " + s.Backend, err
	case Peer:
		switch q.Scope {
		case Runner, Wheel:
			h, err := r.peerRun.of(s, false)
			return h, "peer_run", err
		case Mine:
			h, err := r.mineGet.of(s, false)
			return h, "mine_get", err
		}
		h, err := r.peer.of(s, false)
		return h, "peer", err
	}
	return nil, "", nil
}

// judge looks for a rule for each command.
func (r *Rules) judge(q *Question, s *Subject) Decision {
	holders, setting, err := r.holders(q, s)
	if err != nil {
		return refusal("%s could not be asked: %v", setting, err)
	}
	if len(holders) == 0 {
		return refusal("%s has no rule for %s", setting, s.Name)
	}
	j := judge{q: q, covers: map[*target.Target]coverage{}, words: pillarWords(q.Target), effort: target.DefaultEffort}
	if len(j.words) > 0 {
		if j.keys, err = r.granted(s); err != nil {
			return refusal("%s could not be asked: %v", setting, err)
		}
	}
	var used []*rule
	for i := range q.Commands {
		j.reading = q.reading(&q.Commands[i])
		allowed, err := j.find(holders, &q.Commands[i])
		if err != nil {
			return refusal("the rules could not be asked: %v", err)
		}
		if allowed == nil {
			return j.refusal(&q.Commands[i], setting, s.Name)
		}
		if !slices.Contains(used, allowed) {
			used = append(used, allowed)
		}
	}
	return permission(used)
}

func permission(used []*rule) Decision {
	texts := make([]string, len(used))
	places := make([]string, len(used))
	var within []*target.Target
	for i, r := range used {
		texts[i], places[i] = r.text, r.where
		if r.target != nil && !slices.Contains(within, r.target) {
			within = append(within, r.target)
		}
	}
	return Decision{Verdict: Allow, Rule: strings.Join(texts, "; "), Where: strings.Join(slices.Compact(places), ", "), Reason: "allowed by a rule", Within: within}
}

// judge is one decision under way.
type judge struct {
	q      *Question
	covers map[*target.Target]coverage // by the target of a rule
	effort target.Effort               // remaining for proofs
	words  []target.PillarWord         // of the requested target
	keys   [][]string                  // of pillar, that targets of the subject may use

	reading Reading // of the present command

	near nearness // how far the nearest rule matches the command
	rule *rule    // the nearest rule
	why  string   // why it did not match
	out  []salt.MinionID
}

// coverage is whether a target covers all requested minions.
type coverage struct {
	all bool
	why string
	out []salt.MinionID // some that it does not cover
}

// nearness is how far a rule matches a command.
type nearness int

const (
	nowhere   nearness = iota
	function           // it names the function, but not these arguments
	arguments          // it accepts them too, but not all of the minions
)

// find returns the first rule that allows the command, or nil.
func (j *judge) find(holders []*holder, c *salt.Command) (*rule, error) {
	j.near, j.rule, j.why, j.out = nowhere, nil, "", nil
	for _, h := range holders {
		for i := range h.rules {
			ok, err := j.allows(&h.rules[i], c)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", h.rules[i].text, err)
			}
			if ok {
				return &h.rules[i], nil
			}
		}
	}
	return nil, nil
}

// allows makes the cheapest check first: the target may match every minion.
func (j *judge) allows(r *rule, c *salt.Command) (bool, error) {
	if ok, err := r.names(j.q.Scope, c.Function); !ok || err != nil {
		return false, err
	}
	if !r.grants(j.reading.Naming, c.Function) {
		j.nearest(function, r, coverage{why: unnamed})
		return false, nil
	}
	if why, err := acceptable(r.accepted, c, j.reading.Hidden); why != "" || err != nil {
		j.nearest(function, r, coverage{why: why})
		return false, err
	}
	if len(j.words) > 0 && !mayAsk(j.words, j.keys, r.target) {
		j.nearest(arguments, r, coverage{why: errPillar})
		return false, nil
	}
	if r.target == nil {
		return true, nil
	}
	cov, known := j.covers[r.target]
	if !known {
		var err error
		if cov, err = j.cover(r.target); err != nil {
			return false, err
		}
		j.covers[r.target] = cov
	}
	if !cov.all {
		j.nearest(arguments, r, cov)
	}
	return cov.all, nil
}

// acceptable returns why no condition accepts the command; with several, the reason of the
// last.
func acceptable(conditions []condition, c *salt.Command, hidden bool) (why string, err error) {
	if hidden && len(conditions) == 0 {
		return hiddenWhy, nil
	}
	for i := range conditions {
		if hidden && !conditions[i].runs {
			why = hiddenWhy
			continue
		}
		if why, err = conditions[i].accepts(c); why == "" || err != nil {
			return why, err
		}
	}
	return why, nil
}

// nearest records a rule that matches further than those before.
func (j *judge) nearest(near nearness, r *rule, cov coverage) {
	if near > j.near {
		j.near, j.rule, j.why, j.out = near, r, cov.why, cov.out
	}
}

// cover decides whether a target covers every requested minion, by the text of the two targets,
// so that the answer does not depend on minions outside the subject's rules. If none is
// requested, it must cover some minion: a rule for no minion allows nothing.
func (j *judge) cover(t *target.Target) (coverage, error) {
	if j.q.Target != nil {
		return j.within(t)
	}
	if len(j.q.Minions) == 0 {
		for _, id := range j.ids() {
			if ok, err := j.matches(t, id); ok || err != nil {
				return coverage{all: ok}, err
			}
		}
		return coverage{why: "no minion matches its target"}, nil
	}
	var out []salt.MinionID
	for _, id := range j.q.Minions {
		ok, err := j.matches(t, id)
		if err != nil {
			return coverage{}, err
		}
		if !ok {
			if out = append(out, id); len(out) == maxOutside {
				break
			}
		}
	}
	return coverage{all: len(out) == 0, why: notCovered, out: out}, nil
}

const notCovered = "its target does not cover all of the minions"

// within reports whether the requested target matches only what t matches. Listed ids are
// checked one by one, by what is known about them. An id without a minion is checked by the id
// alone, so that nobody learns which ids exist.
func (j *judge) within(t *target.Target) (coverage, error) {
	known := map[salt.MinionID]bool{}
	for _, id := range j.ids() {
		known[id] = true
	}
	var failed error
	var out []salt.MinionID
	all := j.q.Target.Within(t, func(id salt.MinionID) bool {
		ok := t.MeansByID(id)
		if !ok && known[id] {
			matches, err := j.matches(t, id)
			failed = cmp.Or(failed, err)
			ok = matches && err == nil
		}
		if !ok && len(out) < maxOutside {
			out = append(out, id)
		}
		return ok
	}, &j.effort)
	if all || failed != nil {
		return coverage{all: all}, failed
	}
	return coverage{why: notCovered + " that the one asked for can mean; 'TARGET and ( " + t.String() + " )' can mean no others", out: out}, nil
}

func (j *judge) ids() []salt.MinionID {
	if j.q.Fleet == nil {
		return nil
	}
	return j.q.Fleet.IDs()
}

// matches reports whether the minion certainly matches. One with unknown grains or pillar does
// not: "not G@role:db" would be true for it.
func (j *judge) matches(t *target.Target, id salt.MinionID) (bool, error) {
	facts := target.Facts{ID: id}
	if j.q.Fleet != nil {
		facts = j.q.Fleet.Facts(id)
	}
	if facts.ID != id || t.NeedsGrains() && facts.Grains == nil || t.NeedsPillar() && facts.Pillar == nil {
		return false, nil
	}
	return t.Match(facts)
}

// refusal names the nearest rule.
func (j *judge) refusal(c *salt.Command, setting, who string) Decision {
	if j.rule == nil {
		return refusal("no rule of %s allows %s to %s", setting, cmp.Or(string(c.Function), "nothing"), who)
	}
	d := refusal("the rule nearest to %s, %s, does not fit: %s", c.Function, j.rule.text, j.why)
	d.Where, d.Outside, d.Nearest = j.rule.where, j.out, j.rule.target
	return d
}
