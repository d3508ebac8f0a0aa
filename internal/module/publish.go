package module

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/argument"
	"github.com/brinebus/brine/internal/salt"
)

// Publisher reaches other minions, and the runners of the master, through the
// master. What the master does not permit is an error that wraps ErrRefused.
type Publisher interface {
	// Publish runs functions on other minions and returns when the last of
	// them has answered or is not expected to any more. A target that means
	// nobody is an error that wraps ErrNoMatch.
	Publish(ctx context.Context, p Publication) ([]Answer, error)
	// Runner runs a runner; a timeout of 0 waits as long as it runs.
	Runner(ctx context.Context, c Command, timeout time.Duration) (any, error)
}

// Publication is what is to be run where.
type Publication struct {
	Target, TargetType string
	Calls              []Command // several for a compound command
	Compound           bool
	Timeout            time.Duration // for minions that are connected and silent
	Returner           string
	Via                string // the master to go through, as MasterLink names it; "" is any
	Check              bool   // run nothing: who would be asked, and is it permitted?
}

// Command is a function to be run elsewhere. Texts among the arguments are
// words: the master reads 5 as a number and k=v as a keyword.
type Command struct {
	Function salt.Function
	Args     []any
	Kwargs   map[string]any
}

// Answer is what became of a publication on one minion.
type Answer struct {
	ID       salt.MinionID
	Returned bool
	Failed   bool // it returned, and the function had failed
	Return   any
	Out      string // the outputter that suits Return
	Text     string // why it did not return
}

// ErrNoMatch is wrapped by the error for a target that means no minion.
var ErrNoMatch = errors.New("no minion matched")

// The return codes of publish.* and mine.*: those with which the commands end, so
// that a refusal, an empty target, a silent minion and an absent master can be told
// apart.
const (
	codeFailed   = 1
	codeNoMatch  = 2
	codeNoReturn = 3
	codeAway     = 69
	codeRefused  = 77
)

// publication are the parameters that publish and full_data share.
var publication = []Param{
	{Name: "tgt", Kind: Any, Required: true},
	{Name: "fun", Kind: Words, Required: true},
	{Name: "arg", Kind: Any},
	{Name: "tgt_type", Kind: String, Default: "glob"},
	{Name: "returner", Kind: String},
	{Name: "timeout", Kind: Float, Default: 5.0},
	{Name: "via_master", Kind: String},
	{Name: "expr_form", Kind: String},
	{Name: "kwarg", Kind: Map},
}

// publishModule lets minions use each other through the master.
var publishModule = &Module{
	Name: "publish",
	Doc:  "Functions that run others on other minions, or on the master, through the master and as far as its settings peer and peer_run allow.",
	Functions: []Function{
		{
			Name:    "check",
			Doc:     "Return whether the master would publish this, and to whom. Nothing is run.",
			Example: `salt-call publish.check 'web*' test.ping`,
			Params:  publication,
			Calls:   &Calls{Read: published, Run: checkPublication},
		},
		{
			Name:    "full_data",
			Doc:     "Publish to other minions and return, for each, a dictionary with its return under ret.",
			Example: `salt-call publish.full_data '*' test.ping`,
			Params:  publication,
			Calls: &Calls{Read: published, Run: func(ctx context.Context, c *Call, r *Caller) (any, error) {
				return c.publish(ctx, r, func(a Answer) any {
					full := map[string]any{"ret": a.Return}
					if a.Out != "" {
						full["out"] = a.Out
					}
					return full
				})
			}},
		},
		{
			Name:    "publish",
			Doc:     "Publish to other minions and return what each returned. A minion that does not return is named, with the reason.",
			Example: "salt-call publish.publish '*' test.ping\nsalt-call publish.publish 'webserv* and not G@os:Ubuntu' test.version tgt_type=compound\nsalt-call publish.publish db1 cmd.run '[uptime, cwd=/tmp]'",
			Params:  publication,
			Calls: &Calls{Read: published, Run: func(ctx context.Context, c *Call, r *Caller) (any, error) {
				return c.publish(ctx, r, func(a Answer) any { return a.Return })
			}},
		},
		{
			Name:    "runner",
			Doc:     "Run a runner on the master and return what it returned.",
			Example: "salt-call publish.runner manage.up",
			Params: []Param{
				{Name: "fun", Kind: String, Required: true}, {Name: "arg", Kind: Any}, {Name: "timeout", Kind: Float}, {Name: "kwarg", Kind: Map},
			},
			Calls: &Calls{Read: publishedRunner, Run: publishRunner},
		},
	},
}

// publish publishes and shows each answer by show; one that did not come is
// shown by its reason.
func (c *Call) publish(ctx context.Context, r *Caller, show func(Answer) any) (any, error) {
	answers, err := c.ask(ctx, r, false)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, a := range answers {
		switch {
		case !a.Returned:
			out[string(a.ID)] = "Minion did not return. [" + a.Text + "]"
			c.retcode = codeNoReturn
			continue
		case a.Failed && c.retcode == 0:
			c.retcode = codeFailed
		}
		out[string(a.ID)] = show(a)
	}
	return out, nil
}

