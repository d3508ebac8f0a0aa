package module

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/argument"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// The return codes of publish.* and mine.*. They are the exit codes of the commands, so that a
// refusal, an empty target, an unresponsive minion and an unreachable master can be distinguished.
const (
	codeFailed   = 1
	codeNoMatch  = 2
	codeNoReturn = 3
	codeAway     = 69
)

// publication are the parameters shared by publish and full_data.
var publication = []function.Param{
	{Name: "tgt", Kind: function.Any, Required: true},
	{Name: "fun", Kind: function.Words, Required: true},
	{Name: "arg", Kind: function.Any},
	{Name: "tgt_type", Kind: function.String, Default: "glob"},
	{Name: "returner", Kind: function.String},
	{Name: "timeout", Kind: function.Float, Default: 5.0},
	{Name: "via_master", Kind: function.String},
	{Name: "expr_form", Kind: function.String},
	{Name: "kwarg", Kind: function.Map},
	{Name: "asynchronous", Kind: function.Bool},
}

// runnerParams are those of the functions that run a runner or a wheel function.
var runnerParams = []function.Param{
	{Name: "fun", Kind: function.String, Required: true}, {Name: "arg", Kind: function.Any}, {Name: "timeout", Kind: function.Float}, {Name: "kwarg", Kind: function.Map},
	{Name: "full_return", Kind: function.Bool}, {Name: "asynchronous", Kind: function.Bool},
}

// publishModule runs functions on other minions through the master.
var publishModule = &function.Module{
	Name: "publish",
	Doc:  "Functions that run others on other minions, or on the master, through the master and as far as its settings peer and peer_run allow.",
	Functions: []function.Function{
		{
			Name:    "check",
			Doc:     "Return whether the master would publish this, and to whom. Nothing is run.",
			Example: `salt-call publish.check 'web*' test.ping`,
			Params:  publication,
			Calls:   &function.Calls{Read: published, Run: checkPublication},
		},
		{
			Name:    "full_data",
			Doc:     "Publish to other minions and return, for each, a dictionary with its return under ret, retcode, and the jid of the job. One that does not return has no ret, and the reason under error. With asynchronous=True the job is started, and the jid and the minions are returned at once.",
			Example: "salt-call publish.full_data '*' test.ping\nsalt-call publish.full_data db1 cmd.run /usr/local/bin/backup asynchronous=True",
			Params:  publication,
			Calls: &function.Calls{Read: published, Run: func(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
				return publishTo(ctx, c, r, showFull)
			}},
		},
		{
			Name:    "publish",
			Doc:     "Publish to other minions and return what each returned, by its id. Those that do not return are below #missing, each with the reason: no minion has that id. With asynchronous=True the job is started, and its jid and the minions are returned at once.",
			Example: "salt-call publish.publish '*' test.ping\nsalt-call publish.publish 'webserv* and not G@os:Ubuntu' test.version tgt_type=compound\nsalt-call publish.publish db1 cmd.run '[uptime, cwd=/tmp]'",
			Params:  publication,
			Calls: &function.Calls{Read: published, Run: func(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
				return publishTo(ctx, c, r, showReturns)
			}},
		},
		{
			Name:    "runner",
			Doc:     "Run a runner on the master and return what it returned. With full_return=True the answer is a dictionary with the jid of the run, retcode, and ret, or error where it failed. With asynchronous=True the runner is started, and its jid and the tag of its events are returned at once.",
			Example: "salt-call publish.runner manage.up\nsalt-call publish.runner manage.up full_return=True\nsalt-call publish.runner cache.grains asynchronous=True",
			Params:  runnerParams,
			Calls:   onMaster(false),
		},
	},
}

// publishTo publishes a job and formats the answers with show.
func publishTo(ctx context.Context, c *function.Call, r *function.Caller, show func([]function.Answer) map[string]any) (any, error) {
	answers, err := askMinions(ctx, c, r, false)
	if err != nil {
		return nil, err
	}
	if c.Bool("asynchronous") {
		return begun(answers), nil
	}
	for _, a := range answers {
		switch {
		case !a.Returned:
			c.SetRetcode(codeNoReturn)
		case a.Failed && c.Retcode() == 0:
			c.SetRetcode(codeFailed)
		}
	}
	return show(answers), nil
}

// missingPeers is the key for the minions that did not return to publish.publish. A minion id
// cannot contain #, and the value below an id is only the return of that minion: so no return can
// be mistaken for a missing one, or the reverse.
const missingPeers = "#missing"

