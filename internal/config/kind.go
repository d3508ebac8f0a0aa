package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/yamlfile"
)

// setting is one key of a configuration, bound to the field that it fills.
type setting struct {
	key   string
	to    any    // points to the field
	of    any    // points to its struct
	rule  string // what the value may be, beyond the type of the field
	below bool   // root_dir is put before its paths
}

// kind returns what reads and shows the value of the setting. It is made when it is needed: a program that
// starts needs few.
func (s setting) kind() kind {
	k := kindOf(s.to, s.rule, s.of)
	if k == nil {
		panic(fmt.Sprintf("config: %s: nothing is known about %q", s.key, s.rule))
	}
	return k
}

// kind reads and shows the value of one setting.
type kind interface {
	set(Located) error
	// get returns the field as data, in the unit of the setting's bare numbers.
	get() any
}

// field is a kind for a field of type T.
type field[T any] struct {
	to    *T
	parse func(*yaml.Node) (T, error)
	show  func(T) any // nil if T is data already
}

func (f field[T]) set(l Located) error {
	v, err := f.parse(l.Node)
	if err == nil {
		*f.to = v
	}
	return err
}

func (f field[T]) get() any {
	if f.show != nil {
		return f.show(*f.to)
	}
	return *f.to
}

// text is any single value, as it is written.
func text(to *string) kind { return field[string]{to: to, parse: parseText} }

// path is the name of a file or directory, which may not be empty.
func path(to *string) kind {
	return field[string]{to: to, parse: func(n *yaml.Node) (string, error) {
		s, err := parseText(n)
		if err == nil && s == "" {
			err = errors.New("it must be a path, not empty")
		}
		return s, err
	}}
}

// fileName is the name of a file in a directory that another setting names.
func fileName(to *string) kind {
	return field[string]{to: to, parse: func(n *yaml.Node) (string, error) {
		s, err := parseText(n)
		if err == nil && (s == "" || s[0] == '.' || strings.Contains(s, "/")) {
			err = fmt.Errorf("%q is not the bare name of a file", s)
		}
		return s, err
	}}
}

// oneOf is one of words, in any case.
func oneOf(to *string, words ...string) kind {
	return field[string]{to: to, parse: func(n *yaml.Node) (string, error) {
		s, err := parseText(n)
		if err != nil {
			return "", err
		}
		for _, w := range words {
			if strings.EqualFold(s, w) {
				return w, nil
			}
		}
		err = fmt.Errorf("%q is not one of %s", s, strings.Join(words, ", "))
		if near := suggest(strings.ToLower(s), words); near != "" {
			err = salt.WithHint(err, fmt.Sprintf("did you mean %q?", near))
		}
		return "", err
	}}
}

// boolean is a YAML 1.1 boolean without quotes. Salt takes any text for true, even a quoted
// "False"; here that is an error, so it cannot be misread.
func boolean(to *bool) kind { return field[bool]{to: to, parse: parseBool} }

// choice is a boolean that may also be left to the program.
func choice(to **bool) kind {
	return field[*bool]{to: to, parse: func(n *yaml.Node) (*bool, error) {
		b, err := parseBool(n)
		return &b, err
	}, show: showPointer[bool]}
}

// integer is a whole number from low to high.
func integer(to *int, low, high int) kind {
	return field[int]{to: to, parse: parseInt(low, high), show: func(i int) any { return int64(i) }}
}

// count is an integer that may be left unset.
func count(to **int, low, high int) kind {
	return field[*int]{to: to, parse: func(n *yaml.Node) (*int, error) {
		i, err := parseInt(low, high)(n)
		return &i, err
	}, show: func(p *int) any {
		if p == nil {
			return nil
		}
		return int64(*p)
	}}
}

// duration is a time from low to high: a number of units, or text such as 90s, 1h30m, 7d. A
// negative low allows Salt's -1, which means "not set".
func duration(to *time.Duration, unit, low, high time.Duration) kind {
	parse := func(n *yaml.Node) (time.Duration, error) {
		s, err := parseText(n)
		if err != nil {
			return 0, err
		}
		d, err := salt.ParseDuration(yamlfile.Plain(s), unit)
		if err == nil && (d < low || d > high) {
			err = fmt.Errorf("%s is not in the range from %s to %s", s, showDuration(low), showDuration(high))
		}
		return d, err
	}
	return field[time.Duration]{to: to, parse: parse, show: func(d time.Duration) any {
		if d%unit == 0 {
			return int64(d / unit)
		}
		return float64(d) / float64(unit)
	}}
}

// size is a number of bytes from low to high: 1048576, 512MiB, 1GB.
func size(to *int64, low, high int64) kind {
	return field[int64]{to: to, parse: func(n *yaml.Node) (int64, error) {
		s, err := parseText(n)
		if err != nil {
			return 0, err
		}
		b, err := salt.ParseSize(yamlfile.Plain(s))
		if err == nil && (b < low || b > high) {
			err = fmt.Errorf("%s is not in the range from %d to %d bytes", s, low, high)
		}
		return b, err
	}}
}

// list is a sequence of texts; a single text is a list of one.
func list(to *[]string) kind {
	return field[[]string]{to: to, parse: parseList, show: showList}
}

