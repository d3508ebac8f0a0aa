// Package target decides which minions an expression matches: globs, regular expressions,
// lists, grains, pillar, addresses, nodegroups and compounds of them, as in the salt command
// and in every access rule.
//
//	web*
//	G@os:Debian and ( E@web\d+ or L@db1,db2 ) and not I@role:test
//
// An expression is parsed once and then matched with the facts of one minion at a time. An
// invalid expression is an error when it is parsed and never an empty match, since "no minion
// matched" would hide the mistake. The package knows no minions: the caller knows which exist,
// and has their facts.
package target

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target/pyre"
	"github.com/brinebus/brine/internal/value"
)

// Errors that Parse and Match wrap.
var (
	// ErrSyntax: the expression is invalid.
	ErrSyntax = errors.New("invalid target expression")
	// ErrNodegroup: a nodegroup is unknown, contains itself or has no expression as its value. If
	// the error also wraps ErrSyntax, the definition of a known group has an error.
	ErrNodegroup = errors.New("invalid nodegroup")
	// ErrKind: the target type does not exist.
	ErrKind = errors.New("unknown target type")
	// ErrTooExpensive: the answer was not found within the limits of Match.
	ErrTooExpensive = errors.New("target is too expensive to match")
)

// MaxPattern is the longest glob or grain expression in bytes; package pyre limits regular
// expressions. Lists have no such limit: ten thousand names are a legitimate target.
const MaxPattern = 4096

// Kind is the type of an expression, by Salt's name for it.
type Kind string

// The kinds, by the names that jobs and events use as tgt_type.
const (
	Glob        Kind = "glob"
	PCRE        Kind = "pcre"
	List        Kind = "list"
	Grain       Kind = "grain"
	GrainPCRE   Kind = "grain_pcre"
	Pillar      Kind = "pillar"
	PillarPCRE  Kind = "pillar_pcre"
	PillarExact Kind = "pillar_exact"
	IPCIDR      Kind = "ipcidr"
	Nodegroup   Kind = "nodegroup"
	Compound    Kind = "compound"
)

// kinds lists them for ParseKind and its error message.
var kinds = []Kind{Compound, Glob, Grain, GrainPCRE, IPCIDR, List, Nodegroup, PCRE, Pillar, PillarExact, PillarPCRE}

// ParseKind parses a tgt_type. A name with capital letters is refused, as in Salt; so is the empty
// one: a caller that means the default passes Glob.
func ParseKind(s string) (Kind, error) {
	if k := Kind(s); slices.Contains(kinds, k) {
		return k, nil
	}
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	err := fmt.Errorf("%w %.40q", ErrKind, s)
	return "", salt.WithHint(err, "the types are "+strings.Join(names, ", "))
}

// Facts is what is known of one minion. Grains and Pillar contain the types of package value; nil
// means that nothing is known, so nothing matches. Match does not change them or keep them.
type Facts struct {
	ID     salt.MinionID
	Grains map[string]any
	Pillar map[string]any
}

// Options are further input to Parse besides the text.
type Options struct {
	// Delimiter between the keys of a grain or pillar expression; empty means a colon. It does not
	// apply to words of compounds, which may have their own: G|@ec2|tags. PillarPCRE accepts only a
	// colon, since Salt's minions ignore the delimiter there, except in a Question.
	Delimiter string
	// Question: the expression is only evaluated, as by match.*, and not the target of a job.
	Question bool
	// Nodegroups by name, each a string or a list of strings, as in the master's configuration.
	Nodegroups map[string]any
}

// Target is a parsed expression. Its methods may be called concurrently.
type Target struct {
	kind    Kind
	text    string // as written, normalised
	root    node
	cost    cost
	expired atomic.Bool // a match took too long: the next one would too
}

