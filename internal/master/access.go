package master

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/auth"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/eauth"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// access is what the configuration says about who may do what. It is replaced as
// a whole, never changed.
type access struct {
	config     acl.Config
	rules      *acl.Rules
	nodegroups map[string]any
	verify     bool // the users of publisher_acl must exist
	sudo       bool // who came by sudo is held to his own rules
}

// newAccess compiles the rules. An error names every mistake with its place.
func newAccess(cfg *config.Master) (*access, error) {
	groups, _ := cfg.Nodegroups.Value().(map[string]any)
	settings := acl.Config{
		PublisherACL:          setting("publisher_acl", cfg.PublisherACL),
		PublisherACLBlacklist: setting("publisher_acl_blacklist", cfg.PublisherACLBlacklist),
		ExternalAuth:          setting("external_auth", cfg.ExternalAuth),
		Peer:                  setting("peer", cfg.Peer),
		PeerRun:               setting("peer_run", cfg.PeerRun),
		MineGet:               setting("mine_get", cfg.MineGet),
		PermissiveACL:         cfg.PermissiveACL,
		SudoACL:               cfg.SudoACL,
		Nodegroups:            groups,
		Runners:               functionsOf(runner.Table(&runner.Host{})),
		Wheel:                 functionsOf(runner.Wheel(&runner.Host{})),
	}
	for _, p := range runners(cfg, slog.New(slog.DiscardHandler)).Programs() {
		settings.Added = append(settings.Added, p.Name)
	}
	rules, err := acl.Parse(settings)
	if err != nil {
		return nil, located(err)
	}
	return &access{config: settings, rules: rules, nodegroups: groups, verify: cfg.ClientACLVerify, sudo: cfg.SudoACL}, nil
}

// located makes the mistakes that package acl has found those of a configuration.
func located(err error) error {
	var list []error
	for _, one := range config.Mistakes(err) {
		var e *acl.Error
		if errors.As(one, &e) {
			one = &config.Error{File: e.File, Line: e.Line, Column: e.Column, Key: e.Key, Err: e.Err}
		}
		list = append(list, one)
	}
	return errors.Join(list...)
}

func functionsOf(t function.Table) []salt.Function {
	names := t.Functions("")
	out := make([]salt.Function, len(names))
	for i, name := range names {
		out[i] = salt.Function(name)
	}
	return out
}

// with returns the rules that hold for somebody whose token keeps external_auth
// as it was, in YAML.
func (a *access) with(external string) (*acl.Rules, error) {
	setting, err := acl.ParseSetting("external_auth", external, "token")
	if err != nil {
		return nil, err
	}
	kept := a.config
	kept.ExternalAuth = setting
	return acl.Parse(kept)
}

func setting(key string, l config.Located) acl.Setting {
	return acl.Setting{Key: key, Node: l.Node, File: l.FileOf}
}

// openAccess reads the rules at the start: with a mistake in them the master
// does not serve.
func (m *Master) openAccess() error {
	a, err := newAccess(m.cfg)
	if err != nil {
		return err
	}
	m.setAccess(a)
	return nil
}

// setAccess puts rules in force, and tells what of them can have no effect.
func (m *Master) setAccess(a *access) {
	m.access.Store(a)
	for _, w := range a.rules.Lint() {
		if w.Dead {
			m.log.Warn("an access rule has no effect", "where", w.Where, "key", w.Key, "reason", w.Text)
		}
	}
}

// nodegroups are those of the configuration in force, as package target takes
// them.
func (m *Master) nodegroups() map[string]any { return m.access.Load().nodegroups }

// asker is who wants something of the master, as verified.
type asker struct {
	name     string // for people: fred
	subject  acl.Subject
	identity bus.Identity

	login   *eauth.Grant // of a user of external_auth
	rules   *acl.Rules   // that hold for him instead of those in force; nil for most
	refused error        // the login does not hold any more
}

// asker is who asks on a connection: the user who has logged in on it, or else
// the local user.
func (m *Master) asker(ctx context.Context, i bus.Identity) asker {
	if who := m.external(ctx, i); who != nil {
		return *who
	}
	return m.localAsker(ctx, i)
}

// localAsker is the user whom the kernel names, whoever has logged in.
func (m *Master) localAsker(ctx context.Context, i bus.Identity) asker {
	uid := i.UID()
	if uid < 0 {
		return asker{name: i.String(), identity: i} // no user: no rights
	}
	a := asker{identity: i, subject: m.local(ctx, m.users.Lookup(ctx, uid), i.Sudo)}
	a.name = a.subject.Name
	if a.subject.Sudo != "" {
		a.name = sudoPrefix + a.subject.Sudo
	}
	return a
}

