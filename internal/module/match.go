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
	Doc:  "Functions that tell whether the minion is meant by a target. Nodegroups belong to the master and are not known here.",
	Functions: []function.Function{
		{
			Name:    "compound",
			Doc:     "Return whether the minion matches a compound target.",
			Example: `salt '*' match.compound 'L@web1,web2 or G@os:Debian'`,
			Params:  matchParams,
			Run:     func(_ context.Context, c *function.Call) (any, error) { return matchesID(c, target.Compound) },
		},
		{
			Name:    "glob",
			Doc:     "Return whether the minion's id, or the given one, matches a glob.",
			Example: `salt '*' match.glob 'web*'`,
			Params:  matchParams,
			Run:     func(_ context.Context, c *function.Call) (any, error) { return matchesID(c, target.Glob) },
		},
		{
			Name:    "grain",
			Doc:     "Return whether a grain of the minion matches a glob.",
			Example: `salt '*' match.grain 'os:Ubuntu'`,
			Params:  matchDelimited,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return matches(c, target.Grain, c.String("delimiter"))
			},
		},
		{
			Name:    "grain_pcre",
			Doc:     "Return whether a grain of the minion matches a regular expression.",
			Example: `salt '*' match.grain_pcre 'os:Fedo.*'`,
			Params:  matchDelimited,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return matches(c, target.GrainPCRE, c.String("delimiter"))
			},
		},
		{
			Name:    "ipcidr",
			Doc:     "Return whether the minion has the address, or one within the network.",
			Example: `salt '*' match.ipcidr 192.168.44.0/24`,
			Params:  []function.Param{{Name: "tgt", Kind: function.String, Required: true}},
			Run:     func(_ context.Context, c *function.Call) (any, error) { return matches(c, target.IPCIDR, ":") },
		},
		{
			Name:    "list",
			Doc:     "Return whether the minion's id, or the given one, is in a list of ids.",
			Example: `salt '*' match.list web1,web2`,
			Params:  matchParams,
			Run:     func(_ context.Context, c *function.Call) (any, error) { return matchesID(c, target.List) },
		},
		{
			Name:    "pcre",
			Doc:     "Return whether the minion's id, or the given one, matches a regular expression.",
			Example: `salt '*' match.pcre 'web[0-9]+'`,
			Params:  matchParams,
			Run:     func(_ context.Context, c *function.Call) (any, error) { return matchesID(c, target.PCRE) },
		},
		{
			Name:    "pillar",
			Doc:     "Return whether a pillar value of the minion matches a glob.",
			Example: `salt '*' match.pillar 'cheese:foo'`,
			Params:  matchDelimited,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return matches(c, target.Pillar, c.String("delimiter"))
			},
		},
		{
			Name:    "pillar_pcre",
			Doc:     "Return whether a pillar value of the minion matches a regular expression.",
			Example: `salt '*' match.pillar_pcre 'cheese:(swiss|american)'`,
			Params:  matchDelimited,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return matches(c, target.PillarPCRE, c.String("delimiter"))
			},
		},
	},
}

// matchesID matches the id of the argument minion_id, or the minion's own; both
// with this minion's grains and pillar.
func matchesID(c *function.Call, kind target.Kind) (any, error) {
	id := c.Host.ID
	if c.Has("minion_id") {
		var err error
		if id, err = salt.ParseMinionID(c.String("minion_id")); err != nil {
			return nil, err
		}
	}
	return matchTarget(c, kind, "", id)
}

// matches matches the minion, with a delimiter of its own for nested names.
func matches(c *function.Call, kind target.Kind, delimiter string) (any, error) {
	if delimiter == "" {
		return nil, function.Invalid("the delimiter is empty")
	}
	return matchTarget(c, kind, delimiter, c.Host.ID)
}

func matchTarget(c *function.Call, kind target.Kind, delimiter string, id salt.MinionID) (any, error) {
	t, err := target.Parse(c.String("tgt"), kind, target.Options{Delimiter: delimiter, Question: true})
	if err != nil {
		return nil, err
	}
	return t.Match(target.Facts{ID: id, Grains: c.Host.Facts(), Pillar: c.Host.PillarData()})
}
