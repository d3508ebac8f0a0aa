package cli

// Options are what a command line has given: values of options, and other words. An option that is
// not known reads like one that is not given and has no default. The zero value has nothing.
type Options struct {
	byName grammar
	given  map[Option][]string // values as they were written; a switch has empty ones
	args   []string
}

func newOptions(byName grammar, given map[Option][]string, args []string, getenv func(string) string) *Options {
	for _, f := range byName {
		if name := f.variable(); name != "" && given[f] == nil && getenv(name) != "" {
			given[f] = []string{getenv(name)}
		}
	}
	return &Options{byName, given, args}
}

// has reports whether f is given.
func (o *Options) has(f Option) bool { return o.given[f] != nil }

// IsSet reports whether the option is given, by the command line or the environment.
func (o *Options) IsSet(name string) bool { return o.has(o.byName[name]) }

// Bool returns the value of a Bool.
func (o *Options) Bool(name string) bool {
	f, ok := o.byName[name].(*Bool)
	return ok && (f.Value || o.has(f))
}

// String returns the value of a String: the last one, if it is given several times.
func (o *Options) String(name string) string {
	f, ok := o.byName[name].(*String)
	if !ok {
		return ""
	}
	if text, given := o.last(f); given {
		return text
	}
	return f.Value
}

// Int returns the value of an Int, likewise.
func (o *Options) Int(name string) int {
	f, ok := o.byName[name].(*Int)
	if !ok {
		return 0
	}
	if text, given := o.last(f); given {
		n, _ := parseInt(text) // it was checked
		return n
	}
	return f.Value
}

// Strings returns all values of a Strings.
func (o *Options) Strings(name string) []string {
	f, ok := o.byName[name].(*Strings)
	if !ok {
		return nil
	}
	if o.has(f) {
		return o.given[f]
	}
	return f.Value
}

func (o *Options) last(f Option) (text string, given bool) {
	all := o.given[f]
	if len(all) == 0 {
		return "", false
	}
	return all[len(all)-1], true
}

// Args returns the words that are neither options nor their values.
func (o *Options) Args() []string { return o.args }

// Arg returns one of these words, "" if there are fewer.
func (o *Options) Arg(i int) string {
	if i >= len(o.args) {
		return ""
	}
	return o.args[i]
}

// NArg returns the number of these words.
func (o *Options) NArg() int { return len(o.args) }