// showReturns shows each return, and separately the minions that did not return.
func showReturns(answers []function.Answer) map[string]any {
	out, missing := map[string]any{}, map[string]any{}
	for _, a := range answers {
		if a.Returned {
			out[string(a.ID)] = a.Return
		} else {
			missing[string(a.ID)] = unreturned(a)
		}
	}
	if len(missing) > 0 {
		out[missingPeers] = missing
	}
	return out
}

// showFull shows everything about the job of each minion, with ret or error.
func showFull(answers []function.Answer) map[string]any {
	out := map[string]any{}
	for _, a := range answers {
		if !a.Returned {
			out[string(a.ID)] = map[string]any{"jid": string(a.JID), "error": unreturned(a)}
			continue
		}
		full := map[string]any{"jid": string(a.JID), "ret": a.Return, "retcode": a.Retcode}
		if a.Out != "" {
			full["out"] = a.Out
		}
		out[string(a.ID)] = full
	}
	return out
}

// unreturned says why a minion did not return, in Salt's words.
func unreturned(a function.Answer) string { return "Minion did not return. [" + a.Text + "]" }

// begun shows a job whose returns are not awaited.
func begun(answers []function.Answer) map[string]any {
	jid, ids := "", []any{}
	for _, a := range answers {
		jid = string(a.JID)
		if a.Text == "" { // its id has an accepted key
			ids = append(ids, string(a.ID))
		}
	}
	return map[string]any{"jid": jid, "minions": ids}
}

// askMinions runs publish, full_data and check.
func askMinions(ctx context.Context, c *function.Call, r *function.Caller, check bool) ([]function.Answer, error) {
	p, err := readPublication(c.Bound())
	if err != nil {
		return nil, err
	}
	if p.Via, err = viaMaster(c, c.String("via_master")); err != nil {
		return nil, err
	}
	publisher, err := r.Publisher()
	if err != nil {
		return nil, coded(c, err)
	}
	p.Check, p.Async = check, c.Bool("asynchronous") && !check
	answers, err := publisher.Publish(ctx, p)
	return answers, coded(c, err)
}

// coded sets the return code for an error from the master.
func coded(c *function.Call, err error) error {
	switch {
	case errors.Is(err, function.ErrRefused):
		c.SetRetcode(function.CodeRefused)
	case errors.Is(err, function.ErrNoMatch):
		c.SetRetcode(codeNoMatch)
	case errors.Is(err, function.ErrUnavailable):
		c.SetRetcode(codeAway)
	}
	return err
}

