package jobview

import (
	"io"
	"strings"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/salt"
)

// stream prints the output of commands while they run, line by line, each after the id of its
// minion. For people it goes to the stream that the command wrote to; with output for programs
// all of it goes to standard error.
type stream struct {
	people   bool
	terminal bool
	out, err io.Writer
	begun    map[salt.MinionID]bool // some output of its command was shown
	whole    map[salt.MinionID]bool // all output of its command was shown
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

// marked puts the mark before each line, and a line end after the last.
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
