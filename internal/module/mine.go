package module

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// Mine is what minions keep at the master for each other to read.
type Mine interface {
	// ChangeMine changes what this minion keeps there.
	ChangeMine(ctx context.Context, change MineChange) error
	// ReadMine reads what others, and this minion, keep there, as far as their
	// owners and the master let it: what is kept from this minion is left out.
	ReadMine(ctx context.Context, q MineQuery) ([]MineItem, error)
}

// MineChange is carried out as a whole or not at all.
type MineChange struct {
	Clear  bool // first of all, drop everything
	Delete []string
	Put    map[string]MineEntry
}

// MineEntry is what a minion keeps under one name.
type MineEntry struct {
	Data any
	// Allow is the target of those who may read it, "" for everybody.
	Allow, AllowType string
}

// readers is the target of those who may read the entry, if it is not for everybody.
func (e MineEntry) readers() []Named {
	if e.Allow == "" {
		return nil
	}
	return []Named{{e.Allow, cmp.Or(e.AllowType, "glob")}}
}

// MineQuery asks for entries of the minions of a target.
type MineQuery struct {
	Target, TargetType string
	Names              []string
}

// MineItem is one entry of one minion.
type MineItem struct {
	ID   salt.MinionID
	Name string
	Data any
}

// mineModule keeps data with the master.
var mineModule = &Module{
	Name: "mine",
	Doc:  "Functions that keep what this minion's functions return at the master, for other minions to read without running anything.",
	Functions: []Function{
		{
			Name:    "delete",
			Doc:     "Delete what this minion keeps in the mine under a name.",
			Example: `salt '*' mine.delete network.ip_addrs`,
			Params:  []Param{{Name: "fun", Kind: String, Required: true}},
			Run: func(ctx context.Context, c *Call) (any, error) {
				return c.changeMine(ctx, MineChange{Delete: []string{c.String("fun")}})
			},
		},
		{
			Name:    "flush",
			Doc:     "Delete everything that this minion keeps in the mine.",
			Example: `salt '*' mine.flush`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				return c.changeMine(ctx, MineChange{Clear: true})
			},
		},
		{
			Name:    "get",
			Doc:     "Return what the minions of a target keep in the mine under a name, by minion; for several names, a dictionary of that for each. What its owner keeps from this minion is left out.",
			Example: "salt-call mine.get '*' network.ip_addrs\nsalt-call mine.get 'G@os:Debian and web*' network.ip_addrs,disk.usage tgt_type=compound",
			Params: []Param{
				{Name: "tgt", Kind: Any, Required: true}, {Name: "fun", Kind: Any, Required: true}, {Name: "tgt_type", Kind: String, Default: "glob"},
				{Name: "exclude_minion", Kind: Bool, Default: false}, {Name: "expr_form", Kind: String},
			},
			Run: readMine,
		},
		{
			Name:    "send",
			Doc:     "Run a function, mine_function or else the one that is the name, with the further arguments, and keep what it returns in the mine under the name. Only the minions of allow_tgt may read it, where that is given.",
			Example: "salt '*' mine.send network.ip_addrs interface=eth0\nsalt '*' mine.send eth0_ip mine_function=network.ip_addrs interface=eth0 allow_tgt='web*'",
			Params: []Param{
				{Name: "name", Kind: String, Required: true}, {Name: "mine_function", Kind: String}, {Name: "allow_tgt", Kind: Any}, {Name: "allow_tgt_type", Kind: String},
			},
			Varargs: true,
			Kwargs:  true,
			Calls:   &Calls{Read: sentToMine, Run: sendToMine},
		},
		{
			Name:    "update",
			Doc:     "Run the functions of the setting mine_functions, of the configuration and of the pillar, or those given, and keep what they return in the mine. With clear, what else this minion keeps there is dropped.",
			Example: `salt '*' mine.update`,
			Params:  []Param{{Name: "clear", Kind: Bool, Default: false}, {Name: "mine_functions", Kind: Any}},
			Calls:   &Calls{Read: updatedMine, Run: updateMine},
		},
		{
			Name:    "valid",
			Doc:     "Return those functions of the setting mine_functions that this minion can run.",
			Example: `salt '*' mine.valid`,
			Run:     validMine,
		},
	},
}