// sudoPrefix stands before the name of somebody who came by sudo, as in Salt.
const sudoPrefix = "sudo_"

// local is a user of this machine, who came by sudo where that is not "". The
// groups of an operator are not asked for unless they count: a slow directory must
// not keep root waiting.
func (m *Master) local(ctx context.Context, u auth.User, sudo string) acl.Subject {
	s := acl.Subject{Kind: acl.Local, Name: string(u.Name), Operator: u.Operator}
	switch {
	case !s.Operator:
		s.Groups = m.users.Groups(ctx, u.Name)
	case sudo != "":
		s.Sudo = sudo
		if m.access.Load().sudo {
			s.Groups = m.users.Groups(ctx, salt.UserName(sudo))
		}
	}
	return s
}

// started says whether the asker is the one whom a job names as its user. The
// name of somebody who came by sudo could be that of an account, too.
func (a asker) started(k *dispatch.Job) bool {
	return a.refused == nil && a.name != "" && a.name == k.User && a.subject.Backend == k.Backend &&
		(a.subject.Operator || !strings.HasPrefix(k.User, sudoPrefix))
}

// permit decides whether who may do what the question says. A refusal is told to
// the asker, to the log and to the audit trail: nothing is refused silently. What
// is allowed is an entry that the caller must write to the trail before it takes
// effect, see book. The target is as it was written.
func (m *Master) permit(who asker, q acl.Question, tgt, kind string) (audit.Entry, error) {
	e, _, err := m.decide(who, q, tgt, kind)
	return e, err
}

// decide is permit with the decision, which has the targets that the rules are for,
// and with what the commands may make others do.
func (m *Master) decide(who asker, q acl.Question, tgt, kind string) (audit.Entry, granted, error) {
	if who.refused != nil {
		m.trail.Note(entry(who, q, acl.Decision{Reason: "the login has ended"}, tgt, kind))
		return audit.Entry{}, granted{}, who.refused
	}
	q.Subject = who.subject
	d := m.verdict(m.rulesOf(who), q)
	e := entry(who, q, d, tgt, kind)
	log := m.log.With("user", who.name, "fun", functions(q), "target", tgt, "rule", d.Rule, "where", d.Where)
	if d.Verdict == acl.Allow {
		log.Debug("permitted")
		return e, granted{d.Within, m.tables.reach(q.Scope, q.Commands, d), own(d)}, nil
	}
	if m.trail.Note(e) {
		log.Warn("refused", "reason", d.Reason, "outside", d.Outside)
	}
	return audit.Entry{}, granted{}, refusal(who, q, d)
}

// granted is what a decision has allowed: for the minions that all of within mean.
type granted struct {
	within []*target.Target
	reach  job.Reach
	own    string // why it is for what is the asker's own alone; "" for all
}

func own(d acl.Decision) string {
	if !d.Own {
		return ""
	}
	return d.Reason
}

// errNoRule is for somebody whom no rule is for, and who was allowed something all the
// same.
var errNoRule = errors.New("no rule is for who asks")

// rulesOf are the rules that hold for somebody.
func (m *Master) rulesOf(who asker) *acl.Rules {
	if who.rules != nil {
		return who.rules
	}
	return m.access.Load().rules
}

// mayTarget refuses a target that a runner takes where it looks at pillar and no
// rule grants that to who asked for the runner.
func (m *Master) mayTarget(who asker, t *target.Target) error {
	why := m.rulesOf(who).MayTarget(who.subject, t)
	if why == "" {
		return nil
	}
	return rpc.Errorf(rpc.Denied, "Authorization error occurred. %s may not use this target: %s", who.name, why).
		WithHint("root may do this; an operator grants it in the master's configuration, by '@target'")
}

// refusal is what the asker is told.
func refusal(who asker, q acl.Question, d acl.Decision) error {
	what := functions(q)
	if who.subject.Kind == acl.Peer {
		return refusePeer(who, q, what, d)
	}
	return rpc.Errorf(rpc.Denied, "Authorization error occurred. User %s may not use %s: %s", who.name, what, d.Reason).
		WithHint("root may do this; an operator grants it in the master's configuration")
}

// refusePeer tells a minion that it may not, and where an operator would let it.
func refusePeer(who asker, q acl.Question, what string, d acl.Decision) error {
	setting := map[acl.Scope]string{acl.Minions: "peer", acl.Runner: "peer_run", acl.Mine: "mine_get"}[q.Scope]
	return rpc.Errorf(rpc.Denied, "Authorization error occurred. Minion %s may not use %s through the master: %s", who.subject.Name, what, d.Reason).
		WithHint("an operator grants it in the master's configuration, under %s", setting)
}

