package cli

import "strconv"

// Option is an option of a command line: a *Bool, *String, *Int or *Strings.
type Option interface {
	// Names returns all names, without hyphens. A name of one letter is short.
	Names() []string
	// TakesValue reports whether a value follows the name.
	TakesValue() bool

	text() optionText
	variable() string
	check(value string) (want string) // "" if it is good
}

// The types of options. A Bool is a switch. Strings can be given several times; a comma is a part
// of a value.
type (
	Bool    = OptionOf[bool]
	String  = OptionOf[string]
	Int     = OptionOf[int]
	Strings = OptionOf[[]string]
)

// OptionOf is an option whose value has the type T.
type OptionOf[T bool | string | int | []string] struct {
	Name     string
	Aliases  []string
	Category string // heading in -h
	Usage    string // for -h; a word in backquotes stands for the value
	Hidden   bool   // not in -h
	Variable string // of the environment, for a String that is not given
	Value    T      // if neither is there
}

// optionText is what -h says of an option.
type optionText struct {
	category, usage string
	hidden          bool
}

// Names implements Option.
func (o *OptionOf[T]) Names() []string { return append([]string{o.Name}, o.Aliases...) }

// TakesValue implements Option.
func (o *OptionOf[T]) TakesValue() bool {
	_, isSwitch := any(o).(*Bool)
	return !isSwitch
}

func (o *OptionOf[T]) text() optionText { return optionText{o.Category, o.Usage, o.Hidden} }

func (o *OptionOf[T]) variable() string { return o.Variable }

func (o *OptionOf[T]) check(value string) (want string) {
	if _, isInt := any(o).(*Int); isInt {
		if _, err := parseInt(value); err != nil {
			return "integer"
		}
	}
	return ""
}

func parseInt(text string) (int, error) {
	n, err := strconv.ParseInt(text, 0, strconv.IntSize)
	return int(n), err
}
