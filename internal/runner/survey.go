package runner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aymanbagabas/go-udiff"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// surveyModule groups minions by their answers.
func surveyModule(h *Host) *function.Module {
	s := survey{h}
	params := []function.Param{
		{Name: "tgt", Kind: function.String, Required: true}, {Name: "fun", Kind: function.String, Required: true},
		{Name: "tgt_type", Kind: function.String, Default: "compound"}, {Name: "survey_sort", Kind: function.String, Default: "down"},
		{Name: "timeout", Kind: function.Float, Default: 5.0},
	}
	return &function.Module{Name: "survey", Doc: "Groups of minions with equal returns.", Functions: []function.Function{
		{Name: "diff", Class: function.Changes, Doc: "Run a function on minions, and return the groups with equal returns, and how each differs from the first. The largest group is the first; survey_sort=up begins with the smallest.",
			Example: "salt-run survey.diff 'web*' file.read /etc/hosts", Params: params, Varargs: true, Kwargs: true, Calls: &function.Calls{Read: surveyed, Run: s.diff}},
		{Name: "hash", Class: function.Changes, Doc: "Run a function on minions, and return the groups with equal returns. The largest group is the first; survey_sort=up begins with the smallest.",
			Example: "salt-run survey.hash '*' file.get_hash /etc/hosts survey_sort=up", Params: params, Varargs: true, Kwargs: true, Calls: &function.Calls{Read: surveyed, Run: s.hash}},
	}}
}

type survey struct{ *Host }

// pool is a group of minions with the same answer.
type pool struct {
	minions []any // sorted
	result  string
}

func (s survey) hash(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
	pools, err := s.pools(ctx, c, r)
	out := []any{}
	for _, p := range pools {
		out = append(out, map[string]any{"pool": p.minions, "result": p.result})
	}
	return out, err
}

func (s survey) diff(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
	pools, err := s.pools(ctx, c, r)
	out := []any{}
	for i, p := range pools {
		one := map[string]any{"pool": p.minions, "pool size": int64(len(p.minions))}
		if i == 0 {
			one["result"] = p.result
		} else {
			first := pools[0]
			one["differences"] = udiff.Unified(fmt.Sprint(first.minions[0]), fmt.Sprint(p.minions[0]), first.result+"\n", p.result+"\n")
		}
		out = append(out, one)
	}
	return out, err
}

// surveyJob reads the job whose answers are compared.
func surveyJob(a *function.Arguments) Execute {
	return Execute{
		Target: a.String("tgt"), TargetType: a.String("tgt_type"), Command: job.Command{Function: salt.Function(a.String("fun")), Args: a.Varargs(), Kwargs: a.Extra()},
		Timeout: time.Duration(a.Float("timeout") * float64(time.Second)),
	}
}

func surveyed(a *function.Arguments) function.Reading { return surveyJob(a).job() }

func (s survey) pools(ctx context.Context, c *function.Call, r *function.Caller) ([]pool, error) {
	_, err := salt.ParseFunction(c.String("fun"))
	if err != nil {
		return nil, err
	}
	up := c.String("survey_sort") == "up"
	if !up && c.String("survey_sort") != "down" {
		return nil, fmt.Errorf("survey_sort is %q: it is up or down", c.String("survey_sort"))
	}
	rets, err := s.returns(ctx, c, r, surveyJob(c.Bound()))
	if err != nil {
		return nil, err
	}
	return group(rets, up), nil
}

// group puts minions with the same answer together; groups of equal size are sorted by their first
// minion.
func group(rets map[salt.MinionID]any, up bool) []pool {
	byResult := map[string]*pool{}
	for id, v := range rets {
		text, ok := v.(string)
		if !ok {
			text = value.Repr(v)
		}
		if byResult[text] == nil {
			byResult[text] = &pool{result: text}
		}
		byResult[text].minions = append(byResult[text].minions, string(id))
	}
	pools := make([]pool, 0, len(byResult))
	for _, p := range byResult {
		slices.SortFunc(p.minions, func(a, b any) int { return cmp.Compare(a.(string), b.(string)) })
		pools = append(pools, *p)
	}
	slices.SortFunc(pools, func(a, b pool) int {
		size := cmp.Compare(len(b.minions), len(a.minions))
		if up {
			size = -size
		}
		return cmp.Or(size, cmp.Compare(a.minions[0].(string), b.minions[0].(string)))
	})
	return pools
}
