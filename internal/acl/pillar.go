package acl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// Pillar contains secrets, and the answer for a target shows whether a guess about it is right.
// So a target may match by pillar only if a rule grants that by name: the rule that allows the
// function has the same words in its own target, or a rule of the subject has '@target' with
// the key:
//
//	fred: [test.*, '@target': [I@role, I@site:name]]
//
// Anything below such a key may then be used in every form, by I@, J@ and as an exact value, on
// the minions that the other rules cover.

// targetRule is the key of such rules.
const targetRule = "@target"

// anyKey grants all of pillar.
const anyKey = "*"

// pillarKeys reads the keys of pillar that are granted.
func (p *parser) pillarKeys(key at, list at) []rule {
	if list.Node == nil {
		p.fail(key, salt.WithHint(fmt.Errorf("%s needs the keys of pillar that targets may look at", targetRule), "{'"+targetRule+"': ['I@role']}"))
		return nil
	}
	r := rule{text: list.key(), where: key.where()}
	for item := range p.items(list, "what targets may look at") {
		path, err := pillarPath(item)
		if err != nil {
			p.fail(item, err)
			continue
		}
		r.pillar = append(r.pillar, path)
	}
	return []rule{r}
}

func pillarPath(a at) ([]string, error) {
	if !a.isText() {
		return nil, errNotText(a)
	}
	path, ok := strings.CutPrefix(a.Value, "I@")
	path = strings.TrimSuffix(path, ":*")
	switch {
	case !ok || path == "" || strings.HasSuffix(path, ":"):
		return nil, salt.WithHint(fmt.Errorf("%q is not a key of pillar", a.Value), "write I@ and the key: I@role, or I@site:name for a nested one; it holds for J@ and exact values too")
	case path != anyKey && strings.ContainsAny(path, "*?["):
		return nil, salt.WithHint(fmt.Errorf("%q is a pattern: keys are granted by name", a.Value), "give each key an item of its own; all of pillar is I@*")
	}
	return strings.Split(path, ":"), nil
}

// granted returns the keys of pillar that targets of the subject may use.
func (r *Rules) granted(s *Subject) ([][]string, error) {
	q := Question{Scope: Minions}
	holders, _, err := r.holders(&q, s)
	var keys [][]string
	for _, h := range holders {
		for i := range h.rules {
			keys = append(keys, h.rules[i].pillar...)
		}
	}
	return keys, err
}

// MayTarget returns why the subject may not use a target that matches by pillar, "" if it may.
// It is for targets that no rule for minions is about: those of runners, and of the mine.
func (r *Rules) MayTarget(s Subject, t *target.Target) string {
	if r == nil {
		r = &Rules{}
	}
	s = r.standing(s)
	words := pillarWords(t)
	if s.Operator || len(words) == 0 {
		return ""
	}
	keys, err := r.granted(&s)
	if err != nil || !mayAsk(words, keys, nil) {
		return errPillar
	}
	return ""
}

const errPillar = "targets look at pillar only where a rule grants that by name, with '@target', and none grants this"

func pillarWords(t *target.Target) []target.PillarWord {
	if t == nil {
		return nil
	}
	return t.PillarWords()
}

// mayAsk reports whether each word is below a granted key, or occurs in the target of the rule
// itself.
func mayAsk(words []target.PillarWord, keys [][]string, own *target.Target) bool {
	literal := pillarWords(own)
	for _, w := range words {
		below := func(path []string) bool { return path[0] == anyKey || w.Below(path) }
		same := func(x target.PillarWord) bool { return x.Word == w.Word }
		if !slices.ContainsFunc(keys, below) && !slices.ContainsFunc(literal, same) {
			return false
		}
	}
	return true
}
