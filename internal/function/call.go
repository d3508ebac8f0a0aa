package function

import (
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// Call is one execution of a function: what to run, with what, and where.
// The exported fields are set by the caller of Run; a function reads its
// arguments by name through the methods.
type Call struct {
	JID      salt.JID
	Function salt.Function
	Args     []any
	Kwargs   map[string]any
	Host     *Host

	// Reach is what the call may make other functions do; the zero value is nothing.
	Reach salt.Reach

	// Begun is called when the function was found, before it runs; may be nil.
	Begun func()

	table Table // of the function
	arguments
	retcode int
}

// SetRetcode makes the job end with the given return code.
func (c *Call) SetRetcode(code int) { c.retcode = code }

// isPrivate reports keywords with job metadata; they are neither arguments nor data.
func isPrivate(keyword string) bool { return strings.HasPrefix(keyword, "__") }

// Retcode is the return code that was set, 0 by default.
func (c *Call) Retcode() int { return c.retcode }

// Table is the table of the function.
func (c *Call) Table() Table { return c.table }
