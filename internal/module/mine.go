package module

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/mine"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// Mine is what minions keep at the master for each other to read.
type Mine interface {
	// ChangeMine changes what this minion keeps there.
	ChangeMine(ctx context.Context, change mine.Change) error
	// ReadMine reads what others, and this minion, keep there, as far as their
	// owners and the master let it: what is kept from this minion is left out.
	ReadMine(ctx context.Context, q mine.Query) ([]mine.Item, error)
}

// mineModule keeps data with the master.
var mineModule = &function.Module{
	Name: "mine",
	Doc:  "Functions that keep what this minion's functions return at the master, for other minions to read without running anything.",
	Functions: []function.Function{
		{
			Name:    "delete",
			Doc:     "Delete what this minion keeps in the mine under a name.",
			Example: `salt '*' mine.delete network.ip_addrs`,
			Params:  []function.Param{{Name: "fun", Kind: function.String, Required: true}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return changeMine(ctx, c, mine.Change{Delete: []string{c.String("fun")}})
			},
		},
		{
			Name:    "flush",
			Doc:     "Delete everything that this minion keeps in the mine.",
			Example: `salt '*' mine.flush`,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return changeMine(ctx, c, mine.Change{Clear: true})
			},
		},
		{
			Name:    "get",
			Doc:     "Return what the minions of a target keep in the mine under a name, by minion; for several names, a dictionary of that for each. What its owner keeps from this minion is left out.",
			Example: "salt-call mine.get '*' network.ip_addrs\nsalt-call mine.get 'G@os:Debian and web*' network.ip_addrs,disk.usage tgt_type=compound",
			Params: []function.Param{
				{Name: "tgt", Kind: function.Any, Required: true}, {Name: "fun", Kind: function.Any, Required: true}, {Name: "tgt_type", Kind: function.String, Default: "glob"},
				{Name: "exclude_minion", Kind: function.Bool, Default: false}, {Name: "expr_form", Kind: function.String},
			},
			Run: readMine,
		},
		{
			Name:    "send",
			Doc:     "Run a function, mine_function or else the one that is the name, with the further arguments, and keep what it returns in the mine under the name. Only the minions of allow_tgt may read it, where that is given.",
			Example: "salt '*' mine.send network.ip_addrs interface=eth0\nsalt '*' mine.send eth0_ip mine_function=network.ip_addrs interface=eth0 allow_tgt='web*'",
			Params: []function.Param{
				{Name: "name", Kind: function.String, Required: true}, {Name: "mine_function", Kind: function.String}, {Name: "allow_tgt", Kind: function.Any}, {Name: "allow_tgt_type", Kind: function.String},
			},
			Varargs: true,
			Kwargs:  true,
			Calls:   &function.Calls{Read: sentToMine, Run: sendToMine},
		},
		{
			Name:    "update",
			Doc:     "Run the functions of the setting mine_functions, of the configuration and of the pillar, or those given, and keep what they return in the mine. With clear, what else this minion keeps there is dropped.",
			Example: `salt '*' mine.update`,
			Params:  []function.Param{{Name: "clear", Kind: function.Bool, Default: false}, {Name: "mine_functions", Kind: function.Any}},
			Calls:   &function.Calls{Read: updatedMine, Run: updateMine},
		},
		{
			Name:    "valid",
			Doc:     "Return those functions of the setting mine_functions that this minion can run.",
			Example: `salt '*' mine.valid`,
			Run:     validMine,
		},
	},
}

// readers is the target of those who may read the entry, if it is not for everybody.
func readers(e mine.Entry) []salt.Target {
	if e.Allow == "" {
		return nil
	}
	return []salt.Target{{Expression: e.Allow, Kind: cmp.Or(e.AllowType, "glob")}}
}

// runMined runs a mine function and returns the entry for what it returned. The mine's
// own functions are not run: mine.update would go on for ever.
func runMined(ctx context.Context, r *function.Caller, f mineFunction) (mine.Entry, error) {
	name, err := salt.ParseFunction(f.runs())
	if err != nil {
		return mine.Entry{}, err
	}
	if name.Module() == "mine" {
		return mine.Entry{}, function.Invalid("%s cannot be kept in the mine", name)
	}
	res := r.Call(ctx, f.command())
	f.entry.Data.V = res.Return
	return f.entry, res.Err
}

// sent is what mine.send keeps.
func sent(a *function.Arguments) mineFunction {
	f := mineFunction{
		name: a.String("name"), function: a.String("mine_function"), args: a.Varargs(), kwargs: a.Extra(),
		entry: mine.Entry{AllowType: a.String("allow_tgt_type")},
	}
	if a.Has("allow_tgt") {
		f.entry.Allow = targetText(a.Any("allow_tgt"))
	}
	return f
}

