// Package argument converts the words of a command line to the typed arguments of a function: 5 is
// a number, yes a bool, {a: 1} a map, k=v a keyword.
//
// The types are those of Salt 3006, which is YAML 1.1 with exceptions, without the cases in which a
// word silently becomes something else; see Word. The package does not know which arguments a
// function has.
package argument

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/brinebus/brine/internal/salt"
)

// Options change how Parse reads words; the zero value is the default.
type Options struct {
	// NoParse names the keywords whose values stay text as typed (--no-parse).
	NoParse []string
}

// Parse splits the words after a function's name into positional arguments and keywords, both typed
// by Word. If a keyword is given twice, the last one counts. Both results are not nil, unless a
// word is not UTF-8 or exceeds a limit of Word.
func Parse(words []string, opt Options) (args []any, kwargs map[string]any, err error) {
	args, kwargs = []any{}, map[string]any{}
	for i, word := range words {
		if err := salt.CheckUTF8([]byte(word)); err != nil {
			return nil, nil, fmt.Errorf("argument %d: %w", i+1, err)
		}
		name, text, ok := Keyword(word)
		switch {
		case !ok:
			v, err := Word(word)
			if err != nil {
				return nil, nil, err
			}
			args = append(args, v)
		case slices.Contains(opt.NoParse, name):
			kwargs[name] = text
		default:
			if kwargs[name], err = Word(text); err != nil {
				return nil, nil, fmt.Errorf("keyword %s: %w", name, err)
			}
		}
	}
	return args, kwargs, nil
}

// Keyword splits a word of the form name=value. A name begins with a letter or an underscore and
// continues with letters, digits and _ . -; a word with a second equals sign directly after the
// first (a==b), or with a line break within the value, is not a keyword. One line break at the end
// is removed, as a pipe into --args-stdin adds it.
func Keyword(word string) (name, text string, ok bool) {
	name, text, ok = strings.Cut(word, "=")
	text = strings.TrimSuffix(text, "\n")
	if !ok || !isName(name) || strings.HasPrefix(text, "=") || strings.Contains(text, "\n") {
		return "", "", false
	}
	return name, text, true
}

func isName(s string) bool {
	for i, r := range s {
		switch {
		case r == '_', unicode.IsLetter(r), unicode.IsNumber(r) && !unicode.IsDigit(r):
		case i > 0 && (r == '.' || r == '-' || unicode.IsDigit(r)):
		default:
			return false
		}
	}
	return s != "" && utf8.ValidString(s)
}
