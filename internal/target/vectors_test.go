package target

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/documented"
)

// differences are the cases of testdata/targeting.json that Brine answers
// differently on purpose.
var differences = map[string]string{
	"targeting-0156": "a list is sent as text: an entry that contains a comma becomes two entries",
	"targeting-0164": "a target is text; Salt also takes a mapping and uses its keys",
	"targeting-0544": "an address is compared as an address; Salt finds 10.3.0.1 within the text 10.3.0.10",
	"targeting-0617": "empty parentheses are a mistake, not an operand that matches nothing",
	"targeting-0710": "a mistake in one word is a mistake in the whole expression, even if another word matches",
	"targeting-0835": "empty parentheses are a mistake; in Salt their negation matches every minion",
}

// saltCases are cases answered by Salt 3006; the file describes itself.
type saltCases struct {
	Minions []struct {
		ID     salt.MinionID // some are names that Brine refuses elsewhere
		Grains value.Value
		Pillar value.Value
	}
	Nodegroups value.Value
	Cases      []saltCase
}

type saltCase struct {
	ID        string
	Tgt       value.Value
	TgtType   string `json:"tgt_type"`
	Delimiter string
	Match     []string
}

func loadSaltCases(t testing.TB) (c saltCases, facts []Facts, groups map[string]any) {
	t.Helper()
	b, err := os.ReadFile("testdata/targeting.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Minions {
		facts = append(facts, Facts{m.ID, m.Grains.V.(map[string]any), m.Pillar.V.(map[string]any)})
	}
	return c, facts, c.Nodegroups.V.(map[string]any)
}

// answer returns the ids that match; an error is not a match.
func (c saltCase) answer(t *testing.T, facts []Facts, groups map[string]any) ([]string, error) {
	t.Helper()
	kind, err := ParseKind(c.TgtType)
	if err != nil {
		return nil, err
	}
	expr, err := Text(c.Tgt.V, kind)
	if err != nil {
		return nil, err
	}
	tgt, err := Parse(expr, kind, Options{Delimiter: c.Delimiter, Nodegroups: groups})
	if err != nil {
		return nil, err
	}
	got := matching(t, tgt, facts)
	if c.Delimiter == "" {
		checkPublished(t, c.ID, tgt, facts, got)
	}
	return got, nil
}

func matching(t *testing.T, tgt *Target, facts []Facts) (ids []string) {
	t.Helper()
	for _, f := range facts {
		ok, err := tgt.Match(f)
		if err != nil {
			t.Errorf("%q on %s: %v", tgt, f.ID, err)
		}
		if ok {
			ids = append(ids, string(f.ID))
		}
	}
	return ids
}

// checkPublished makes sure that a minion, which has no nodegroups, reads the
// published expression as the master reads the original.
func checkPublished(t *testing.T, name string, tgt *Target, facts []Facts, want []string) {
	t.Helper()
	expr, kind := tgt.Published()
	again, err := Parse(expr, kind, Options{})
	if err != nil {
		t.Errorf("%s: published as %q: %v", name, expr, err)
		return
	}
	if got := matching(t, again, facts); !slices.Equal(got, want) {
		t.Errorf("%s: published as %q it matches %q, not %q", name, expr, got, want)
	}
}

func TestSaltCases(t *testing.T) {
	all, facts, groups := loadSaltCases(t)
	var count documented.Comparison
	documented.Differences(t, slices.Collect(maps.Values(differences))...)
	unseen := maps.Clone(differences)
	for _, c := range all.Cases {
		got, err := c.answer(t, facts, groups)
		same := slices.Equal(got, c.Match)
		reason, known := differences[c.ID]
		switch {
		case same && known:
			t.Errorf("%s no longer differs: take it off the list (%s)", c.ID, reason)
		case !same && !known:
			t.Errorf("%s: %s %q matches %q (%v), Salt says %q", c.ID, c.TgtType, c.Tgt.V, got, err, c.Match)
		}
		count.Count(beside(got, c.Match))
		delete(unseen, c.ID)
	}
	for id := range unseen {
		t.Errorf("%s is on the list of differences and not among the cases", id)
	}
	count.Stands(t, "targets")
}

// beside is the answer for the minions that match: fewer of them are a refusal.
func beside(got, salt []string) documented.Answer {
	within := func(some, of []string) bool {
		return !slices.ContainsFunc(some, func(id string) bool { return !slices.Contains(of, id) })
	}
	more, fewer := !within(got, salt), !within(salt, got)
	return documented.Refusal(!more && !fewer, more, fewer)
}
