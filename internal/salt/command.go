package salt

// Command is one function with its arguments, of the types of package value. Texts among
// those of a command that a person or a function wrote are words, as on a command line: the
// master reads 5 as a number and k=v as a keyword.
type Command struct {
	Function Function
	Args     []any
	Kwargs   map[string]any
}

// Target is a target as it is written: package target reads it.
type Target struct{ Expression, Kind string }

// Reach is what a call may make other functions do. The zero value is nothing.
type Reach struct {
	Free     bool     `json:"free,omitempty"`     // anything: an operator has asked, or it was decided about when it was stored
	Programs bool     `json:"programs,omitempty"` // what programs that people have added choose to call: an operator has asked for this very call
	Judged   []string `json:"judged,omitempty"`   // the keys of the commands inside it, to any depth, that were allowed
	Hidden   []string `json:"hidden,omitempty"`   // the keys of those of them that may do what cannot be read beforehand
}
