package salt

// Command is one function with its arguments, in the types of package value. If a person or a
// function wrote the command, texts in it are parsed like words on a command line: the master reads
// 5 as a number and k=v as a keyword.
type Command struct {
	Function Function
	Args     []any
	Kwargs   map[string]any
}

// Target is an unparsed target: package target parses it.
type Target struct{ Expression, Kind string }

// Reach is which other functions a call may run. The zero value is none.
type Reach struct {
	Free     bool     `json:"free,omitempty"`     // any: an operator requested it, or it was authorised when it was stored
	Programs bool     `json:"programs,omitempty"` // what custom programs choose to call: an operator requested this very call
	Judged   []string `json:"judged,omitempty"`   // keys of the commands inside it, at any depth, that were allowed
	Hidden   []string `json:"hidden,omitempty"`   // keys of those whose further calls cannot be known beforehand
}
