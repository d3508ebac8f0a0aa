package chaos

import (
	"fmt"
	"slices"
	"strings"
)

// id names an event: what its sender calls it.
type id struct {
	stream string // one sender, one bus
	n      int
}

// sent is an event that a command was given, in the order of its stream.
type sent struct {
	id
	command int // the events of one command stand in order, whatever became of it
	acked   bool
}

// stored is an event that a bus shows, in the order of the bus.
type stored struct {
	id
	journal string // of several; "" where there is one
	seq     int
}

// findings are the events that are not as promised.
type findings struct{ lost, twice, disorder []string }

// judge compares what was sent with what a bus shows.
func judge(all []sent, shown []stored) findings {
	var f findings
	known := map[id]sent{}
	for _, s := range all {
		known[s.id] = s
	}
	count, first := map[id]int{}, map[id]stored{}
	last := map[[2]string]sent{}   // acknowledged, by journal and stream
	lastOf := map[[3]string]sent{} // by journal, stream and command
	for _, e := range shown {
		s, ok := known[e.id]
		if count[e.id]++; count[e.id] == 1 {
			first[e.id] = e
		}
		if !ok || count[e.id] > 1 {
			if ok && count[e.id] == 2 {
				one := first[e.id]
				f.twice = append(f.twice, e.stream+fmt.Sprintf(" %d at sequence %d", e.n, one.seq)+of(one.journal)+fmt.Sprintf(" again at sequence %d", e.seq)+of(e.journal))
			}
			continue
		}
		there := [2]string{e.journal, s.stream}
		of := [3]string{e.journal, s.stream, fmt.Sprint(s.command)}
		before := max(lastOf[of].n, last[there].n*btoi(s.acked))
		if s.n < before {
			f.disorder = append(f.disorder, fmt.Sprintf("%s %d behind %d", s.stream, s.n, before))
		}
		lastOf[of] = s
		if s.acked {
			last[there] = s
		}
	}
	for _, s := range all {
		if s.acked && count[s.id] == 0 {
			f.lost = append(f.lost, fmt.Sprintf("%s %d", s.stream, s.n))
		}
	}
	return f
}

// of names a journal, if there are several.
func of(journal string) string {
	if journal == "" {
		return ""
	}
	return " of " + journal
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// missed says which acknowledged events somebody did not hear.
func missed(all []sent, heard []stored) []string {
	has := map[id]bool{}
	for _, e := range heard {
		has[e.id] = true
	}
	var out []string
	for _, s := range all {
		if s.acked && !has[s.id] {
			out = append(out, fmt.Sprintf("%s %d was not heard", s.stream, s.n))
		}
	}
	return out
}

// sequences knows which event has which sequence on a bus, forever.
type sequences map[int]id

// see takes note of what is shown and returns the sequences that stand for another event now.
func (s sequences) see(shown []stored) []string {
	var out []string
	for _, e := range shown {
		if was, ok := s[e.seq]; ok && was != e.id {
			out = append(out, fmt.Sprintf("sequence %d was %v and is %v", e.seq, was, e.id))
		}
		s[e.seq] = e.id
	}
	return out
}

// word is what a job says of a minion.
type word struct {
	state, text string
	returned    bool // there is a return
	queued      bool // it waits for the minion
	told        bool // its caller was told that it is done
	touched     bool // the fault was about the minion
	ran         int  // the effects on the minion
}

// unfinished are states of which no more may be left once all daemons are there.
var unfinished = strings.Fields("sent received running queued")

// untrue says what is wrong with a last word, or nothing.
func (w word) untrue() string {
	switch {
	case slices.Contains(unfinished, w.state), w.state == "":
		return fmt.Sprintf("no last word, %q", w.state)
	case w.state == "done" && w.ran == 0:
		return "done, but it did not run"
	case w.state == "done" && !w.returned:
		return "done, but there is no return"
	case w.state != "done" && w.told:
		return fmt.Sprintf("%s (%s), but the caller was told that it is done", w.state, w.text)
	case w.open() && !w.touched:
		return fmt.Sprintf("%s (%s), but nothing has happened to the minion", w.state, w.text)
	case w.state != "done" && w.ran > 0 && !w.open():
		return fmt.Sprintf("%s (%s), but it ran", w.state, w.text)
	case w.state != "done" && w.queued && !w.open():
		return fmt.Sprintf("%s (%s), but it was to wait for the minion", w.state, w.text)
	}
	return ""
}

// open says that the word claims nothing about whether the command ran: it was begun, and the
// daemon that ran it was killed.
func (w word) open() bool { return w.state == "killed" || w.state == "failed" }