// mined runs a mine function and returns the entry for what it returned. The mine's
// own functions are not run: mine.update would go on for ever.
func (r *Caller) mined(ctx context.Context, f mineFunction) (MineEntry, error) {
	name, err := salt.ParseFunction(f.runs())
	if err != nil {
		return MineEntry{}, err
	}
	if name.Module() == "mine" {
		return MineEntry{}, invalid("%s can not be kept in the mine", name)
	}
	res := r.call(ctx, f.command())
	f.entry.Data = res.Return
	return f.entry, res.Err
}

// sent is what mine.send keeps.
func sent(a *Arguments) mineFunction {
	f := mineFunction{
		name: a.String("name"), function: a.String("mine_function"), args: a.Varargs(), kwargs: a.Extra(),
		entry: MineEntry{AllowType: a.String("allow_tgt_type")},
	}
	if a.Has("allow_tgt") {
		f.entry.Allow = targetText(a.Any("allow_tgt"))
	}
	return f
}

func sentToMine(a *Arguments) Reading {
	f := sent(a)
	return Reading{Inner: []Inner{{Command: f.command()}}, Targets: f.entry.readers()}
}

func sendToMine(ctx context.Context, c *Call, r *Caller) (any, error) {
	f := sent(&c.arguments)
	entry, err := r.mined(ctx, f)
	if err != nil {
		return nil, err
	}
	return c.changeMine(ctx, MineChange{Put: map[string]MineEntry{f.name: entry}})
}

// updatedMine reads the functions that are given. Those of the configuration and of
// the pillar are not in the arguments. What cannot be read is not run either.
func updatedMine(a *Arguments) Reading {
	if !a.Has("mine_functions") {
		return Reading{Hidden: true}
	}
	list, _ := parseMineFunctions(a.Any("mine_functions"))
	var r Reading
	for _, f := range list {
		r.Inner = append(r.Inner, Inner{Command: f.command()})
		r.Targets = append(r.Targets, f.entry.readers()...)
	}
	return r
}

// updateMine keeps what it can: a function that this minion does not have is passed
// over, one that fails is told of when the others are kept.
func updateMine(ctx context.Context, c *Call, r *Caller) (any, error) {
	list, err := c.mineFunctions(c.Any("mine_functions"))
	if err != nil || len(list) == 0 {
		return nil, err
	}
	change := MineChange{Clear: c.Bool("clear"), Put: map[string]MineEntry{}}
	var failed error
	for _, f := range list {
		if !c.canRun(f) {
			c.Host.log().Info("mine function passed over: this minion does not have it", "name", f.name, "fun", f.runs())
			continue
		}
		entry, err := r.mined(ctx, f)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s is not in the mine: %w", f.name, err))
			continue
		}
		change.Put[f.name] = entry
	}
	if len(change.Put) == 0 && !change.Clear {
		return nil, failed
	}
	kept, err := c.changeMine(ctx, change)
	return kept, errors.Join(err, failed)
}

func (c *Call) canRun(f mineFunction) bool {
	_, found := c.table.find(f.runs())
	return found != nil
}

func validMine(_ context.Context, c *Call) (any, error) {
	list, err := c.mineFunctions(nil)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	valid := map[string]any{}
	for _, f := range list {
		switch {
		case !c.canRun(f):
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

func (c *Call) changeMine(ctx context.Context, change MineChange) (any, error) {
	m, err := c.Host.mine()
	if err != nil {
		return nil, c.coded(err)
	}
	if err := m.ChangeMine(ctx, change); err != nil {
		return nil, c.coded(err)
	}
	return true, nil
}

func readMine(ctx context.Context, c *Call) (any, error) {
	names, several := mineNames(c.Any("fun"))
	q := MineQuery{Target: targetText(c.Any("tgt")), TargetType: c.String("tgt_type"), Names: names}
	if old := c.String("expr_form"); old != "" {
		q.TargetType = old
	}
	m, err := c.Host.mine()
	if err != nil {
		return nil, c.coded(err)
	}
	items, err := m.ReadMine(ctx, q)
	if err != nil {
		return nil, c.coded(err)
	}
	if c.Bool("exclude_minion") {
		items = slices.DeleteFunc(items, func(i MineItem) bool { return i.ID == c.Host.ID })
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
	names = splitWords(fmt.Sprint(v))
	return names, len(names) > 1
}

func mineData(items []MineItem, several bool) map[string]any {
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
		byID[string(i.ID)] = i.Data
	}
	return out
}

func (h *Host) mine() (Mine, error) {
	if h.Mine == nil {
		return nil, fmt.Errorf("the mine is with the master, and there is no connection to one: %w", ErrUnavailable)
	}
	return h.Mine, nil
}

// targetText writes a target that was given as a list.
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
