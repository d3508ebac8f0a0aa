package target

import (
	"fmt"
	"strings"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target/fnmatch"
	"github.com/brinebus/brine/internal/target/pyre"
	"github.com/brinebus/brine/internal/value"
)

const defaultDelimiter = ":"

// maxParts limits the keys of one expression: the keys may end and the pattern begin at each
// delimiter, and all of these are tried.
const maxParts = 64

// maxSteps limits the work of one match. If data contains the keys of the expression again within
// itself, the ways to read it double with each level.
const maxSteps = 20000

// data compares a value of grains or pillar: key:key:pattern.
//
// Keys and patterns may contain the delimiter themselves, so each delimiter is tried as the end of
// the keys, the last one first. Values and patterns are compared in lower case, keys exactly.
type data struct {
	kind      Kind
	expr      string
	delimiter string
	patterns  map[string]pattern // by the text after each delimiter
}

// pattern is compared with a value, in lower case.
type pattern interface {
	match(text string) (bool, error)
}

type globPattern struct{ *fnmatch.Pattern }

func (p globPattern) match(s string) (bool, error) { return p.Match(s), nil }

type regexpPattern struct{ *pyre.Regexp }

func (p regexpPattern) match(s string) (bool, error) { return p.Match(s) }

type exactPattern string

func (p exactPattern) match(s string) (bool, error) { return string(p) == s, nil }

// newData parses a grain or pillar expression.
func newData(expr string, kind Kind, delimiter string) (*data, error) {
	if !strings.Contains(expr, delimiter) {
		err := fmt.Errorf("it has no %q between key and value", delimiter)
		return nil, salt.WithHint(err, "to match every value, write "+expr+delimiter+"*")
	}
	if strings.Count(expr, delimiter) > maxParts || strings.Count(expr, defaultDelimiter) > maxParts {
		return nil, fmt.Errorf("it has more than %d keys", maxParts)
	}
	d := &data{kind: kind, expr: expr, delimiter: delimiter, patterns: map[string]pattern{}}
	if err := d.compile(); err != nil {
		return nil, err
	}
	return d, nil
}

// compile compiles each text that can become a pattern: the text after each delimiter, and in that
// the text after each colon, the delimiter of nested data.
func (d *data) compile() error {
	onlyStars := true
	for _, text := range tails(d.expr, d.delimiter) {
		err := d.add(text)
		// The longest text must be a valid pattern, otherwise an error in it would not be noticed;
		// shorter texts may begin in the middle of a regular expression.
		star := strings.HasPrefix(text, "*"+d.delimiter)
		if err != nil && onlyStars && !star && text != "*" { // it matches any map and is not a pattern
			return err
		}
		onlyStars = onlyStars && star
		for _, nested := range tails(text, defaultDelimiter) {
			_ = d.add(nested) // not a pattern: nothing can match it
		}
	}
	return nil
}

// tails returns the text after each delimiter in s, the longest first.
func tails(s, delimiter string) []string {
	var out []string
	for {
		_, after, found := strings.Cut(s, delimiter)
		if !found {
			return out
		}
		out = append(out, after)
		s = after
	}
}

func (d *data) add(text string) error {
	if _, ok := d.patterns[text]; ok {
		return nil
	}
	lower := strings.ToLower(text)
	switch d.kind {
	case PillarExact:
		d.patterns[text] = exactPattern(lower)
	case GrainPCRE, PillarPCRE:
		re, err := pyre.Compile(lower)
		if err != nil {
			return err
		}
		d.patterns[text] = regexpPattern{re}
	default:
		d.patterns[text] = globPattern{fnmatch.Compile(lower)}
	}
	return nil
}

// dataWord returns the expression as a word of a compound.
func dataWord(expr string, kind Kind, delimiter string) string {
	letter := map[Kind]string{Grain: "G", GrainPCRE: "P", Pillar: "I", PillarPCRE: "J"}[kind]
	if delimiter != defaultDelimiter {
		letter += delimiter
	}
	return letter + "@" + expr
}

func (d *data) match(f Facts) (bool, error) {
	m := f.Pillar
	if d.kind == Grain || d.kind == GrainPCRE {
		m = f.Grains
	}
	s := search{data: d}
	ok := s.expression(m, d.expr, d.delimiter)
	return ok && s.err == nil, s.err
}

// search is the state of one match. After an error all its methods return false.
type search struct {
	*data
	steps int
	err   error
}

// expression looks up expr in m, trying each delimiter as the end of the keys.
func (s *search) expression(m map[string]any, expr, delimiter string) bool {
	parts := strings.Split(expr, delimiter)
	for i := len(parts) - 1; i > 0; i-- {
		if s.steps++; s.steps > maxSteps && s.err == nil {
			s.err = fmt.Errorf("%w: %q", ErrTooExpensive, s.expr)
		}
		if s.err != nil {
			return false
		}
		if i == 1 && parts[0] == "*" {
			return s.found(m, expr)
		}
		v, ok := Lookup(m, strings.Join(parts[:i], delimiter), delimiter)
		if ok && s.found(v, strings.Join(parts[i:], delimiter)) {
			return true
		}
	}
	return false
}

// found compares the value under the keys with the rest of the expression.
func (s *search) found(v any, rest string) bool {
	switch x := v.(type) {
	case map[string]any:
		return len(x) > 0 && s.mapping(x, rest)
	case []any:
		for _, member := range x {
			if m, ok := member.(map[string]any); ok && s.mapping(m, rest) {
				return true
			}
			if s.compare(member, rest) {
				return true
			}
		}
		return false
	}
	return s.compare(v, rest)
}

// mapping compares a map: the rest may be the name of a key, a star for any key, an expression
// itself, or *: and an expression to look up under every key.
func (s *search) mapping(m map[string]any, rest string) bool {
	rest, wild := strings.CutPrefix(rest, "*"+defaultDelimiter)
	if rest == "*" {
		return true
	}
	if _, ok := m[rest]; ok {
		return true
	}
	if s.expression(m, rest, defaultDelimiter) {
		return true
	}
	return wild && s.anyKey(m, rest)
}

func (s *search) anyKey(m map[string]any, rest string) bool {
	for _, v := range m {
		switch x := v.(type) {
		case map[string]any:
			if s.mapping(x, rest) {
				return true
			}
		case []any:
			for _, member := range x {
				if s.compare(member, rest) {
					return true
				}
			}
		default:
			if s.compare(v, rest) {
				return true
			}
		}
	}
	return false
}

// compare matches one value with the text as a pattern.
func (s *search) compare(v any, rest string) bool {
	if s.err != nil {
		return false
	}
	if s.steps++; s.steps > maxSteps {
		s.err = fmt.Errorf("%w: %q", ErrTooExpensive, s.expr)
		return false
	}
	p, ok := s.patterns[rest]
	if !ok {
		return false
	}
	is := text(v)
	dear := 1
	if s.kind == GrainPCRE || s.kind == PillarPCRE {
		dear += len(rest) / patternStep
	}
	s.steps += len(is) / textStep * dear
	ok, err := p.match(strings.ToLower(is))
	if err != nil {
		s.err = err
	}
	return ok && err == nil
}

// text returns a value as Salt's matcher sees it: True, None, 2048.5, ['x', 'y'].
func text(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return value.Str(v)
}