func checkPublication(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
	answers, err := askMinions(ctx, c, r, true)
	if errors.Is(err, function.ErrRefused) {
		return map[string]any{"allowed": false, "minions": []any{}, "reason": err.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	ids := []any{}
	for _, a := range answers {
		ids = append(ids, string(a.ID))
	}
	return map[string]any{"allowed": true, "minions": ids, "reason": ""}, nil
}

// published reads what runs where. A job through another master is authorised there.
func published(a *function.Arguments) function.Reading {
	p, err := readPublication(a)
	return function.Reading{Inner: p.Inner(), Hidden: err != nil || a.Has("via_master")}
}

// readPublication reads all parameters except via_master.
func readPublication(a *function.Arguments) (function.Publication, error) {
	p := function.Publication{TargetType: a.String("tgt_type"), Returner: a.String("returner"), Timeout: time.Duration(a.Float("timeout") * float64(time.Second))}
	if old := a.String("expr_form"); old != "" {
		p.TargetType = old
	}
	var err error
	if p.Target, err = target.Text(a.Any("tgt"), target.Kind(p.TargetType)); err != nil {
		return p, function.Invalid("tgt: %w", err)
	}
	names := a.Words("fun")
	p.Compound = len(names) > 1
	arg, err := listed(a.Any("arg"))
	if err != nil {
		return p, err
	}
	lists, err := argumentLists(arg, len(names))
	if err != nil {
		return p, err
	}
	for i, name := range names {
		f, err := salt.ParseFunction(name)
		if err != nil {
			return p, function.Invalid("%w", err)
		}
		p.Calls = append(p.Calls, salt.Command{Function: f, Args: lists[i], Kwargs: a.Map("kwarg")})
	}
	return p, nil
}

// listed returns arg, or if it is a text with a list in YAML, as scripts and schedules quote it,
// that list: it is the arguments, not one argument that is a list. Other texts are parsed by the
// master.
func listed(arg any) (any, error) {
	text, ok := arg.(string)
	if !ok {
		return arg, nil
	}
	if text == "" { // Salt's users write this for no argument, before the target type
		return nil, nil
	}
	v, err := argument.Word(text)
	if err != nil {
		return nil, function.Invalid("arg: %w", err)
	}
	if list, ok := v.([]any); ok {
		return list, nil
	}
	return arg, nil
}

// argumentLists returns the arguments of each function. One function gets a list, or a single
// argument; several get a list of lists.
func argumentLists(arg any, functions int) ([][]any, error) {
	lists := make([][]any, functions)
	list, isList := arg.([]any)
	switch {
	case arg == nil:
		return lists, nil
	case functions == 1 && isList:
		lists[0] = list
		return lists, nil
	case functions == 1:
		lists[0] = []any{arg}
		return lists, nil
	case !isList || len(list) != functions:
		return nil, function.Invalid("arg of %d functions is a list of %d lists", functions, functions)
	}
	for i := range list {
		one, ok := list[i].([]any)
		if !ok {
			return nil, function.Invalid("arg of %d functions is a list of %d lists", functions, functions)
		}
		lists[i] = one
	}
	return lists, nil
}

// viaMaster finds the requested master among the connected ones. The port may be missing in either
// name.
func viaMaster(c *function.Call, master string) (string, error) {
	if master == "" {
		return "", nil
	}
	up, err := masterConnection(c.Host)
	if err != nil {
		return "", err
	}
	names := up.Masters()
	if slices.Contains(names, master) {
		return master, nil
	}
	host, port := splitAddress(master)
	for _, name := range names {
		if h, p := splitAddress(name); h == host && (p == "" || port == "") {
			return name, nil
		}
	}
	return "", function.Invalid("via_master %q: this minion is connected to %s only", master, strings.Join(names, ", "))
}

// splitAddress splits off the port, "" if there is none; [::1]:4506 gives ::1 and 4506.
func splitAddress(address string) (host, port string) {
	if host, port, err := net.SplitHostPort(address); err == nil {
		return host, port
	}
	return strings.Trim(address, "[]"), ""
}

// readRunner reads what publish.runner has to run.
func readRunner(a *function.Arguments) (salt.Command, error) {
	f, err := salt.ParseFunction(a.String("fun"))
	if err != nil {
		return salt.Command{}, function.Invalid("%w", err)
	}
	arg, err := listed(a.Any("arg"))
	if err != nil {
		return salt.Command{}, err
	}
	lists, _ := argumentLists(arg, 1) // one function accepts anything
	return salt.Command{Function: f, Args: lists[0], Kwargs: a.Map("kwarg")}, nil
}

// onMaster returns the Calls of a function that runs a runner, or a wheel function.
func onMaster(wheel bool) *function.Calls {
	return &function.Calls{
		Read: func(a *function.Arguments) function.Reading {
			c, err := readRunner(a)
			if err != nil {
				return function.Reading{Hidden: true}
			}
			return function.Reading{Inner: []function.Inner{function.RunnerCall{Command: c, Wheel: wheel}.Inner()}}
		},
		Run: func(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
			command, err := readRunner(c.Bound())
			if err != nil {
				return nil, err
			}
			return runOnMaster(ctx, c, r, function.RunnerCall{Command: command, Wheel: wheel})
		},
	}
}

// runOnMaster runs it as the other arguments say.
func runOnMaster(ctx context.Context, c *function.Call, r *function.Caller, q function.RunnerCall) (any, error) {
	publisher, err := r.Publisher()
	if err != nil {
		return nil, coded(c, err)
	}
	q.Timeout, q.Async = time.Duration(c.Float("timeout")*float64(time.Second)), c.Bool("asynchronous")
	a, err := publisher.Runner(ctx, q)
	switch {
	case err == nil && q.Async:
		return map[string]any{"jid": string(a.JID), "tag": a.Tag}, nil
	case err == nil && a.Retcode != 0:
		c.SetRetcode(codeFailed)
	case err != nil && c.Retcode() == 0:
		c.SetRetcode(codeFailed)
	}
	err = coded(c, err)
	if !c.Bool("full_return") || a.JID == "" {
		return a.Return, err
	}
	return fullReturn(c, a, err), nil
}

// fullReturn returns everything about a runner that has started.
func fullReturn(c *function.Call, a function.RunnerAnswer, err error) map[string]any {
	full := map[string]any{"jid": string(a.JID), "retcode": int64(c.Retcode())}
	if err != nil {
		full["error"] = err.Error()
		return full
	}
	if full["ret"] = a.Return; a.Out != "" {
		full["out"] = a.Out
	}
	return full
}
