package argument

import (
	"errors"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// Errors of Compound: the words do not match the functions.
var (
	ErrTooFew  = errors.New("cannot execute compound command without defining all arguments")
	ErrTooMany = errors.New("cannot execute compound command with more arguments than commands")
)

// Compound assigns the words of a compound command (test.ping,test.echo , hello) to its functions
// and returns one list for each function.
//
// Separators that are words of their own are used if their number fits; otherwise each separator
// inside a word counts too, as in "id,hello". No words mean no arguments for any function. A single
// function gets all words, including separators.
func Compound(funs, words []string, separator string) ([][]string, error) {
	if len(funs) == 1 {
		return [][]string{words}, nil
	}
	if len(words) == 0 {
		return make([][]string, len(funs)), nil
	}
	if separator == "" {
		return nil, errors.New("the separator of arguments is empty")
	}
	lists := divide(words, separator)
	if len(lists) != len(funs) {
		lists = divideWithin(words, separator)
	}
	hint := "separate the arguments of one function from those of the next by the word " + separator
	switch {
	case len(lists) < len(funs):
		return nil, salt.WithHint(ErrTooFew, hint)
	case len(lists) > len(funs):
		return nil, salt.WithHint(ErrTooMany, hint+" and choose another one with --args-separator if it occurs in an argument")
	}
	return lists, nil
}

// divide starts a new list at each word that is the separator.
func divide(words []string, separator string) [][]string {
	lists := [][]string{nil}
	for _, word := range words {
		if word == separator {
			lists = append(lists, nil)
			continue
		}
		last := len(lists) - 1
		lists[last] = append(lists[last], word)
	}
	return lists
}

// divideWithin starts a new list at each separator, also inside words. Empty parts of a word with a
// separator are dropped.
func divideWithin(words []string, separator string) [][]string {
	var parts []string
	for _, word := range words {
		for i, part := range strings.Split(word, separator) {
			if i > 0 {
				parts = append(parts, separator)
			}
			if part != "" || word == "" {
				parts = append(parts, part)
			}
		}
	}
	return divide(parts, separator)
}

// List splits the word after -L into minion ids: at commas, without blanks, or at blanks if there
// is no comma. An empty part between commas becomes an empty id, which matches no minion.
func List(word string) []string {
	if strings.Contains(word, ",") {
		return strings.Split(strings.ReplaceAll(word, " ", ""), ",")
	}
	return slices.Clip(strings.Fields(word))
}
