package jobview

import (
	"io"
	"strings"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/salt"
)

// stream prints what commands write while they run, a line at a time, each behind
// the id of its minion. People see it where the command wrote it; beside a
// document for programs all of it goes to standard error.
type stream struct {
	people   bool
	terminal bool
	out, err io.Writer
	begun    map[salt.MinionID]bool // something of its command was shown
	whole    map[salt.MinionID]bool // all that its command has written was
}

func (s *stream) write(u job.Update) error {
	if len(u.Output) > 0 {
		s.begun[u.ID] = true
	}
	if u.OutputEnd {
		s.whole[u.ID] = s.people && s.begun[u.ID]
	}
	for _, part := range u.Output {
		out := s.err
		if s.people && !part.Error {
			out = s.out
		}
		text, _ := part.Text.V.(string)
		if _, err := io.WriteString(out, s.marked(string(u.ID)+": ", text)); err != nil {
			return err
		}
	}
	return nil
}

// marked puts the mark before each line, and an end behind the last.
func (s *stream) marked(mark, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if s.terminal {
			line = logging.Escape(line)
		}
		b.WriteString(mark + line + "\n")
	}
	return b.String()
}
