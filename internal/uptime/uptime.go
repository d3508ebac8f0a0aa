// Package uptime reads a clock that also goes on while the machine is suspended, and that nobody sets. The clock by
// which package time measures stands still then: after a pause of a virtual machine, or of a laptop, what
// holds for a second by that clock may have held for hours.
package uptime

import "time"

// Moment is a time of this clock; the zero value is none.
type Moment time.Duration

// Now returns the present time.
func Now() Moment { return Moment(read()) }

// IsZero reports whether it is no time.
func (m Moment) IsZero() bool { return m == 0 }

// Add returns the time that is so much later.
func (m Moment) Add(d time.Duration) Moment { return m + Moment(d) }

// Sub returns how much later than the other one this is.
func (m Moment) Sub(other Moment) time.Duration { return time.Duration(m - other) }

var begun = time.Now()

// elapsed is the time of the process, which is not zero.
func elapsed() time.Duration { return time.Since(begun) + 1 }
