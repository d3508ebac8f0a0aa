package audit

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/brinebus/brine/internal/journal"
)

// The queue does not take a line of any length, and a decision without an entry takes no effect, or is a refusal
// that nobody sees. So what a request can make long is cut, and what is still too long is left out.

// maxArguments is how many bytes of arguments an entry can contain; the digest covers all of them.
const maxArguments = 64 << 10

// maxText is how many bytes of a target, of the names of functions or of a reason an entry can contain. A
// longer one is cut, and its size and digest follow; the matched minions are listed too.
const maxText = 4 << 10

// textSum is longer than the size and digest that follow a text that was cut.
const textSum = 128

// maxInner is how many inner functions an entry lists.
const maxInner = 100

// shortText returns a text as an entry contains it.
func shortText(d digester, text string) string { return cutText(d, text, maxText) }

func cutText(d digester, text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return fmt.Sprintf("%s... (%d bytes, %s)", strings.ToValidUTF8(text[:limit], ""), len(text), d.digest([]byte(text)))
}

// shorten sets what is stored of an entry that has just been made.
func (e *Entry) shorten(d digester, values bool) error {
	e.Minions = e.Minions[:min(len(e.Minions), maxMinions)]
	if len(e.Commands) > 0 {
		if err := e.describe(d, values); err != nil {
			return err
		}
		e.Commands = nil
	}
	if len(e.Inner) > maxInner {
		e.Inner = append(e.Inner[:maxInner:maxInner], fmt.Sprintf("... (%d)", len(e.Inner)))
	}
	e.Target, e.Fun, e.Reason = shortText(d, e.Target), shortText(d, e.Fun), shortText(d, e.Reason)
	_, err := e.fit(d, lineRoom)
	return err
}

// lineRoom is more than what is still added to an entry that was shortened: its number, the hash of the entry before,
// and the name of a record.
const lineRoom = 512

// leftText is how many bytes are left of each text of an entry that is still too long without all lists.
const leftText = 1 << 10

// fit returns an entry as a line that the queue takes, with room for some bytes. It leaves out what
// does not fit, the least important first, and says so.
func (e *Entry) fit(d digester, room int) ([]byte, error) {
	for _, part := range []struct {
		name string
		drop func()
	}{
		{"", func() {}},
		{"arg", func() { e.Arguments = nil }},
		{"minions", func() { e.Minions, e.Outside = nil, nil }},
		{"inner", func() { e.Inner, e.Tags = nil, nil }},
		{"texts", func() {
			for _, text := range e.texts() {
				*text = cutText(d, *text, leftText)
			}
		}},
	} {
		if part.name != "" {
			e.Omitted = append(e.Omitted[:len(e.Omitted):len(e.Omitted)], part.name)
		}
		part.drop()
		line, err := json.Marshal(e)
		if err != nil || len(line)+room <= journal.MaxEntry {
			return line, err
		}
	}
	return nil, fmt.Errorf("an entry without lists is longer than %d bytes", journal.MaxEntry)
}

// texts returns the texts of an entry that may be of any length.
func (e *Entry) texts() []*string {
	return []*string{&e.User, &e.Sudo, &e.Backend, &e.Minion, &e.Source, &e.Fun, &e.Target, &e.TargetType, &e.Finger, &e.Rule, &e.Where, &e.Reason, &e.Spooled}
}
