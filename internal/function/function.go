// Package function is the engine that runs functions, those of minions and those of the
// master alike: what a function is and what it takes, how its arguments are checked and
// converted, how it is documented, what it may make others do, and what became of it. It
// does not decide who may run what, it knows no network, and it has no functions of its
// own: whoever has some brings them as a [Table].
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
	Doc     string // what it does and returns; the first sentence stands alone
	Example string // one or more command lines
	Params  []Param

	// Varargs takes any number of further positional arguments. Then only the
	// required parameters are positional; optional ones are given by name.
	Varargs bool
	// Kwargs takes any further arguments by name.
	Kwargs bool
	// Out names the outputter that suits the return, "" for the usual one.
	Out string

	// Class is what a function of the master amounts to. Functions of minions have
	// none: all of them are granted alike.
	Class Class
	// Own says that a person needs no rule for what of it is their own: a Host that is
	// held to that shows and changes nothing else.
	Own bool

	Run func(ctx context.Context, c *Call) (any, error)
	// Calls is instead of Run for a function that makes others do something.
	Calls *Calls
}

// Class is what a runner or a wheel function amounts to in the hands of somebody. The
// zero value is not known, as of a program that people have added, and granted as
// AsDaemon is.
type Class int

// The classes. What is Shared or Changes may be granted by a pattern, what is Secret
// or AsDaemon only by name.
const (
	Unclassed Class = iota
	Shared          // tells what operators share: presence, jobs, grains, documentation
	Changes         // changes something of the master, as a rule for it says
	Secret          // tells pillar, files or settings of the master, or who did what
	AsDaemon        // runs functions or programs as the user of the master
)

// ByName tells whether such a function is granted only to those whose rule names it.
func (c Class) ByName() bool { return c != Shared && c != Changes }

// Param is a parameter of a function.
type Param struct {
	Name     string
	Kind     Kind
	Required bool
	Default  any // of the Go type that Kind converts to; nil prints as None
}

// Kind says what an argument is converted to before its function sees it.
type Kind int

// The kinds, and the Go type that a function receives. Conversions take what
// Salt's users are used to write: 5 for text, "5" for a number, "a,b" for words.
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