// minion is the id of a minion that asks, "" for a user.
func (a asker) minion() string {
	if a.subject.Kind == acl.Peer {
		return a.subject.Name
	}
	return ""
}

// functions names what a question is about.
func functions(q acl.Question) string {
	list := ""
	for i, c := range q.Commands {
		if i > 0 {
			list += ","
		}
		list += string(c.Function)
	}
	return map[acl.Scope]string{acl.Runner: "@runner ", acl.Wheel: "@wheel ", acl.Mine: "@mine "}[q.Scope] + list
}

// permitPublish decides about a job by what its target says, and then looks which
// minions that is, among those that the rules are for: neither the answer nor the time
// that it takes depends on others. That the target could not be understood is told to
// those only who may run the functions somewhere; where no rule is for who asks it is not even read.
func (m *Master) permitPublish(ctx context.Context, who asker, q protocol.Publish) (dispatch.Permission, error) {
	commands := q.Commands
	if q.Preview && len(commands) == 0 {
		commands = []job.Command{{Function: "test.ping"}} // it tells as much
	}
	if len(commands) == 0 {
		return dispatch.Permission{}, rpc.Errorf(rpc.Usage, "there is no function to run")
	}
	if (q.ReturnConfig != "" || q.ReturnKwargs.V != nil) && !who.subject.Operator {
		return dispatch.Permission{}, rpc.Errorf(rpc.Denied, "Authorization error occurred. User %s may not set the returners of minions: they write files and reach other machines as root does", who.name).
			WithHint("root may; else leave --return_config and --return_kwargs out")
	}
	question := acl.Question{Commands: aclCommands(commands)}
	if !m.rulesOf(who).Any(acl.Question{Subject: who.subject}) {
		_, err := m.permit(who, question, q.Target, q.TargetType)
		return dispatch.Permission{}, cmp.Or(err, errNoRule)
	}
	if q.ReturnTag != "" { // the minions fire what they return, as by that function
		question.Beside = []acl.Inner{{Command: acl.Command(module.Sending(q.ReturnTag))}}
	}
	t, mistake := m.fleet.ParseTarget(ctx, who.identity.String(), q)
	end, err := m.fleet.TakeTurn(ctx, who.identity.String(), t)
	if err != nil {
		return dispatch.Permission{}, err
	}
	defer end()
	question.Target = t
	e, may, err := m.decide(who, question, q.Target, q.TargetType)
	if err != nil {
		return dispatch.Permission{}, err
	}
	var start job.Start
	if mistake == nil {
		start, mistake = m.fleet.Resolve(t, may.within)
	}
	if mistake != nil {
		m.trail.Note(e)
		return dispatch.Permission{}, mistake
	}
	e.Minions, e.Count = start.Minions, len(start.Minions)
	return dispatch.Permission{Start: start, Target: t, Entry: e, Reach: may.reach}, nil
}

func aclCommands(list []job.Command) []acl.Command {
	out := make([]acl.Command, len(list))
	for i, c := range list {
		out[i] = acl.Command{Function: c.Function, Args: c.Args, Kwargs: c.Kwargs}
	}
	return out
}

// explain answers what permit would say. Operators learn which minions the target
// means by now, and which of them the nearest rule does not cover; others learn only
// what they may do themselves. own is why who asks may ask about themselves alone, ""
// where they may ask about others.
func (m *Master) explain(ctx context.Context, who asker, e runner.Explain, own string) (runner.Explained, error) {
	subject, rules, err := m.subjectOf(ctx, who, e, own)
	if err != nil {
		return runner.Explained{}, err
	}
	if e.Kind != "mine" {
		if err := parseWords(e.Commands); err != nil { // as a command line does, and the master for a minion
			return runner.Explained{}, err
		}
	}
	q := acl.Question{Commands: aclCommands(e.Commands), Subject: subject}
	var mistake error
	switch e.Kind {
	case "runner":
		q.Scope = acl.Runner
	case "wheel":
		q.Scope = acl.Wheel
	case "mine":
		q.Scope = acl.Mine
	default:
		var end func()
		if q.Target, end, mistake = m.explainedTarget(ctx, who, e); end != nil {
			defer end()
		}
		if mistake != nil && own == "" {
			return runner.Explained{}, mistake
		}
	}
	d := m.verdict(rules, q)
	if mistake != nil && d.Verdict == acl.Allow {
		return runner.Explained{}, mistake // who may nothing is not told how a target is read
	}
	out := runner.Explained{Allowed: d.Verdict == acl.Allow, Rule: d.Rule, Where: d.Where, Reason: d.Reason, Outside: d.Outside, Inner: d.Inner}
	if q.Target == nil || !who.subject.Operator && !(out.Allowed && who.is(q.Subject)) {
		return out, nil
	}
	start, err := m.fleet.Resolve(q.Target, d.Within)
	out.Minions = start.Minions
	if !out.Allowed && d.Nearest != nil {
		out.Outside = append(out.Outside, m.outside(start.Minions, d.Nearest)...)
	}
	return out, err
}

