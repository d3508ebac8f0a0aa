package function

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// bind checks the arguments of a command against the signature of f and converts
// them. This is the only place where arguments are checked.
func (f *Function) bind(c salt.Command) (Arguments, error) {
	a := Arguments{asked: c, params: f.Params}
	if problem := a.bindAll(f); problem != "" {
		return a, &ArgumentError{Function: c.Function, Problem: problem, Signature: signature(c.Function.Module(), f)}
	}
	return a, nil
}

// bindAll returns what is wrong with the arguments, "" if nothing is.
func (a *Arguments) bindAll(f *Function) (problem string) {
	if len(f.Params) > 0 {
		a.bound = make([]any, len(f.Params))
	}
	given := make([]bool, len(f.Params))
	for i, v := range a.asked.Args {
		switch {
		case i < f.positional():
			given[i] = true
			a.bound[i] = v
		case f.Varargs:
			a.varargs = append(a.varargs, v)
		default:
			return fmt.Sprintf("takes at most %s but %d were given", salt.Count(f.positional(), "positional argument"), len(a.asked.Args))
		}
	}
	if problem := a.bindKeywords(f, given); problem != "" {
		return problem
	}
	return a.convert(f, given)
}

// positional is the number of parameters that can be given without a name.
func (f *Function) positional() int {
	if !f.Varargs {
		return len(f.Params)
	}
	n := 0
	for n < len(f.Params) && f.Params[n].Required {
		n++
	}
	return n
}

func (a *Arguments) bindKeywords(f *Function, given []bool) (problem string) {
	if f.Kwargs {
		a.extra = map[string]any{}
	}
	if len(a.asked.Kwargs) == 0 {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(a.asked.Kwargs)) {
		i := slices.IndexFunc(f.Params, func(p Param) bool { return p.Name == name })
		switch {
		case isPrivate(name):
		case i >= 0 && given[i]:
			return fmt.Sprintf("got more than one value for the argument %q", name)
		case i >= 0:
			given[i] = true
			a.bound[i] = a.asked.Kwargs[name]
		case f.Kwargs:
			a.extra[name] = a.asked.Kwargs[name]
		default:
			return unknownKeyword(f, name)
		}
	}
	return ""
}

func unknownKeyword(f *Function, name string) string {
	problem := fmt.Sprintf("unknown keyword argument %q", name)
	names := make([]string, len(f.Params))
	for i, p := range f.Params {
		names[i] = p.Name
	}
	if near := nearest(name, names); len(near) > 0 {
		problem += fmt.Sprintf(", did you mean %q?", near[0])
	}
	return problem
}

// convert brings every argument to the kind of its parameter. None for an
// optional argument means its default, as in Salt.
func (a *Arguments) convert(f *Function, given []bool) (problem string) {
	for i, p := range f.Params {
		switch {
		case !given[i] && p.Required:
			return fmt.Sprintf("missing required argument %q", p.Name)
		case !given[i], a.bound[i] == nil && !p.Required:
			a.bound[i] = p.Default
			continue
		}
		v, err := p.Kind.convert(a.bound[i])
		if err != nil {
			return fmt.Sprintf("argument %q: %v", p.Name, err)
		}
		a.bound[i] = v
	}
	return ""
}

// convert turns v into the Go type of the kind.
func (k Kind) convert(v any) (any, error) {
	if n, ok := v.(int); ok {
		v = int64(n) // a caller within the process
	}
	switch k {
	case String:
		return ToString(v)
	case Int:
		return toInt(v)
	case Float:
		return toFloat(v)
	case Bool:
		return ToBool(v)
	case Path:
		return toPath(v)
	case Words:
		return ToWords(v)
	case List:
		return toList(v)
	case Map:
		return toMap(v)
	}
	return v, nil
}

func mismatch(k Kind, v any) error {
	text := value.Repr(v)
	if len(text) > 64 {
		text = text[:64] + "..."
	}
	return fmt.Errorf("want %s, got %s", k, text)
}

// ToString converts as for a parameter of the kind String.
func ToString(v any) (string, error) {
	switch x := v.(type) {
	case string:
		return x, nil
	case int64, float64, *big.Int, bool:
		return value.Repr(x), nil
	}
	return "", mismatch(String, v)
}

func toInt(v any) (int, error) {
	switch x := v.(type) {
	case int64:
		return int(x), nil
	case bool:
		if x {
			return 1, nil
		}
		return 0, nil
	case float64:
		if x == math.Trunc(x) && math.Abs(x) < 1<<53 {
			return int(x), nil
		}
	case string:
		if n, err := strconv.Atoi(strings.TrimSpace(x)); err == nil {
			return n, nil
		}
	}
	return 0, mismatch(Int, v)
}

func toFloat(v any) (float64, error) {
	switch x := v.(type) {
	case int64:
		return float64(x), nil
	case float64:
		return x, nil
	case string:
		if f, err := strconv.ParseFloat(strings.TrimSpace(x), 64); err == nil {
			return f, nil
		}
	}
	return 0, mismatch(Float, v)
}

// ToBool converts as for a parameter of the kind Bool.
func ToBool(v any) (bool, error) {
	switch x := v.(type) {
	case bool:
		return x, nil
	case int64:
		return x != 0, nil
	case float64:
		return x != 0, nil
	case string:
		switch strings.ToLower(x) {
		case "true", "yes", "on", "1":
			return true, nil
		case "false", "no", "off", "0", "none", "":
			return false, nil
		}
	}
	return false, mismatch(Bool, v)
}

// toPath refuses a relative path, which would depend on where the minion was
// started, and one that the system would cut at a NUL.
func toPath(v any) (string, error) {
	s, ok := v.(string)
	if rest, isHome := strings.CutPrefix(s, "~"); isHome && (rest == "" || rest[0] == '/') {
		if home, err := os.UserHomeDir(); err == nil {
			s = home + rest
		}
	}
	if !ok || !filepath.IsAbs(s) || strings.Contains(s, "\x00") {
		return "", mismatch(Path, v)
	}
	return filepath.Clean(s), nil
}

// ToWords converts as for a parameter of the kind Words.
func ToWords(v any) ([]string, error) {
	list, ok := v.([]any)
	if !ok {
		s, err := ToString(v)
		if err != nil {
			return nil, mismatch(Words, v)
		}
		return SplitWords(s), nil
	}
	words := make([]string, len(list))
	for i, item := range list {
		s, err := ToString(item)
		if err != nil {
			return nil, mismatch(Words, v)
		}
		words[i] = s
	}
	return words, nil
}

// SplitWords splits at commas and drops blanks around and empty words.
func SplitWords(s string) []string {
	words := []string{}
	for word := range strings.SplitSeq(s, ",") {
		if word = strings.TrimSpace(word); word != "" {
			words = append(words, word)
		}
	}
	return words
}

func toList(v any) ([]any, error) {
	switch x := v.(type) {
	case []any:
		return x, nil
	case map[string]any, nil:
		return nil, mismatch(List, v)
	}
	return []any{v}, nil
}

// toMap takes a dictionary and the list of one-key dictionaries that YAML
// authors write for one.
func toMap(v any) (map[string]any, error) {
	switch x := v.(type) {
	case map[string]any:
		return x, nil
	case []any:
		m := map[string]any{}
		for _, item := range x {
			one, ok := item.(map[string]any)
			if !ok || len(one) != 1 {
				return nil, mismatch(Map, v)
			}
			maps.Copy(m, one)
		}
		return m, nil
	}
	return nil, mismatch(Map, v)
}