// modules is a list of module names. An entry that cannot be one is an error: it would leave
// enabled what it is meant to disable.
func modules(to *[]string) kind {
	return field[[]string]{to: to, parse: func(n *yaml.Node) ([]string, error) {
		names, err := parseList(n)
		for _, name := range names {
			if strings.ContainsAny(name, ".*?[]^$ ,") {
				return nil, salt.WithHint(fmt.Errorf("%q is not the name of a module", name), "name whole modules, as cmd; single functions are refused by publisher_acl_blacklist of the master")
			}
		}
		return names, err
	}, show: showList}
}

// texts is a text, or a list of several; an empty text is none.
func texts(to *[]string) kind {
	return field[[]string]{to: to, parse: func(n *yaml.Node) ([]string, error) {
		words, err := parseList(n)
		return slices.DeleteFunc(words, func(w string) bool { return w == "" }), err
	}, show: func(words []string) any {
		if len(words) < 2 {
			return strings.Join(words, "")
		}
		return showList(words)
	}}
}

// commaList is a list whose single text may hold several, as a,b.
func commaList(to *[]string) kind {
	return field[[]string]{to: to, parse: func(n *yaml.Node) ([]string, error) {
		words, err := parseList(n)
		if err != nil || n.Kind == yaml.SequenceNode {
			return words, err
		}
		words = strings.Split(words[0], ",")
		for i, w := range words {
			words[i] = strings.TrimSpace(w)
		}
		return slices.DeleteFunc(words, func(w string) bool { return w == "" }), nil
	}, show: showList}
}

// roots is a map from an environment to its directories.
func roots(to *map[string][]string) kind {
	parse := func(n *yaml.Node) (map[string][]string, error) {
		if n.Kind != yaml.MappingNode {
			return nil, yamlfile.WrongKind(n, "a map from an environment to a list of directories")
		}
		m := make(map[string][]string, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			dirs := n.Content[i+1]
			words, err := parseList(dirs)
			if err != nil && !yamlfile.IsNull(dirs) {
				return nil, err
			}
			m[n.Content[i].Value] = words
		}
		return m, nil
	}
	return field[map[string][]string]{to: to, parse: parse, show: func(m map[string][]string) any {
		data := make(map[string]any, len(m))
		for env, dirs := range m {
			data[env] = showList(dirs)
		}
		return data
	}}
}

// data is a map of anything.
func data(to *map[string]any) kind {
	return field[map[string]any]{to: to, parse: func(n *yaml.Node) (map[string]any, error) {
		m, ok := yamlfile.Value(n).(map[string]any)
		if !ok {
			return nil, yamlfile.WrongKind(n, "a map")
		}
		return m, nil
	}, show: func(m map[string]any) any { return m }}
}

// elsewhere is a setting that another package parses.
type elsewhere struct{ to *Located }

func (e elsewhere) set(l Located) error { *e.to = l; return nil }
func (e elsewhere) get() any            { return e.to.Value() }

// parseText returns a scalar as written. Texts become paths, names and log lines, so control
// characters, which quoted YAML can hold, are refused.
func parseText(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode {
		return "", yamlfile.WrongKind(n, "a single value")
	}
	s, ok := yamlfile.Value(n).(string) // not n.Value, which is encoded for !!binary
	if !ok {
		s = n.Value
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return "", fmt.Errorf("%q contains a control character", yamlfile.Shorten(s))
	}
	return s, nil
}

func parseBool(n *yaml.Node) (bool, error) {
	if b, ok := yamlfile.Value(n).(bool); ok {
		return b, nil
	}
	return false, salt.WithHint(yamlfile.WrongKind(n, "true or false"), "write the word true or false, without quotes")
}

func parseInt(low, high int) func(*yaml.Node) (int, error) {
	return func(n *yaml.Node) (int, error) {
		s, err := parseText(n)
		if err != nil {
			return 0, err
		}
		i, ok := yamlfile.Word(s).(int64)
		if !ok {
			return 0, yamlfile.WrongKind(n, "a whole number")
		}
		if i < int64(low) || i > int64(high) {
			return 0, fmt.Errorf("%s is not in the range from %d to %d", s, low, high)
		}
		return int(i), nil
	}
}

func parseList(n *yaml.Node) ([]string, error) {
	if n.Kind == yaml.ScalarNode {
		n = &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{n}}
	}
	if n.Kind != yaml.SequenceNode {
		return nil, yamlfile.WrongKind(n, "a list")
	}
	words := make([]string, len(n.Content))
	for i, c := range n.Content {
		if c.Kind != yaml.ScalarNode || yamlfile.IsNull(c) {
			return nil, fmt.Errorf("entry %d: %w", i+1, yamlfile.WrongKind(c, "a single value"))
		}
		var err error
		if words[i], err = parseText(c); err != nil {
			return nil, err
		}
	}
	return words, nil
}

// showDuration writes whole days as days and other durations as Go does, without zero minutes
// and seconds.
func showDuration(d time.Duration) string {
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func showList(words []string) any {
	s := make([]any, len(words))
	for i, w := range words {
		s[i] = w
	}
	return s
}

func showPointer[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}