func sentToMine(a *function.Arguments) function.Reading {
	f := sent(a)
	return function.Reading{Inner: []function.Inner{{Command: f.command()}}, Targets: readers(f.entry)}
}

func sendToMine(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
	f := sent(c.Bound())
	entry, err := runMined(ctx, r, f)
	if err != nil {
		return nil, err
	}
	return changeMine(ctx, c, mine.Change{Put: map[string]mine.Entry{f.name: entry}})
}

// updatedMine reads the functions that are given. Those of the configuration and of
// the pillar are not in the arguments. What cannot be read is not run either.
func updatedMine(a *function.Arguments) function.Reading {
	if !a.Has("mine_functions") {
		return function.Reading{Hidden: true}
	}
	list, _ := parseMineFunctions(a.Any("mine_functions"))
	var r function.Reading
	for _, f := range list {
		r.Inner = append(r.Inner, function.Inner{Command: f.command()})
		r.Targets = append(r.Targets, readers(f.entry)...)
	}
	return r
}

// updateMine keeps what it can: a function that this minion does not have is passed
// over, one that fails is told of when the others are kept.
func updateMine(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
	list, err := mineFunctions(c, c.Any("mine_functions"))
	if err != nil || len(list) == 0 {
		return nil, err
	}
	change := mine.Change{Clear: c.Bool("clear"), Put: map[string]mine.Entry{}}
	var failed error
	for _, f := range list {
		if !canRun(c, f) {
			c.Host.Logger().Info("mine function passed over: this minion does not have it", "name", f.name, "fun", f.runs())
			continue
		}
		entry, err := runMined(ctx, r, f)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s is not in the mine: %w", f.name, err))
			continue
		}
		change.Put[f.name] = entry
	}
	if len(change.Put) == 0 && !change.Clear {
		return nil, failed
	}
	kept, err := changeMine(ctx, c, change)
	return kept, errors.Join(err, failed)
}

func canRun(c *function.Call, f mineFunction) bool {
	_, found := c.Table().Find(f.runs())
	return found != nil
}

func validMine(_ context.Context, c *function.Call) (any, error) {
	list, err := mineFunctions(c, nil)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	valid := map[string]any{}
	for _, f := range list {
		switch {
		case !canRun(c, f):
		case f.function == "":
			valid[f.name] = f.shown
		default:
			args := slices.Clone(f.args)
			for _, key := range slices.Sorted(maps.Keys(f.kwargs)) {
				args = append(args, map[string]any{key: f.kwargs[key]})
			}
			valid[f.name] = map[string]any{f.function: args}
		}
	}
	return valid, nil
}

func changeMine(ctx context.Context, c *function.Call, change mine.Change) (any, error) {
	m, err := mineOf(c.Host)
	if err != nil {
		return nil, coded(c, err)
	}
	if err := m.ChangeMine(ctx, change); err != nil {
		return nil, coded(c, err)
	}
	return true, nil
}

func readMine(ctx context.Context, c *function.Call) (any, error) {
	names, several := mineNames(c.Any("fun"))
	q := mine.Query{TargetType: c.String("tgt_type"), Names: names}
	if old := c.String("expr_form"); old != "" {
		q.TargetType = old
	}
	text, err := target.Text(c.Any("tgt"), target.Kind(q.TargetType))
	if err != nil {
		return nil, function.Invalid("tgt: %w", err)
	}
	q.Target = text
	m, err := mineOf(c.Host)
	if err != nil {
		return nil, coded(c, err)
	}
	items, err := m.ReadMine(ctx, q)
	if err != nil {
		return nil, coded(c, err)
	}
	if c.Bool("exclude_minion") {
		items = slices.DeleteFunc(items, func(i mine.Item) bool { return i.ID == c.Host.ID })
	}
	return mineData(items, several), nil
}

// mineNames reads one name, or several as a list or with commas between. The answer
// for a list has a level more, also for a list of one.
func mineNames(v any) (names []string, several bool) {
	if list, ok := v.([]any); ok {
		for _, item := range list {
			names = append(names, fmt.Sprint(item))
		}
		return names, true
	}
	names = function.SplitWords(fmt.Sprint(v))
	return names, len(names) > 1
}

func mineData(items []mine.Item, several bool) map[string]any {
	out := map[string]any{}
	for _, i := range items {
		byID := out
		if several {
			inner, ok := out[i.Name].(map[string]any)
			if !ok {
				inner = map[string]any{}
				out[i.Name] = inner
			}
			byID = inner
		}
		byID[string(i.ID)] = i.Data.V
	}
	return out
}

// targetText writes for whom an entry is, names or a target, as it was given.
func targetText(v any) string {
	list, ok := v.([]any)
	if !ok {
		return fmt.Sprint(v)
	}
	words := make([]string, len(list))
	for i, w := range list {
		words[i] = fmt.Sprint(w)
	}
	return strings.Join(words, ",")
}
