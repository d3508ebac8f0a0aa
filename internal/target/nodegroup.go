package target

import (
	"fmt"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// nodegroups resolves the words of one expression. A group is parsed where it is named and stays
// one operand: "not N@x" negates all of it, whatever it contains. A group that begins with "not"
// and has no other operand cannot be negated, as in Salt, which pastes its words into the
// expression.
type nodegroups struct {
	defined map[string]any
	within  []string // the groups that are being resolved
	words   int      // resolved so far
	cost    cost     // of everything parsed so far
}

// expression parses the words of a text, and also returns them with one blank between them. The
// words are counted before the text is split, so that too many are refused early.
func (ng *nodegroups) expression(text string) (string, node, error) {
	n := 0
	for range strings.FieldsSeq(text) {
		if n++; n > maxWords {
			return "", nil, errTooManyWords
		}
	}
	words := slices.AppendSeq(make([]string, 0, n), strings.FieldsSeq(text))
	root, err := ng.parse(words)
	if err != nil {
		return "", nil, err
	}
	return strings.Join(words, " "), root, nil
}

// parse parses words that may name groups.
func (ng *nodegroups) parse(words []string) (node, error) {
	if ng.words += len(words); ng.words > maxWords {
		return nil, errTooManyWords
	}
	if err := ng.afford(words); err != nil {
		return nil, err
	}
	c := compound{list: words, groups: ng}
	return c.all()
}

var errTooManyWords = fmt.Errorf("with its nodegroups it has more than %d words", maxWords)

// afford refuses words whose text alone shows that they cost too much, before the first one is
// compiled: compiling thousands of regular expressions takes a hundred times longer than counting
// them.
func (ng *nodegroups) afford(words []string) error {
	all := ng.cost
	for _, word := range words {
		if isOperator(word) {
			continue
		}
		kind, delimiter, expr := splitWord(word)
		if err := all.add(costOf(expr, kind, delimiter)); err != nil {
			return err
		}
	}
	return nil
}

// word parses one operand of a compound.
func (ng *nodegroups) word(word string) (node, error) {
	name, ok := strings.CutPrefix(word, "N@")
	if !ok {
		return ng.leaf(word)
	}
	return ng.resolve(name)
}

// resolve parses the definition of the group.
func (ng *nodegroups) resolve(name string) (node, error) {
	value, ok := ng.defined[name]
	if !ok {
		return nil, ng.unknown(name)
	}
	if slices.Contains(ng.within, name) {
		path := strings.Join(append(slices.Clone(ng.within), name), " -> ")
		return nil, fmt.Errorf("%w %q: it contains itself: %s", ErrNodegroup, name, path)
	}
	words, err := definition(value)
	if err != nil {
		return nil, fmt.Errorf("%w %q: %w", ErrNodegroup, name, err)
	}
	ng.within = append(ng.within, name)
	defer func() { ng.within = ng.within[:len(ng.within)-1] }()
	n, err := ng.parse(asList(words))
	if err != nil {
		return nil, fmt.Errorf("%w %q: %w: %w", ErrNodegroup, name, ErrSyntax, err)
	}
	switch n.(type) {
	case *leaf, group, noneOf:
		return n, nil
	}
	return group{n}, nil
}

func (ng *nodegroups) unknown(name string) error {
	err := fmt.Errorf("%w %q: it is not defined", ErrNodegroup, name)
	if len(ng.within) > 0 {
		return fmt.Errorf("%w, but %q names it", err, ng.within[len(ng.within)-1])
	}
	if len(ng.defined) == 0 {
		return salt.WithHint(err, "define it under nodegroups in the configuration of the master")
	}
	names := make([]string, 0, len(ng.defined))
	for k := range ng.defined {
		names = append(names, k)
	}
	slices.Sort(names)
	return salt.WithHint(err, "the nodegroups are "+strings.Join(names[:min(len(names), 20)], ", "))
}

// definition reads the value of a group: a string of words, or a list of words.
func definition(value any) ([]string, error) {
	switch x := value.(type) {
	case string:
		return strings.Fields(x), nil
	case []string:
		return checkWords(x)
	case []any:
		words := make([]string, len(x))
		for i, v := range x {
			s, ok := v.(string)
			if !ok {
				return nil, salt.WithHint(fmt.Errorf("item %d of its list is not text: %v", i+1, v), "write it in quotes")
			}
			words[i] = s
		}
		return checkWords(words)
	}
	return nil, fmt.Errorf("its value is neither text nor a list")
}

// checkWords refuses empty words and white space within words, since a published expression cannot
// contain them.
func checkWords(words []string) ([]string, error) {
	for i, w := range words {
		if fields := strings.Fields(w); len(fields) != 1 || fields[0] != w {
			err := fmt.Errorf("item %d of its list, %q, is not one word", i+1, w)
			return nil, salt.WithHint(err, "each operator is an item of its own; a question mark matches a blank: G@roles:front?end")
		}
	}
	return words, nil
}

func isOperator(word string) bool {
	return slices.Contains([]string{"and", "or", "not", "(", ")"}, word)
}

// asList converts a group without operators, letters and stars into the list of minions that it is,
// or into a regular expression if it looks like one. This is Salt's rule.
func asList(words []string) []string {
	regexpLike := false
	for _, w := range words {
		kind, _, _ := splitWord(w)
		if isOperator(w) || kind != Glob || strings.Contains(w, "*") {
			return words
		}
		regexpLike = regexpLike || strings.ContainsAny(w, `([{\?}])`)
	}
	joined := strings.Join(words, ",")
	if regexpLike {
		return []string{"E@" + joined}
	}
	return []string{"L@" + joined}
}