// explainedTarget reads the target of a question, and waits for the turn to look at it.
func (m *Master) explainedTarget(ctx context.Context, who asker, e runner.Explain) (t *target.Target, end func(), err error) {
	if t, err = m.fleet.ParseTarget(ctx, who.identity.String(), protocol.Publish{Target: e.Target, TargetType: e.TargetType}); err == nil {
		err = m.mayTarget(who, t)
	}
	if err != nil {
		return nil, nil, err
	}
	end, err = m.fleet.TakeTurn(ctx, who.identity.String(), t)
	return t, end, err
}

// subjectOf is whom a question is about, with the rules that hold for them.
func (m *Master) subjectOf(ctx context.Context, who asker, e runner.Explain, own string) (acl.Subject, *acl.Rules, error) {
	rules := m.access.Load().rules
	switch self := e.Minion == "" && e.Groups == nil && (e.User == "" && e.Backend == "" || e.User == who.name && e.Backend == who.subject.Backend); {
	case e.User == "" && e.Minion == "" && who.subject.Operator:
		return acl.Subject{}, nil, salt.WithHint(errors.New("nobody is asked for"), "name a user= or a minion=")
	case self:
		return who.subject, m.rulesOf(who), nil
	case own != "":
		q := acl.Question{Scope: acl.Runner, Commands: []acl.Command{{Function: "acl.explain"}}}
		d := acl.Decision{Reason: "without a rule for it one may ask about oneself alone: " + own}
		m.trail.Note(entry(who, q, d, "", ""))
		return acl.Subject{}, nil, refusal(who, q, d)
	}
	return m.explained(ctx, e), rules, nil
}

// outside are those of the minions that a target does not mean, ten at most.
func (m *Master) outside(ids []salt.MinionID, t *target.Target) []salt.MinionID {
	var out []salt.MinionID
	for _, id := range ids {
		if ok, err := t.Match(m.fleet.Facts(id)); (!ok || err != nil) && len(out) < maxOutside {
			out = append(out, id)
		}
	}
	return out
}

// maxOutside is how many ids somebody reads.
const maxOutside = 10

// is tells whether the asker is the subject.
func (a asker) is(s acl.Subject) bool {
	return a.subject.Kind == s.Kind && a.subject.Name == s.Name && a.subject.Backend == s.Backend
}

// explained is the subject that a question about somebody means.
func (m *Master) explained(ctx context.Context, e runner.Explain) acl.Subject {
	switch {
	case e.Minion != "":
		return acl.Subject{Kind: acl.Peer, Name: e.Minion}
	case e.Backend != "":
		return acl.Subject{Kind: acl.External, Name: e.User, Backend: e.Backend, Groups: e.Groups}
	}
	s := acl.Subject{Kind: acl.Local, Name: e.User, Groups: e.Groups}
	for _, uid := range []int{0, os.Geteuid()} {
		s.Operator = s.Operator || string(m.users.Lookup(ctx, uid).Name) == e.User
	}
	if name, err := salt.ParseUserName(e.User); err == nil && !s.Operator && e.Groups == nil {
		s.Groups = m.users.Groups(ctx, name)
	}
	return s
}

// lint reports what is strange about the rules in force, and why those that were
// written since are not.
func (m *Master) lint(ctx context.Context) []runner.Finding {
	return append(m.taken.findings(), m.access.Load().lint(ctx, &m.users)...)
}

func (a *access) lint(ctx context.Context, users *auth.Users) []runner.Finding {
	var list []runner.Finding
	for _, w := range a.rules.Lint() {
		list = append(list, runner.Finding{Where: w.Where, Column: w.Column, Key: w.Key, Text: w.Text, Dead: w.Dead})
	}
	if !a.verify {
		return list
	}
	for _, name := range a.rules.LocalUsers() {
		if n, err := salt.ParseUserName(name); err != nil || !users.Exists(ctx, n) {
			list = append(list, runner.Finding{Key: "publisher_acl: " + name, Text: "this machine has no user of this name", Dead: true})
		}
	}
	return list
}
