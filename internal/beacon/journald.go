package beacon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/process"
)

// journald watches messages in the systemd journal. It runs journalctl, and requests only the
// watched fields.
type journald struct {
	services map[string]map[string]string // by name: the fields that a message must have
	program  string
	cursor   string // of the last message that was read
	since    time.Time
}

// fieldName matches what journalctl takes for the name of a field, not for an option or a file.
var fieldName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^_{0,2}[A-Z][A-Z0-9_]{0,62}$`) })

func newJournald(s *settings) (Probe, error) {
	j := &journald{services: map[string]map[string]string{}, program: "journalctl"}
	for name, v := range s.table("services") {
		fields, ok := v.(map[string]any)
		if !ok || len(fields) == 0 {
			return nil, fmt.Errorf("services: %s: %v is not a dictionary of fields and their values, as in SYSLOG_IDENTIFIER: sshd", name, v)
		}
		j.services[name] = map[string]string{}
		for field, want := range fields {
			if !fieldName().MatchString(field) {
				return nil, fmt.Errorf("services: %s: %q is not a field of the journal: they are written in capital letters", name, field)
			}
			j.services[name][field] = fmt.Sprint(want)
		}
	}
	return j, nil
}

// maxJournal limits how many bytes are read at a time; the next look continues after the messages that were read.
const maxJournal = 4 << 20

// Look implements Probe. It begins with the messages after the first look.
func (j *journald) Look(ctx context.Context, now time.Time) ([]Event, error) {
	args := []string{"--output=json", "--no-pager", "--quiet"}
	switch {
	case j.cursor != "":
		args = append(args, "--after-cursor="+j.cursor)
	case j.since.IsZero():
		j.since = now
		return nil, j.check(ctx)
	default:
		args = append(args, "--since=@"+strconv.FormatFloat(float64(j.since.UnixMicro())/1e6, 'f', 6, 64))
	}
	e, err := j.run(ctx, append(args, j.matches()...))
	if err != nil {
		return nil, err
	}
	var events []Event
	for line := range bytes.Lines([]byte(e.Stdout)) {
		var fields map[string]any
		if json.Unmarshal(line, &fields) != nil {
			break // incomplete: it is read again
		}
		if len(events) >= MaxEvents {
			break
		}
		if cursor, ok := fields["__CURSOR"].(string); ok {
			j.cursor = cursor
		}
		events = append(events, j.events(fields)...)
	}
	return events, nil
}

// check checks that there is a readable journal.
func (j *journald) check(ctx context.Context) error {
	_, err := j.run(ctx, []string{"--output=json", "--no-pager", "--quiet", "--lines=0"})
	return err
}

func (j *journald) run(ctx context.Context, args []string) (process.Ending, error) {
	p := process.Program{Args: append([]string{j.program}, args...), Env: process.Environ(true), Timeout: lookTime, Limit: maxJournal}
	e, err := p.Run(ctx)
	if errors.Is(err, process.ErrOutput) || e.TimedOut {
		if strings.Contains(e.Stdout, "\n") {
			return e, nil // these messages are read, and the next look continues after them
		}
	}
	switch {
	case err != nil:
		return e, err
	case e.TimedOut:
		return e, errors.New("journalctl does not end")
	case e.Code != 0 && !strings.HasPrefix(e.Stdout, "{"):
		return e, e.Failure(j.program)
	}
	return e, nil
}

// matches returns the terms for journalctl: all fields of one service, or all of another.
func (j *journald) matches() (terms []string) {
	for i, name := range slices.Sorted(maps.Keys(j.services)) {
		if i > 0 {
			terms = append(terms, "+")
		}
		for _, field := range slices.Sorted(maps.Keys(j.services[name])) {
			terms = append(terms, field+"="+j.services[name][field])
		}
	}
	return terms
}

// events returns the events of one message: one for each matching service.
func (j *journald) events(fields map[string]any) (events []Event) {
	for _, name := range slices.Sorted(maps.Keys(j.services)) {
		fits := true
		for field, want := range j.services[name] {
			fits = fits && fields[field] == want
		}
		if !fits {
			continue
		}
		data := map[string]any{}
		for field, v := range fields {
			data[field] = journalValue(field, v)
		}
		data["tag"] = name
		events = append(events, Event{Tag: name, Data: data})
	}
	return events
}

// journalNumbers are the fields that are numbers, as in Salt.
var journalNumbers = []string{"CODE_LINE", "ERRNO", "LEADER", "PRIORITY", "SYSLOG_FACILITY", "SYSLOG_PID", "_AUDIT_LOGINUID", "_AUDIT_SESSION", "_GID", "_PID", "_UID"}

func journalValue(field string, v any) any {
	if text, ok := v.(string); ok && slices.Contains(journalNumbers, field) {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	}
	return v
}
