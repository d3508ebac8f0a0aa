package authz

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/auth"
	"github.com/brinebus/brine/internal/authz/command"
	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/test/bustest"
)

// machines are the minions of these tests.
type machines []salt.MinionID

func (m machines) IDs() []salt.MinionID              { return m }
func (machines) Facts(id salt.MinionID) target.Facts { return target.Facts{ID: id} }
func (machines) read(expr, kind string) (*target.Target, error) {
	k, err := target.ParseKind(kind)
	if err != nil {
		return nil, err
	}
	return target.Parse(expr, k, target.Options{})
}
func (m machines) ReadInner(expr, kind string) (*target.Target, error) { return m.read(expr, kind) }

func (m machines) ParseTarget(_ context.Context, _ string, q protocol.Publish) (*target.Target, error) {
	return m.read(q.Target, q.TargetType)
}

func (machines) TakeTurn(context.Context, string, *target.Target) (func(), error) {
	return func() {}, nil
}

func (m machines) Resolve(t *target.Target, within []*target.Target) (start job.Start, err error) {
	for _, id := range m {
		meant := true
		for _, one := range append(slices.Clone(within), t) {
			ok, err := one.Match(m.Facts(id))
			if err != nil {
				return start, err
			}
			meant = meant && ok
		}
		if meant {
			start.Minions = append(start.Minions, id)
		}
	}
	return start, nil
}

// settings are the rules of these tests, by their settings.
var settings = map[string]string{
	"publisher_acl": `"4001": [{web*: [test.ping]}, {'@runner': [manage.up]}]`,
	"event_acl":     `"4001": {fire: '*'}`,
	"peer":          `web1: [{web2: test.ping}]`,
}

