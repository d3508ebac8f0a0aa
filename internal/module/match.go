package module

import (
	"context"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

var (
	matchParams    = []function.Param{{Name: "tgt", Kind: function.String, Required: true}, {Name: "minion_id", Kind: function.String}}
	matchDelimited = []function.Param{{Name: "tgt", Kind: function.String, Required: true}, {Name: "delimiter", Kind: function.String, Default: ":"}}
)

// matchModule matches the minion against targets.
var matchModule = &function.Module{
	Name: "match",
	Doc:  "Functions that return whether a target matches the minion. Nodegroups are settings of the master and are not known here.",
	Functions: []function.Function{
		{
			Name:    "compound",
			Doc:     "Return whether the minion matches a compound target.",
			Example: `salt '*' match.compound 'L@web1,web2 or G@os:Debian'`,
			Params:  matchParams,
			Run:     matchID(target.Compound),
		},
		{
			Name:    "glob",
			Doc:     "Return whether the minion's id, or the given one, matches a glob.",
			Example: `salt '*' match.glob 'web*'`,
			Params:  matchParams,
			Run:     matchID(target.Glob),
		},
		{
			Name:    "grain",
			Doc:     "Return whether a grain of the minion matches a glob.",
			Example: `salt '*' match.grain 'os:Ubuntu'`,
			Params:  matchDelimited,
			Run:     matchFact(target.Grain),
		},
		{
			Name:    "grain_pcre",
			Doc:     "Return whether a grain of the minion matches a regular expression.",
			Example: `salt '*' match.grain_pcre 'os:Fedo.*'`,
			Params:  matchDelimited,
			Run:     matchFact(target.GrainPCRE),
		},
		{
			Name:    "ipcidr",
			Doc:     "Return whether the minion has the address, or one within the network.",
			Example: `salt '*' match.ipcidr 192.168.44.0/24`,
			Params:  []function.Param{{Name: "tgt", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return matchTarget(c, target.IPCIDR, ":", c.Host.ID)
			},
		},
		{
			Name:    "list",
			Doc:     "Return whether the minion's id, or the given one, is in a list of ids.",
			Example: `salt '*' match.list web1,web2`,
			Params:  matchParams,
			Run:     matchID(target.List),
		},
		{
			Name:    "pcre",
			Doc:     "Return whether the minion's id, or the given one, matches a regular expression.",
			Example: `salt '*' match.pcre 'web[0-9]+'`,
			Params:  matchParams,
			Run:     matchID(target.PCRE),
		},
		{
			Name:    "pillar",
			Doc:     "Return whether a pillar value of the minion matches a glob.",
			Example: `salt '*' match.pillar 'cheese:foo'`,
			Params:  matchDelimited,
			Run:     matchFact(target.Pillar),
		},
		{
			Name:    "pillar_pcre",
			Doc:     "Return whether a pillar value of the minion matches a regular expression.",
			Example: `salt '*' match.pillar_pcre 'cheese:(swiss|american)'`,
			Params:  matchDelimited,
			Run:     matchFact(target.PillarPCRE),
		},
	},
}

// matchID matches the id of the argument minion_id, by default the minion's own, with this minion's
// grains and pillar.
func matchID(kind target.Kind) func(context.Context, *function.Call) (any, error) {
	return func(_ context.Context, c *function.Call) (any, error) {
		id := c.Host.ID
		if c.Has("minion_id") {
			var err error
			if id, err = salt.ParseMinionID(c.String("minion_id")); err != nil {
				return nil, err
			}
		}
		return matchTarget(c, kind, "", id)
	}
}

// matchFact matches the minion, with the given delimiter of nested names.
func matchFact(kind target.Kind) func(context.Context, *function.Call) (any, error) {
	return func(_ context.Context, c *function.Call) (any, error) {
		if c.String("delimiter") == "" {
			return nil, function.Invalid("the delimiter is empty")
		}
		return matchTarget(c, kind, c.String("delimiter"), c.Host.ID)
	}
}

func matchTarget(c *function.Call, kind target.Kind, delimiter string, id salt.MinionID) (any, error) {
	t, err := target.Parse(c.String("tgt"), kind, target.Options{Delimiter: delimiter, Question: true})
	if err != nil {
		return nil, err
	}
	return t.Match(target.Facts{ID: id, Grains: c.Host.Facts(), Pillar: c.Host.PillarData()})
}
