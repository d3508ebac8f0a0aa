package service

import "github.com/brinebus/brine/internal/dispatch"

// UnconfirmedEntry returns what an entry of a table becomes that may have been removed before, see dispatch.UnconfirmedEntry.
func UnconfirmedEntry(table string, value []byte) []byte {
	return dispatch.UnconfirmedEntry(table, value)
}
