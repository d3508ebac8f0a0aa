package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/salt"
)

// A setting is one field with tags and nothing else; its comment becomes the text of the
// setting in doc/configuration.md.
//
//	yaml     the key
//	is       what the value may be, beyond the type of the field; see below
//	default  as it would be written in a file; {daemon} is master or minion
//
// What a value may be:
//
//	path            the name of a file or directory that must be somewhere
//	file            the name of a file in a directory that another setting names
//	one of a b c    one of these words
//	1..10           a whole number, or a size such as 1MiB..1GiB, in that range
//	s 0..365d       a time in that range, whose bare numbers are seconds; ms, m, h likewise
//	modules         names of modules
//	commas          a list whose single text may hold several, as a,b
//	texts           a text, or a list of several
//	domain          a domain, true or false
//	master type, masters   of those two settings alone
//	below root      a path that root_dir is put before; of a list, before relative ones
//
// A range may be open at its end. A field without such a tag accepts any value of its type; a
// *bool or *int may be left to the program, and a Located is parsed by another package.

// bind returns the settings of the struct that to points to, sorted by key, and fills in their
// defaults.
func bind(to any, daemon string) []setting {
	v := reflect.ValueOf(to).Elem()
	list := make([]setting, 0, v.NumField())
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		key := tag.Get("yaml")
		if key == "" || key == "-" {
			continue
		}
		rule, below := strings.CutSuffix(tag.Get("is"), "below root")
		s := setting{key: key, to: v.Field(i).Addr().Interface(), of: to, rule: strings.TrimSpace(rule), below: below}
		if text, ok := tag.Lookup("default"); ok {
			s.setDefault(strings.ReplaceAll(text, "{daemon}", daemon))
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b setting) int { return strings.Compare(a.key, b.key) })
	return list
}

// setDefault fills in a default. Most are texts and booleans, which need no reader. That of file_roots is
// the directory of its environment base.
func (s setting) setDefault(text string) {
	switch to := s.to.(type) {
	case *string:
		*to = text
	case *bool:
		*to = text == "true"
	case *map[string][]string:
		*to = map[string][]string{"base": {text}}
	default:
		if err := s.kind().set(Located{Node: &yaml.Node{Kind: yaml.ScalarNode, Value: text}}); err != nil {
			panic(fmt.Sprintf("config: the default of %s: %v", s.key, err))
		}
	}
}

// kindOf returns the kind that reads the field to points to, under a rule; nil if there is
// none. of is the struct of the field.
func kindOf(to any, rule string, of any) kind {
	words, isWords := strings.CutPrefix(rule, "one of ")
	switch to := to.(type) {
	case *string:
		if isWords {
			return oneOf(to, strings.Fields(words)...)
		}
		return textKinds[rule](to)
	case *[]string:
		if rule == "masters" {
			return masters{of.(*Minion)}
		}
		return listKinds[rule](to)
	case *time.Duration:
		unit, limits, _ := strings.Cut(rule, " ")
		low, high := durationRange(limits)
		return duration(to, units[unit], low, high)
	case *int64:
		low, high := sizeRange(rule)
		return size(to, low, high)
	case *int, **int:
		return numberKind(to, rule)
	}
	if rule != "" {
		return nil
	}
	return plainKind(to)
}

// plainKind returns the kind of a field without a rule, by its type.
func plainKind(to any) kind {
	switch to := to.(type) {
	case *bool:
		return boolean(to)
	case **bool:
		return choice(to)
	case *Located:
		return elsewhere{to}
	case *map[string]any:
		return data(to)
	case *map[string][]string:
		return roots(to)
	case *salt.MinionID:
		return minionID(to)
	}
	return nil
}

// textKinds are the kinds of text, by their rules.
var textKinds = map[string]func(*string) kind{"": text, "path": path, "file": fileName, "domain": domain, "master type": masterType}

// listKinds are those of lists.
var listKinds = map[string]func(*[]string) kind{"": list, "modules": modules, "texts": texts, "commas": commaList}

// units are the units of bare numbers.
var units = map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour}

func numberKind(to any, rule string) kind {
	low, high := sizeRange(rule)
	if p, ok := to.(**int); ok {
		return count(p, int(low), int(high))
	}
	return integer(to.(*int), int(low), int(high))
}

// durationRange reads 0..365d; an open end is the longest duration.
func durationRange(rule string) (low, high time.Duration) {
	from, until, ok := strings.Cut(rule, "..")
	low, err := salt.ParseDuration(from, time.Second)
	high = maxDuration
	if err == nil && until != "" {
		high, err = salt.ParseDuration(until, time.Second)
	}
	if err != nil || !ok {
		panic(fmt.Sprintf("config: %q is not a range of times", rule))
	}
	return low, high
}

// sizeRange reads 1MiB..1GiB, and 1..10.
func sizeRange(rule string) (low, high int64) {
	from, until, ok := strings.Cut(rule, "..")
	low, err := signed(from)
	if err == nil {
		high, err = signed(until)
	}
	if err != nil || !ok {
		panic(fmt.Sprintf("config: %q is not a range", rule))
	}
	return low, high
}

// signed reads a size or a number, which may be negative.
func signed(text string) (int64, error) {
	if rest, ok := strings.CutPrefix(text, "-"); ok {
		n, err := salt.ParseSize(rest)
		return -n, err
	}
	return salt.ParseSize(text)
}