// ask puts the question of publish, full_data and check.
func (c *Call) ask(ctx context.Context, r *Caller, check bool) ([]Answer, error) {
	p, err := c.publication()
	if err != nil {
		return nil, err
	}
	if p.Via, err = c.via(c.String("via_master")); err != nil {
		return nil, err
	}
	publisher, err := r.publisher()
	if err != nil {
		return nil, c.coded(err)
	}
	p.Check = check
	answers, err := publisher.Publish(ctx, p)
	return answers, c.coded(err)
}

// coded sets the return code for a failure of the master's.
func (c *Call) coded(err error) error {
	switch {
	case errors.Is(err, ErrRefused):
		c.retcode = codeRefused
	case errors.Is(err, ErrNoMatch):
		c.retcode = codeNoMatch
	case errors.Is(err, ErrUnavailable):
		c.retcode = codeAway
	}
	return err
}

func checkPublication(ctx context.Context, c *Call, r *Caller) (any, error) {
	answers, err := c.ask(ctx, r, true)
	if errors.Is(err, ErrRefused) {
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

// inner are the commands of a publication as the master decides about them.
func (p Publication) inner() []Inner {
	list := make([]Inner, len(p.Calls))
	for i, c := range p.Calls {
		list[i] = Inner{Way: Published, Command: c, Target: p.Target, TargetType: p.TargetType}
	}
	return list
}

// published reads what is to be run where. What goes through another master is for
// that one to decide.
func published(a *Arguments) Reading {
	p, err := a.publication()
	return Reading{Inner: p.inner(), Hidden: err != nil || a.Has("via_master")}
}

// publication reads the parameters but for via_master.
func (a *Arguments) publication() (Publication, error) {
	p := Publication{
		Target: targetText(a.Any("tgt")), TargetType: a.String("tgt_type"), Returner: a.String("returner"),
		Timeout: time.Duration(a.Float("timeout") * float64(time.Second)),
	}
	if old := a.String("expr_form"); old != "" {
		p.TargetType = old
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
			return p, invalid("%w", err)
		}
		p.Calls = append(p.Calls, Command{Function: f, Args: lists[i], Kwargs: a.Map("kwarg")})
	}
	return p, nil
}

// listed is arg, or the list that a text is in YAML, as scripts and schedules quote
// it: arguments, and not one that is a list. Other texts stay words for the master.
func listed(arg any) (any, error) {
	text, ok := arg.(string)
	if !ok {
		return arg, nil
	}
	v, err := argument.Word(text)
	if err != nil {
		return nil, invalid("arg: %w", err)
	}
	if list, ok := v.([]any); ok {
		return list, nil
	}
	return arg, nil
}

// argumentLists returns the arguments of each function. One function takes a
// list, or one argument by itself; several take a list of lists.
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
		return nil, invalid("arg of %d functions is a list of %d lists", functions, functions)
	}
	for i := range list {
		one, ok := list[i].([]any)
		if !ok {
			return nil, invalid("arg of %d functions is a list of %d lists", functions, functions)
		}
		lists[i] = one
	}
	return lists, nil
}

// via finds the master that the caller wants to go through among those that are
// connected. He may leave out its port, or name the one that it has by default.
func (c *Call) via(master string) (string, error) {
	if master == "" {
		return "", nil
	}
	link, err := c.Host.master()
	if err != nil {
		return "", err
	}
	names := link.Masters()
	if slices.Contains(names, master) {
		return master, nil
	}
	host, port := splitAddress(master)
	for _, name := range names {
		if h, p := splitAddress(name); h == host && (p == "" || port == "") {
			return name, nil
		}
	}
	return "", invalid("via_master %q: this minion is connected to %s only", master, strings.Join(names, ", "))
}

// splitAddress cuts the port off, "" where there is none; [::1]:4506 is ::1 and 4506.
func splitAddress(address string) (host, port string) {
	if host, port, err := net.SplitHostPort(address); err == nil {
		return host, port
	}
	return strings.Trim(address, "[]"), ""
}

// runner reads what publish.runner is to run.
func (a *Arguments) runner() (Command, error) {
	f, err := salt.ParseFunction(a.String("fun"))
	if err != nil {
		return Command{}, invalid("%w", err)
	}
	arg, err := listed(a.Any("arg"))
	if err != nil {
		return Command{}, err
	}
	lists, _ := argumentLists(arg, 1) // one function takes anything
	return Command{Function: f, Args: lists[0], Kwargs: a.Map("kwarg")}, nil
}

func publishedRunner(a *Arguments) Reading {
	c, err := a.runner()
	if err != nil {
		return Reading{Hidden: true}
	}
	return Reading{Inner: []Inner{{Way: ByMaster, Command: c}}}
}

func publishRunner(ctx context.Context, c *Call, r *Caller) (any, error) {
	command, err := c.runner()
	if err != nil {
		return nil, err
	}
	publisher, err := r.publisher()
	if err != nil {
		return nil, c.coded(err)
	}
	v, err := publisher.Runner(ctx, command, time.Duration(c.Float("timeout")*float64(time.Second)))
	return v, c.coded(err)
}
