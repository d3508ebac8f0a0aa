// Package argument turns the words of a command line into the typed arguments
// of a function: 5 is a number, yes a truth, {a: 1} a map, k=v a keyword.
//
// The typing is that of Salt 3006, which is YAML 1.1 with exceptions, minus the
// traps in which a word silently becomes something else; see Word. The package
// does not know which arguments a function takes.
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

// Parse splits the words after a function's name into positional arguments and
// keywords, both typed by Word. Of a keyword given twice the last one counts.
// Both results are never nil, unless a word is not UTF-8 or goes beyond a limit of Word.
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

// Keyword splits a word of the form name=value. A name begins with a letter or
// an underscore and goes on with letters, digits and _ . -; neither a second
// equals sign at once (a==b) nor a line break within the value makes a keyword.
// One line break at the end is dropped, as a pipe into --args-stdin leaves it.
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