// setting reads one of the settings.
func setting(t *testing.T, key string) acl.Setting {
	t.Helper()
	s, err := acl.ParseSetting(key, settings[key], "master")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Uids without an account on any machine: rules name them by number.
const granted, other = "4001", "4002"

// authorizer makes an Authorizer with these rules, an audit log in a real store, and two
// minions.
func authorizer(t *testing.T, o Options) *Authorizer {
	t.Helper()
	dir := t.TempDir()
	o.Users, o.Tables, o.Log = new(auth.Users), command.New(nil), bustest.Log(t)
	r, err := ParseRules(acl.Config{PublisherACL: setting(t, "publisher_acl"), Peer: setting(t, "peer"), Runners: o.Tables.Runners(), Wheel: o.Tables.Wheel()}, true)
	if err != nil {
		t.Fatal(err)
	}
	a := New(o, r)
	a.Fleet = machines{"db1", "web1", "web2"}
	a.Events = eventacl.New(func(string, any) {}, o.Log)
	g, err := event.ParseGrants(setting(t, "event_acl").Node, func(*yaml.Node) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	a.Events.Set(g)
	bus := bustest.StartStore(t)
	l := audit.Options{HeadFile: filepath.Join(dir, "head"), KeyFile: filepath.Join(dir, "key"), Log: o.Log}
	if l.Queue, err = journal.OpenQueue(t.Context(), bus.Conn(), "AUDIT", nil); err != nil {
		t.Fatal(err)
	}
	if a.Audit, err = audit.Open(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Audit.Close)
	return a
}

func user(uid string) bus.Identity {
	return bus.Identity{Role: bus.RoleUser, Name: uid, Nonce: "n" + uid}
}

func ping(tgt string) protocol.Publish {
	return protocol.Publish{Target: tgt, TargetType: string(target.Glob), Commands: []job.Command{{Function: "test.ping"}}}
}

// A principal with a rule may do what it allows and no more, and all others may do nothing,
// whoever they claim to be.
func TestRulesAllowOnlyTheirPrincipals(t *testing.T) {
	a := authorizer(t, Options{})
	ctx := t.Context()
	root, fred := a.Principal(ctx, user("0")), a.Principal(ctx, user(granted))
	nobodies := map[string]Principal{
		"the zero value":          {},
		"a user without a rule":   a.Principal(ctx, user(other)),
		"a user without a number": a.Principal(ctx, user("root")),
		"a client":                a.Principal(ctx, bus.Identity{Role: bus.RoleClient, Name: granted, Key: "k", Nonce: "n"}),
		"a guest":                 a.Principal(ctx, bus.Identity{Role: bus.RoleGuest, Name: granted, Nonce: "n"}),
		"an unaccepted key":       a.Peer(bus.Identity{Role: bus.RoleUnaccepted, Name: "web1", Key: "k", Nonce: "n"}),
		"a minion without a rule": a.Peer(bus.Identity{Role: bus.RoleMinion, Name: "web2", Key: "k", Nonce: "n"}),
		"a user as a minion":      a.Peer(user("web1")),
		"who has logged out":      {name: "fred", subject: fred.subject, refused: errors.New("it has ended")},
	}
	publish := func(who Principal, q protocol.Publish) error { return a.Publish(ctx, who, q).Err() }
	run := func(who Principal, f salt.Function) error {
		return a.Run(who, job.Command{Function: f}, false, false).Err()
	}
	fire := func(who Principal, tag string) error {
		_, d := a.Send(ctx, who, tag)
		return d.Err()
	}
	shell := ping("web1")
	shell.Commands = []job.Command{{Function: "cmd.run", Args: []any{"id"}}}
	returner := ping("web1")
	returner.ReturnConfig = "elsewhere"
	for name, err := range map[string]error{
		"root, cmd.run": publish(root, shell), "root, a returner's settings": publish(root, returner), "root, keys": a.Run(root, job.Command{Function: "key.list_all"}, true, false).Err(),
		"fred, test.ping": publish(fred, ping("web1")), "fred, manage.up": run(fred, "manage.up"),
		"web1, test.ping of web2": publish(a.Peer(bus.Identity{Role: bus.RoleMinion, Name: "web1", Key: "k"}), ping("web2")),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	denied := map[string]error{
		"fred, a function beside his": publish(fred, shell), "fred, his function and another": publish(fred, protocol.Publish{Target: "web1", TargetType: "glob", Commands: append(ping("").Commands, shell.Commands...)}),
		"fred, minions beside his": publish(fred, ping("db1")), "fred, all minions": publish(fred, ping("*")), "fred, a returner's settings": publish(fred, returner), "fred, a runner beside his": run(fred, "jobs.list_jobs"),
		"fred, keys":                a.Run(fred, job.Command{Function: "key.list_all"}, true, false).Err(),
		"web1, a minion beside its": publish(a.Peer(bus.Identity{Role: bus.RoleMinion, Name: "web1", Key: "k"}), ping("db1")),
		"no function at all":        publish(root, protocol.Publish{Target: "*", TargetType: "glob"}),
	}
	for name, who := range nobodies {
		denied[name+", test.ping"] = publish(who, ping("web1"))
		denied[name+", manage.up"] = run(who, "manage.up")
		tag := "some/tag"
		if who.Minion() != "" {
			tag = "salt/minion/web1/start" // tags of another minion are refused, all others are its own
		}
		denied[name+", an event"] = fire(who, tag)
		denied[name+", a job of somebody"] = a.Follow(ctx, who, "20260102030405060708", false).Err()
	}
	if err := fire(fred, "some/tag"); err != nil {
		t.Errorf("fred, an event: %v", err)
	}
	denied["fred, an event of the master"] = fire(fred, "salt/auth")
	for name, err := range denied {
		if err == nil {
			t.Errorf("%s is allowed", name)
		}
	}
	if p := a.Publish(ctx, fred, ping("web*")); p.Err() != nil || !slices.Equal(p.Start().Minions, []salt.MinionID{"web1", "web2"}) {
		t.Errorf("fred's web* means %v, %v", p.Start().Minions, p.Err())
	}
}

// TestTheZeroValuesRefuse: without a decision nothing is allowed.
func TestTheZeroValuesRefuse(t *testing.T) {
	if new(Permission).Err() == nil {
		t.Error("a permission that nobody has given allows something")
	}
	if new(Permission).Only([]salt.MinionID{"web1"}).Err() == nil {
		t.Error("a part of no permission allows something")
	}
	if new(Principal).Operator() || new(Principal).Started("", "") {
		t.Error("nobody is an operator, or has started what nobody started")
	}
}

// TestChecksOfRequests: checks for which only the sender matters.
func TestChecksOfRequests(t *testing.T) {
	off, on := authorizer(t, Options{}), authorizer(t, Options{FileRecv: true, KeyRevoke: true})
	minion := bus.Identity{Role: bus.RoleMinion, Name: "web1", Key: "k", Nonce: "n"}
	for _, c := range []struct {
		a     *Authorizer
		from  bus.Identity
		check bus.Check
		want  bool
	}{
		{off, user("0"), bus.Operator, true},
		{off, user(granted), bus.Operator, false},
		{off, minion, bus.Operator, false},
		{off, bus.Identity{Role: bus.RoleClient, Name: "0", Key: "k"}, bus.Operator, false},
		{off, minion, bus.FileRecv, false},
		{on, minion, bus.FileRecv, true},
		{off, minion, bus.KeyRevoke, false},
		{on, minion, bus.KeyRevoke, true},
		{on, user("0"), bus.Own, false}, // another check decides
		{on, user("0"), bus.Published, false},
		{on, user("0"), "", false},
		{on, user("0"), "anything", false},
	} {
		got := c.a.Authorize(t.Context(), &rpc.Request{From: c.from}, c.check).Err() == nil
		if got != c.want {
			t.Errorf("%s, %q: allowed %v, want %v", c.from, c.check, got, c.want)
		}
	}
}

// TestWhoStartedAJob: the name in a job does not identify a user sufficiently.
func TestWhoStartedAJob(t *testing.T) {
	fred := Principal{name: "fred", subject: acl.Subject{Kind: acl.Local, Name: "fred"}}
	ended, ldap, sudo, root := fred, fred, fred, fred
	ended.refused = errors.New("it has ended")
	ldap.subject.Backend = "ldap"
	sudo.name, sudo.subject.Name = "sudo_fred", "sudo_fred" // an account with this name
	root.name, root.subject = "sudo_fred", acl.Subject{Kind: acl.Local, Name: "root", Operator: true, Sudo: "fred"}
	for name, c := range map[string]struct {
		who           Principal
		user, backend string
		want          bool
	}{
		"themselves":             {fred, "fred", "", true},
		"another":                {fred, "ada", "", false},
		"nobody":                 {Principal{}, "", "", false},
		"a login of that name":   {ldap, "fred", "", false},
		"the login":              {ldap, "fred", "ldap", true},
		"another login":          {ldap, "fred", "pam", false},
		"a login that has ended": {ended, "fred", "", false},
		"an account of the name": {sudo, "sudo_fred", "", false},
		"by sudo":                {root, "sudo_fred", "", true},
	} {
		if got := c.who.Started(c.user, c.backend); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestClusterCommands: what changes the members of a cluster, what they lead or what they store is only for
// those whose rule has its name, and what tells about them only for those with a rule.
func TestClusterCommands(t *testing.T) {
	a := authorizer(t, Options{})
	read := func(key, text string) acl.Setting {
		s, err := acl.ParseSetting(key, text, "master")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const rules = `
"4001": ['@runner', '@wheel', '@cluster', {'@runner': [.*, 'cluster.*', 'cluster\..*', 'cluster.[a-z]*', 'cluster.step_down|cluster.remove.*']}, {'@cluster': [.*, 's*', 'r*', '[bl].*']}, {'*': ['cluster.*']}]
"4003": [{'@runner': [%s]}]
`
	type caller struct {
		principal Principal
		words     string // of the refusal
	}
	nobodies := map[string]caller{
		"a user without a rule":   {a.Principal(t.Context(), user(other)), "publisher_acl has no rule for 4002"},
		"a guest":                 {a.Principal(t.Context(), bus.Identity{Role: bus.RoleGuest, Name: granted, Nonce: "n"}), "the user is not known"},
		"a minion without a rule": {a.Peer(bus.Identity{Role: bus.RoleMinion, Name: "db1", Key: "k", Nonce: "n"}), "peer_run has no rule for db1"},
		"an unaccepted key":       {a.Peer(bus.Identity{Role: bus.RoleUnaccepted, Name: "web1", Key: "k", Nonce: "n"}), "the user is not known"},
	}
	const byName = "does not fit: such a function is granted only by a rule that names it, and by no pattern"
	patterns := map[string]caller{
		"a user with patterns":   {a.Principal(t.Context(), user(granted)), "publisher_acl: 4001: @runner, " + byName},
		"a minion with patterns": {a.Peer(bus.Identity{Role: bus.RoleMinion, Name: "web1", Key: "k", Nonce: "n"}), "peer_run: web1: .*, " + byName},
	}
	named, root := a.Principal(t.Context(), user("4003")), a.Principal(t.Context(), user("0"))
	telling := []salt.Function{"cluster.join", "cluster.repair", "cluster.status"}
	var seen []salt.Function
	for _, f := range a.Tables.Runners() {
		if f.Module() != "cluster" {
			continue
		}
		seen = append(seen, f)
		r, err := ParseRules(acl.Config{PublisherACL: read("publisher_acl", strings.ReplaceAll(rules, "%s", string(f))), PeerRun: read("peer_run", "web1: [.*, 'cluster.*']"), Runners: a.Tables.Runners()}, true)
		if err != nil {
			t.Fatal(err)
		}
		a.SetRules(r)
		refused := func(name string, by caller) {
			t.Helper()
			err := a.Run(by.principal, job.Command{Function: f}, false, true).Err()
			var refusal *rpc.Error
			if !errors.As(err, &refusal) || refusal.Code != rpc.Denied || !strings.Contains(refusal.Text, string(f)) || !strings.Contains(refusal.Text, by.words) {
				t.Errorf("%s, %s: %v, want a refusal with %q", name, f, err, by.words)
			}
		}
		allowed := func(name string, who Principal) {
			t.Helper()
			if err := a.Run(who, job.Command{Function: f}, false, true).Err(); err != nil {
				t.Errorf("%s, %s: %v", name, f, err)
			}
		}
		allowed("root", root)
		allowed("a user with its name", named)
		for name, by := range nobodies {
			refused(name, by)
		}
		for name, by := range patterns {
			if slices.Contains(telling, f) {
				allowed(name, by.principal)
			} else {
				refused(name, by)
			}
		}
	}
	if len(seen) < 9 || !slices.Contains(seen, "cluster.step_down") {
		t.Errorf("the runners of the cluster are %v", seen)
	}
}

// TestHintOfWhatNoRuleGrants: a minion is not sent to an operator for what peer and peer_run cannot grant.
func TestHintOfWhatNoRuleGrants(t *testing.T) {
	a := authorizer(t, Options{})
	setting, err := acl.ParseSetting("peer_run", "web1: [.*, audit.tail]", "master")
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseRules(acl.Config{PeerRun: setting, Runners: a.Tables.Runners()}, true)
	if err != nil {
		t.Fatal(err)
	}
	a.SetRules(r)
	web1 := a.Peer(bus.Identity{Role: bus.RoleMinion, Name: "web1", Key: "k", Nonce: "n"})
	for fun, want := range map[salt.Function]string{"audit.tail": "no rule can grant this", "cluster.step_down": "under peer_run"} {
		err := a.Run(web1, job.Command{Function: fun}, false, true).Err()
		var told *rpc.Error
		if !errors.As(err, &told) || told.Code != rpc.Denied || !strings.Contains(salt.Hint(err)+told.Hint, want) {
			t.Errorf("%s: %v, want a hint with %q", fun, err, want)
		}
	}
}
