// Package function is the engine that runs functions, those of minions and those of the master:
// what a function is and which parameters it has, how its arguments are checked and converted,
// how it is documented, what it may make others do, and its result. It does not decide who may
// run what, has no network code, and has no functions itself: they are passed in as a [Table].
package function

import "context"

// Module is a named set of functions.
type Module struct {
	Name      string
	Doc       string     // one sentence: what the functions have in common
	Functions []Function // sorted by name
}

// Function is one thing that a minion can run.
type Function struct {
	Name    string // without its module: "ping"
	Doc     string // what it does and returns; the first sentence is also used alone
	Example string // one or more command lines
	Params  []Param

	// Varargs takes any number of further positional arguments. Then only the
	// required parameters are positional; optional ones are given by name.
	Varargs bool
	// Kwargs takes any further arguments by name.
	Kwargs bool
	// Out names the outputter that suits the return, "" for the usual one.
	Out string

	// Class is what a function of the master does. Functions of minions have none: rules grant
	// all of them in the same way.
	Class Class
	// Own means that people need no rule for their own part of it: a Host can be restricted to
	// show and change only that.
	Own bool

	Run func(ctx context.Context, c *Call) (any, error)
	// Calls replaces Run for a function that makes others do something.
	Calls *Calls
}

// Class is what a runner or a wheel function allows its user to do. The zero value is unknown,
// as for the site's own programs, and handled as AsDaemon.
type Class int

// The classes. Shared and Changes may be granted by a pattern, Secret and AsDaemon only by
// name.
const (
	Unclassed Class = iota
	Shared          // returns shared facts: presence, jobs, grains, documentation
	Changes         // changes something on the master
	Secret          // returns pillar, files or settings of the master, or who did what
	AsDaemon        // runs functions or programs as the user of the master, or changes its cluster or store
)

// ByName reports whether such a function is granted only by rules that name it.
func (c Class) ByName() bool { return c != Shared && c != Changes }

// Param is a parameter of a function.
type Param struct {
	Name     string
	Kind     Kind
	Required bool
	Default  any // of the Go type that Kind converts to; nil prints as None
}

// Kind is the type to which an argument is converted.
type Kind int

// The kinds, and the Go types that functions get. Conversions accept what Salt's users usually
// write: 5 for text, "5" for a number, "a,b" for words.
const (
	Any    Kind = iota // any: whatever was given
	String             // string: text, also written as a number
	Int                // int
	Float              // float64
	Bool               // bool
	Path               // string: an absolute path without ".." or a final slash; ~ is the home of the minion's user
	Words              // []string: a list, or text split at commas
	List               // []any: a list, or one item of it
	Map                // map[string]any: a dictionary, or a list of one-key dictionaries
)

// String names the kind as an error message does.
func (k Kind) String() string {
	return [...]string{"anything", "text", "a whole number", "a number", "true or false",
		"an absolute path", "a list of words", "a list", "a dictionary"}[k]
}
