package target

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/brinebus/brine/internal/salt"
)

// maxDepth limits nested parentheses and nodegroups: each level costs stack.
const maxDepth = 200

// maxWords limits a compound with its nodegroups resolved. If groups name others twice, the size
// doubles with each level.
const maxWords = 50000

// node is a parsed expression or a part of it.
type node interface {
	match(f Facts) (bool, error)
	// words appends the node as words of a compound.
	words(in []string) []string
	needs(n need) bool
	// names appends the only ids that can match, if they are known.
	names(in []string) ([]string, bool)
}

// need is a kind of facts that an answer may depend on.
type need int

const (
	needGrains need = iota
	needPillar
)

// allOf and anyOf evaluate their parts in order and stop when the answer is known.
type (
	allOf  []node
	anyOf  []node
	noneOf struct{ node }
	// group is a part in parentheses.
	group struct{ node }
)

func (a allOf) match(f Facts) (bool, error) {
	for _, n := range a {
		if ok, err := n.match(f); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (a anyOf) match(f Facts) (bool, error) {
	for _, n := range a {
		if ok, err := n.match(f); ok || err != nil {
			return ok && err == nil, err
		}
	}
	return false, nil
}

func (n noneOf) match(f Facts) (bool, error) {
	ok, err := n.node.match(f)
	return !ok && err == nil, err
}

func (a allOf) words(in []string) []string { return join(a, "and", in) }
func (a anyOf) words(in []string) []string { return join(a, "or", in) }

func join(parts []node, operator string, in []string) []string {
	for i, n := range parts {
		if i > 0 {
			in = append(in, operator)
		}
		in = n.words(in)
	}
	return in
}

func (n noneOf) words(in []string) []string { return n.node.words(append(in, "not")) }

func (g group) words(in []string) []string {
	return append(g.node.words(append(in, "(")), ")")
}

func (a allOf) needs(n need) bool { return anyNeeds(a, n) }
func (a anyOf) needs(n need) bool { return anyNeeds(a, n) }

func anyNeeds(parts []node, n need) bool {
	for _, part := range parts {
		if part.needs(n) {
			return true
		}
	}
	return false
}

func (a allOf) names(in []string) ([]string, bool)  { return in, false }
func (n noneOf) names(in []string) ([]string, bool) { return in, false }

func (a anyOf) names(in []string) ([]string, bool) {
	for _, n := range a {
		var ok bool
		if in, ok = n.names(in); !ok {
			return nil, false
		}
	}
	return in, true
}

// compound parses the words of one expression: that of the user, or the definition of one
// nodegroup.
type compound struct {
	list   []string
	pos    int
	depth  int
	groups *nodegroups
}

// wrong returns an error about the word before or at the position.
func (c *compound) wrong(pos int, format string, args ...any) error {
	return fmt.Errorf("word %d, %.200q: %s", pos+1, c.list[pos], fmt.Sprintf(format, args...))
}

// next returns the next word, or "" at the end.
func (c *compound) next() string {
	if c.pos >= len(c.list) {
		return ""
	}
	return c.list[c.pos]
}

// all parses all words.
func (c *compound) all() (node, error) {
	if len(c.list) == 0 {
		return nil, errors.New("it is empty")
	}
	n, err := c.or()
	if err != nil {
		return nil, err
	}
	if c.pos < len(c.list) {
		return nil, c.leftOver()
	}
	return n, nil
}

// leftOver returns the error for a word that cannot follow the words before it.
func (c *compound) leftOver() error {
	if c.next() == ")" {
		return c.wrong(c.pos, "it closes nothing")
	}
	return salt.WithHint(c.wrong(c.pos, `it follows %q without "and" or "or" between them`, c.list[c.pos-1]),
		"parentheses are words of their own, and the separator of L@a,b has no blanks")
}

func (c *compound) or() (node, error) {
	first, err := c.and()
	if err != nil || c.next() != "or" {
		return first, err
	}
	parts := anyOf{first}
	for c.next() == "or" {
		c.pos++
		n, err := c.and()
		if err != nil {
			return nil, err
		}
		parts = append(parts, n)
	}
	return parts, nil
}

// and parses parts joined by "and"; "a not b" means "a and not b".
func (c *compound) and() (node, error) {
	first, err := c.not()
	if err != nil || c.next() != "and" && c.next() != "not" {
		return first, err
	}
	parts := allOf{first}
	for c.next() == "and" || c.next() == "not" {
		if c.next() == "and" {
			c.pos++
		}
		n, err := c.not()
		if err != nil {
			return nil, err
		}
		parts = append(parts, n)
	}
	return parts, nil
}

func (c *compound) not() (node, error) {
	if c.next() != "not" {
		return c.operand()
	}
	c.pos++
	if c.next() == "not" {
		return nil, c.wrong(c.pos, `it follows another "not"`)
	}
	n, err := c.operand()
	if err != nil {
		return nil, err
	}
	if _, twice := n.(noneOf); twice { // a nodegroup; parentheses would be a group
		return nil, salt.WithHint(c.wrong(c.pos-1, `it begins with "not" and follows another`), "put the definition of the nodegroup into parentheses")
	}
	return noneOf{n}, nil
}

// operand parses a word that matches minions, or parentheses.
func (c *compound) operand() (node, error) {
	at := c.pos
	if at >= len(c.list) {
		return nil, fmt.Errorf("it ends after %q", c.list[at-1])
	}
	c.pos++
	switch word := c.list[at]; word {
	case "and", "or":
		return nil, c.wrong(at, "there is nothing before it to join")
	case ")":
		return nil, c.wrong(at, "there is nothing before it to close")
	case "(":
		return c.parentheses(at)
	default:
		n, err := c.groups.word(word)
		if err != nil {
			return nil, fmt.Errorf("word %d, %.200q: %w", at+1, word, err)
		}
		return n, nil
	}
}

func (c *compound) parentheses(at int) (node, error) {
	if c.depth++; c.depth > maxDepth {
		return nil, c.wrong(at, "more than %d parentheses within each other", maxDepth)
	}
	defer func() { c.depth-- }()
	n, err := c.or()
	if err != nil {
		return nil, err
	}
	if c.next() != ")" {
		if c.pos < len(c.list) {
			return nil, c.leftOver()
		}
		return nil, c.wrong(at, "it is never closed")
	}
	c.pos++
	return group{n}, nil
}

// engines has the letters that can precede the @ of a word.
var engines = map[byte]Kind{
	'E': PCRE, 'G': Grain, 'I': Pillar, 'J': PillarPCRE, 'L': List, 'N': Nodegroup, 'P': GrainPCRE, 'S': IPCIDR,
}

// splitWord splits off the letter and its delimiter: G|@os|Debian. A word without a letter that
// Salt knows is a glob, since ids may contain an @.
func splitWord(word string) (kind Kind, delimiter, expr string) {
	if len(word) < 2 || word[0] != 'R' && engines[word[0]] == "" {
		return Glob, "", word
	}
	kind = engines[word[0]]
	rest := word[1:]
	if strings.IndexByte("GPIJ", word[0]) >= 0 {
		_, n := utf8.DecodeRuneInString(rest)
		if after, ok := strings.CutPrefix(rest[n:], "@"); ok && after != "" {
			return kind, rest[:n], after
		}
	}
	if after, ok := strings.CutPrefix(rest, "@"); ok {
		return kind, defaultDelimiter, after
	}
	return Glob, "", word
}

// leaf parses a word that is not a nodegroup.
func (ng *nodegroups) leaf(word string) (node, error) {
	kind, delimiter, expr := splitWord(word)
	switch {
	case kind == "":
		return nil, errors.New("ranges (R@) are not supported")
	case expr == "" && kind != List:
		return nil, errors.New("nothing follows the @")
	}
	return ng.cost.leaf(expr, kind, delimiter)
}