// Parse parses an expression of the given kind. Words of a list are separated by commas, words of a
// compound by white space.
func Parse(expr string, kind Kind, opt Options) (*Target, error) {
	if opt.Delimiter == "" {
		opt.Delimiter = defaultDelimiter
	}
	if _, err := ParseKind(string(kind)); err != nil {
		return nil, err
	}
	if len(expr) > MaxText {
		return nil, fmt.Errorf("%w: %w: it has %d bytes, the limit is %d", ErrSyntax, ErrTooExpensive, len(expr), MaxText)
	}
	t := &Target{kind: kind, text: expr}
	var err error
	ng := &nodegroups{defined: opt.Nodegroups}
	switch kind {
	case Compound:
		t.text, t.root, err = ng.expression(expr)
	case Nodegroup:
		t.root, err = ng.resolve(expr)
	case PillarPCRE:
		if err = onlyColon(expr, opt); err != nil {
			break
		}
		fallthrough
	default:
		t.root, err = ng.cost.leaf(expr, kind, opt.Delimiter)
	}
	t.cost = ng.cost
	if err != nil && kind != Nodegroup {
		return nil, fmt.Errorf("%w %.200q: %w", ErrSyntax, expr, err)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// onlyColon refuses another delimiter for the target of a job. Salt's master would accept it, but
// its minions would not.
func onlyColon(expr string, opt Options) error {
	delimiter := opt.Delimiter
	if delimiter == defaultDelimiter || opt.Question {
		return nil
	}
	return salt.WithHint(errors.New("regular expressions of pillar have no delimiter but the colon"),
		"in a compound each word may bring its own: J"+delimiter+"@"+expr)
}

// Text converts a target that was given as a value to text: a list of names for the kind list, and
// of words for a compound; any other kind accepts a text, or a number, which becomes text.
func Text(v any, kind Kind) (string, error) {
	switch x := v.(type) {
	case string:
		return x, nil
	case int64:
		if kind != List {
			return strconv.FormatInt(x, 10), nil
		}
	case []any:
		separator, ok := map[Kind]string{List: ",", Compound: " "}[kind]
		if !ok {
			return "", fmt.Errorf("a list of names is of the kind list, not %s", kind)
		}
		words := make([]string, len(x))
		for i, w := range x {
			words[i] = value.Str(w)
		}
		return strings.Join(words, separator), nil
	}
	return "", fmt.Errorf("a target is text, not %s", value.Repr(v))
}

// Match reports whether the minion with these facts is a target. An error means that this is
// unknown; the minion must then be left out. After a match that took too long all further ones fail
// at once, so that a target costs its limit only once and not for each of ten thousand minions.
func (t *Target) Match(f Facts) (bool, error) {
	if t.expired.Load() {
		return false, fmt.Errorf("%w: %q", ErrTooExpensive, t.text)
	}
	ok, err := t.root.match(f)
	if errors.Is(err, pyre.ErrTooExpensive) || errors.Is(err, ErrTooExpensive) {
		t.expired.Store(true)
		return false, fmt.Errorf("%w: %w", ErrTooExpensive, err)
	}
	return ok, err
}

// Kind returns the kind that the expression was parsed as.
func (t *Target) Kind() Kind { return t.kind }

// String returns the expression as it was written, except that the words of a compound have one
// blank between them. Parsing it again gives the same target.
func (t *Target) String() string { return t.text }

// Published returns the expression with its nodegroups resolved, as it is sent to minions, which
// know no nodegroups. A delimiter must be sent with it.
func (t *Target) Published() (expr string, kind Kind) {
	switch t.kind {
	case Nodegroup, Compound:
		return strings.Join(t.root.words(nil), " "), Compound
	}
	return t.text, t.kind
}

// NeedsGrains reports whether the answer depends on grains; if so, a minion without stored grains
// cannot be matched.
func (t *Target) NeedsGrains() bool { return t.root.needs(needGrains) }

// NeedsPillar reports whether the answer depends on pillar.
func (t *Target) NeedsPillar() bool { return t.root.needs(needPillar) }

// IDs returns the only ids that can match, in the order written, if the expression names them: a
// list, a glob without wildcards, or a compound of those joined by "or". For all other expressions
// it returns false. Names that no minion can have are left out; Impossible returns them.
func (t *Target) IDs() ([]salt.MinionID, bool) {
	names, ok := t.root.names(nil)
	if !ok {
		return nil, false
	}
	ids := []salt.MinionID{}
	for _, name := range unique(names) {
		if id, err := salt.ParseMinionID(name); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, true
}

// Impossible returns the names in the expression that no minion can have, such as "web 2", so that
// a caller can report them as missing.
func (t *Target) Impossible() []string {
	names, _ := t.root.names(nil)
	var bad []string
	for _, name := range unique(names) {
		if _, err := salt.ParseMinionID(name); err != nil {
			bad = append(bad, name)
		}
	}
	return bad
}

// unique removes repetitions and keeps the order.
func unique(names []string) []string {
	seen := make(map[string]bool, len(names))
	return slices.DeleteFunc(slices.Clone(names), func(s string) bool {
		before := seen[s]
		seen[s] = true
		return before
	})
}
