package jobview

import (
	"fmt"
	"io"
	"strings"
)

// bar is the progress bar of a job on a terminal: how many of its minions have ended. A nil bar
// does nothing. It is on the last line, and hidden while something is printed.
type bar struct {
	out         io.Writer
	all, done   int
	begun, seen bool
}

const barWidth = 40

func (b *bar) begin(all int) {
	if b == nil {
		return
	}
	b.all, b.begun = all, true
	b.draw()
}

func (b *bar) step() {
	if b != nil {
		b.done++
	}
}

// draw shows the bar.
func (b *bar) draw() {
	if b == nil || !b.begun || b.all == 0 {
		return
	}
	full := barWidth * b.done / b.all
	fmt.Fprintf(b.out, "\r\x1b[K[%s%s] %d/%d %d%%", strings.Repeat("#", full), strings.Repeat(" ", barWidth-full), b.done, b.all, 100*b.done/b.all)
	b.seen = true
}

// hide removes the bar from the terminal.
func (b *bar) hide() {
	if b == nil || !b.seen {
		return
	}
	io.WriteString(b.out, "\r\x1b[K")
	b.seen = false
}
