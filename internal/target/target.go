// Package target decides which minions an expression means: globs, regular
// expressions, lists, grains, pillar, addresses, nodegroups and the compound of
// them all, as the salt command and every access rule write them.
//
//	web*
//	G@os:Debian and ( E@web\d+ or L@db1,db2 ) and not I@role:test
//
// An expression is parsed once and then matched against the facts of one minion
// at a time. What cannot be understood is an error at the parsing and never an
// empty match, since "no minion matched" would hide the mistake. The package
// knows no minions: where facts come from, and which minions exist, is the
// caller's knowledge.
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
	// ErrSyntax: the expression cannot be understood.
	ErrSyntax = errors.New("invalid target expression")
	// ErrNodegroup: a nodegroup that is unknown, contains itself or has no
	// expression as its value. What comes with ErrSyntax beside it is a mistake
	// in the definition of a known group.
	ErrNodegroup = errors.New("invalid nodegroup")
	// ErrKind: a kind of target that does not exist.
	ErrKind = errors.New("unknown target type")
	// ErrTooExpensive: the answer was not found within the bounds of Match.
	ErrTooExpensive = errors.New("target is too expensive to match")
)

// MaxPattern is the longest glob or grain expression in bytes; regular
// expressions have the bound of package pyre. Lists have none of ours: ten
// thousand names are an honest target.
const MaxPattern = 4096

// Kind is the language of an expression, by Salt's name for it.
type Kind string

// The kinds, by the names that travel in jobs and events as tgt_type.
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

// kinds lists them for ParseKind and its message.
var kinds = []Kind{Compound, Glob, Grain, GrainPCRE, IPCIDR, List, Nodegroup, PCRE, Pillar, PillarExact, PillarPCRE}

// ParseKind reads a tgt_type. A name written with capitals is refused, as Salt
// does; so is the empty one: a caller that means the default says Glob.
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

// Facts are what one minion is known by. Grains and Pillar hold the types of
// package value; nil means that nothing is known, so nothing there matches.
// Match reads them and keeps nothing.
type Facts struct {
	ID     salt.MinionID
	Grains map[string]any
	Pillar map[string]any
}

// Options are what an expression depends on beside its text.
type Options struct {
	// Delimiter between the keys of a grain or pillar expression; empty means
	// a colon. It does not reach into compounds, where each word may bring
	// its own: G|@ec2|tags. PillarPCRE takes no other than a colon, since Salt's
	// minions do not look at it, except in a Question.
	Delimiter string
	// Question: the expression is asked about, as by match.*, and is no job's.
	Question bool
	// Nodegroups by name, each a string or a list of strings, as in the
	// master's configuration.
	Nodegroups map[string]any
}

// Target is a parsed expression. It may be used by many goroutines at once.
type Target struct {
	kind    Kind
	text    string // as written, normalised
	root    node
	cost    cost
	expired atomic.Bool // a match took too long: the next would as well
}

// Parse reads an expression of the given kind. Words of a list are separated by
// commas, words of a compound by white space.
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

// onlyColon refuses another delimiter for the target of a job. Salt's master would take it,
// its minions not.
func onlyColon(expr string, opt Options) error {
	delimiter := opt.Delimiter
	if delimiter == defaultDelimiter || opt.Question {
		return nil
	}
	return salt.WithHint(errors.New("regular expressions of pillar have no delimiter but the colon"),
		"in a compound each word may bring its own: J"+delimiter+"@"+expr)
}

// Text writes a target that was given as a value: a list of names for the kind list, and of
// words for a compound; any other kind takes a text, or a number that is one.
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

// Match tells whether the minion with these facts is meant. An error means that
// it is not known; the minion must then be left out. After a match that took too
// long all further ones fail at once, so that a target costs its bound only once
// and not for each of ten thousand minions.
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

// String returns the expression as it was written, except that the words of a
// compound have one blank between them. Parsing it again gives the same target.
func (t *Target) String() string { return t.text }

// Published returns the expression with its nodegroups resolved: what is sent to
// minions, which know no nodegroups. A delimiter must travel beside it.
func (t *Target) Published() (expr string, kind Kind) {
	switch t.kind {
	case Nodegroup, Compound:
		return strings.Join(t.root.words(nil), " "), Compound
	}
	return t.text, t.kind
}

// NeedsGrains tells whether the answer depends on grains; without them a minion
// of which nothing is stored cannot be judged.
func (t *Target) NeedsGrains() bool { return t.root.needs(needGrains) }

// NeedsPillar tells whether the answer depends on pillar.
func (t *Target) NeedsPillar() bool { return t.root.needs(needPillar) }

// IDs returns the only ids that can match, in the order written, if the
// expression names them: a list, a glob without wildcards, or a compound of
// those joined by "or". For all other expressions it returns false. Names that
// no minion can have are left out; Impossible has them.
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

// Impossible returns the names that the expression lists and no minion can have,
// such as "web 2", so that a caller can report them as missing.
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

// unique drops repetitions and keeps the order.
func unique(names []string) []string {
	seen := make(map[string]bool, len(names))
	return slices.DeleteFunc(slices.Clone(names), func(s string) bool {
		before := seen[s]
		seen[s] = true
		return before
	})
}
