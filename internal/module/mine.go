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

// Mine is the data that minions store on the master for each other.
type Mine interface {
	// ChangeMine changes the data of this minion.
	ChangeMine(ctx context.Context, change mine.Change) error
	// ReadMine reads the data of other minions and of this one, as far as their owners and the
	// master allow it; the rest is omitted.
	ReadMine(ctx context.Context, q mine.Query) ([]mine.Item, error)
}

// mineModule stores data on the master.
var mineModule = &function.Module{
	Name: "mine",
	Doc:  "Functions that store returns of this minion's functions at the master, for other minions to read without running anything.",
	Functions: []function.Function{
		{
			Name:    "delete",
			Doc:     "Delete an entry of this minion in the mine.",
			Example: `salt '*' mine.delete network.ip_addrs`,
			Params:  []function.Param{{Name: "fun", Kind: function.String, Required: true}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return changeMine(ctx, c, mine.Change{Delete: []string{c.String("fun")}})
			},
		},
		{
			Name:    "flush",
			Doc:     "Delete all entries of this minion in the mine.",
			Example: `salt '*' mine.flush`,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return changeMine(ctx, c, mine.Change{Clear: true})
			},
		},
		{
			Name:    "get",
			Doc:     "Return the mine entries with a name of the minions of a target, by minion; for several names, a dictionary of that for each. Entries that this minion may not read are left out.",
			Example: "salt-call mine.get '*' network.ip_addrs\nsalt-call mine.get 'G@os:Debian and web*' network.ip_addrs,disk.usage tgt_type=compound",
			Params: []function.Param{
				{Name: "tgt", Kind: function.Any, Required: true}, {Name: "fun", Kind: function.Any, Required: true}, {Name: "tgt_type", Kind: function.String, Default: "glob"},
				{Name: "exclude_minion", Kind: function.Bool, Default: false}, {Name: "expr_form", Kind: function.String},
			},
			Run: readMine,
		},
		{
			Name:    "send",
			Doc:     "Run a function with the further arguments, and store its return in the mine under the name. mine_function names the function; without it, the name is that of the function. If allow_tgt is given, only its minions may read it.",
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
			Doc:     "Run the functions of the setting mine_functions, of the configuration and of the pillar, or those given, and store their returns in the mine. With clear, the other entries of this minion are deleted.",
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

// readers returns the target of the minions that may read the entry, if it is restricted.
func readers(e mine.Entry) []salt.Target {
	if e.Allow == "" {
		return nil
	}
	return []salt.Target{{Expression: e.Allow, Kind: cmp.Or(e.AllowType, "glob")}}
}

// runMined runs a mine function and returns the entry with its return. Functions of the mine itself
// are refused: mine.update would never end.
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

// sent returns the entry that mine.send stores.
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

// updatedMine reads the given functions. Those of the configuration and of the pillar are not in
// the arguments. Invalid ones are not run either.
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

// updateMine stores what it can: a function that this minion does not have is skipped; if one
// fails, the error is returned after the others are stored.
func updateMine(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
	list, err := mineFunctions(c, c.Any("mine_functions"))
	if err != nil || len(list) == 0 {
		return nil, err
	}
	change := mine.Change{Clear: c.Bool("clear"), Put: map[string]mine.Entry{}}
	var failed error
	for _, f := range list {
		if !canRun(c, f) {
			c.Host.Logger().Info("mine function skipped: this minion does not have it", "name", f.name, "fun", f.runs())
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

// mineNames parses one name, or several as a list or separated by commas. The return for a list has
// one more level, even for a list of one.
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

// targetText returns the readers of an entry, names or a target, as given.
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
