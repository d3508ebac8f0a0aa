package runner

import (
	"context"
	"fmt"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
)

// aclModule explains the access rules.
func aclModule(h *Host) *function.Module {
	a := access{h}
	return &function.Module{Name: "acl", Doc: "Who may do what, and why.", Functions: []function.Function{
		{Name: "explain", Class: function.Secret, Own: true, Doc: "Return whether somebody may do something, and the rule that decides, without doing it. Name a user, an external user with eauth, or a minion for peer, peer_run and mine_get; without a name it is about the caller. With a tag it is about events: kind=fire, the default, or kind=listen for all tags that begin with it.",
			Example: "salt-run acl.explain user=fred fun=cmd.run tgt='web*' arg='[ls]'\nsalt-run acl.explain user=steve eauth=pam groups='[ops]' fun=key.list kind=wheel\nsalt-run acl.explain minion=web1 fun=test.ping tgt='*'\nsalt-run acl.explain minion=web1 fun=manage.up kind=peer_run\nsalt-run acl.explain minion=web1 fun=network.ip_addrs kind=mine_get\nsalt-run acl.explain user=fred tag=deploy/done\nsalt-run acl.explain user=fred tag=deploy/ kind=listen",
			Params: []function.Param{
				{Name: "user", Kind: function.String}, {Name: "fun", Kind: function.Any}, {Name: "tgt", Kind: function.String, Default: "*"}, {Name: "tgt_type", Kind: function.String, Default: "glob"},
				{Name: "arg", Kind: function.Any}, {Name: "kwarg", Kind: function.Any}, {Name: "eauth", Kind: function.String}, {Name: "groups", Kind: function.Any},
				{Name: "minion", Kind: function.String}, {Name: "kind", Kind: function.String, Default: "publish"}, {Name: "tag", Kind: function.String},
			}, Run: a.explain},
		{Name: "lint", Class: function.Secret, Doc: "Return warnings about the access rules: what can never match, what matches more than it seems to, users that do not exist, and why the latest configuration is not in force.", Example: "salt-run acl.lint", Run: a.lint},
		{Name: "mine", Class: function.Shared, Own: true, Doc: "Return what the caller may do, and where: their rules, the blacklist that applies to all, and the events that they may fire and listen to.", Example: "salt-run acl.mine\nsalt-run -a pam acl.mine", Run: a.mine},
	}}
}

type access struct{ *Host }

func (a access) explain(ctx context.Context, c *function.Call) (any, error) {
	e, err := question(c)
	if err != nil {
		return nil, err
	}
	d, err := a.Explain(ctx, e)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"allowed": d.Allowed, "rule": d.Rule, "where": d.Where, "reason": d.Reason}
	if e.Kind == "publish" {
		out["minions"] = idList(d.Minions)
	}
	if len(d.Inner) > 0 {
		inner := make([]any, len(d.Inner))
		for i, name := range d.Inner {
			inner[i] = name
		}
		out["inner"] = inner
	}
	if len(d.Outside) > 0 {
		out["outside"] = idList(d.Outside)
	}
	return out, nil
}

func idList(ids []salt.MinionID) []any {
	list := make([]any, len(ids))
	for i, id := range ids {
		list[i] = string(id)
	}
	return list
}

// question reads the arguments of explain.
func question(c *function.Call) (acl.Explain, error) {
	e := acl.Explain{
		User: c.String("user"), Backend: c.String("eauth"), Minion: c.String("minion"),
		Kind: c.String("kind"), Target: c.String("tgt"), TargetType: c.String("tgt_type"), Tag: c.String("tag"),
	}
	switch {
	case e.User != "" && e.Minion != "":
		return e, fmt.Errorf("user and minion are both given: ask for one")
	}
	var err error
	if e.Groups, err = texts(c, "groups"); err != nil {
		return e, err
	}
	if e.Tag != "" {
		if e.Kind == "publish" {
			e.Kind = "fire"
		}
		if e.Kind != "fire" && e.Kind != "listen" || c.Any("fun") != nil {
			return e, salt.WithHint(fmt.Errorf("a tag is of events"), "with tag= the kinds are fire, the default, and listen, and there is no fun=")
		}
		return e, nil
	}
	switch e.Kind {
	case "publish", "runner", "wheel":
	case "peer":
		e.Kind = "publish"
	case "peer_run":
		e.Kind = "runner"
	case "mine_get":
		e.Kind = "mine"
	default:
		return e, salt.WithHint(fmt.Errorf("kind %q is not known", e.Kind), "the kinds are publish, runner and wheel, and for minions peer, peer_run and mine_get")
	}
	e.Commands, err = commands(c, e.Kind)
	return e, err
}

// commands reads fun, which is one name or the list of a compound command, and the arguments. Each
// function gets all arguments.
func commands(c *function.Call, kind string) ([]salt.Command, error) {
	names, err := texts(c, "fun")
	if err != nil {
		return nil, err
	}
	var args []any
	switch x := c.Any("arg").(type) {
	case nil:
	case []any:
		args = x
	default:
		args = []any{x}
	}
	kwargs, ok := c.Any("kwarg").(map[string]any)
	if !ok && c.Any("kwarg") != nil {
		return nil, fmt.Errorf("kwarg is not a mapping")
	}
	var list []salt.Command
	for _, name := range names {
		f, err := salt.ParseFunction(name)
		if kind == "mine" {
			f, err = salt.Function(name), nil // audit entries may contain any name
		}
		if err != nil {
			return nil, err
		}
		list = append(list, salt.Command{Function: f, Args: args, Kwargs: kwargs})
	}
	if len(list) == 0 {
		return nil, salt.WithHint(function.Invalid("no function is asked for"), "name a fun=")
	}
	return list, nil
}

// texts reads a parameter that is a text or a list of texts.
func texts(c *function.Call, name string) ([]string, error) {
	switch x := c.Any(name).(type) {
	case nil:
		return nil, nil
	case string:
		return []string{x}, nil
	case []any:
		list := []string{}
		for _, v := range x {
			s, ok := v.(string)
			if !ok {
				return nil, fmt.Errorf("%s: %v is not text", name, v)
			}
			list = append(list, s)
		}
		return list, nil
	}
	return nil, fmt.Errorf("%s is neither text nor a list", name)
}

func (a access) mine(ctx context.Context, _ *function.Call) (any, error) {
	r, err := a.Rights(ctx)
	if err != nil {
		return nil, err
	}
	rules := make([]any, len(r.Rules))
	for i, one := range r.Rules {
		rules[i] = map[string]any{"rule": one.Rule, "where": one.Where, "on": one.On, "held_to_arguments": one.Held}
	}
	return map[string]any{
		"user": r.User, "eauth": r.Backend, "groups": textList(r.Groups), "operator": r.Operator,
		"rules": rules, "barred": textList(r.Barred), "fire": textList(r.Fire), "listen": textList(r.Listen),
		"own": textList(Table(&Host{}).OwnFunctions()),
	}, nil
}

func textList(texts []string) []any {
	list := make([]any, len(texts))
	for i, t := range texts {
		list[i] = t
	}
	return list
}

func (a access) lint(ctx context.Context, _ *function.Call) (any, error) {
	out := []any{}
	for _, f := range a.Lint(ctx) {
		out = append(out, map[string]any{"where": f.Where, "key": f.Key, "text": f.Text, "no_effect": f.Dead})
	}
	return out, nil
}
