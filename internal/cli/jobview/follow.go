// Package jobview shows the progress of a job as the master reports it: returns as they arrive,
// the output of commands while they run, which minions are missing and why, and the resulting
// exit code. It is for the commands that wait for jobs; it starts none.
package jobview

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/salt"
)

// startTime limits how long the master may take to start a job.
const startTime = 30 * time.Second

// End says how much of a job is shown.
type End int

// The values of End: all of its progress, its id, or only its target minions.
const (
	Whole End = iota
	Started
	Previewed
)

// Begin starts a job, or finds one that was started before.
type Begin func(context.Context) (*brine.Job, error)

// Follow shows the progress of a job to the end. It closes the output.
func (s *Show) Follow(ctx context.Context, begin Begin, end End) error {
	defer s.file.Close()
	defer s.log.Close()
	ctx, unwatch, err := s.watched(ctx)
	if err != nil {
		return err
	}
	defer unwatch()
	stop := func() {}
	if s.bar == nil {
		stop = s.env.Waiting(ctx, cli.Patience, s.waitingFor)
	}
	defer stop()
	running, err := begin.start(ctx)
	if err != nil {
		return err
	}
	start := startOf(running)
	if running.Unstored != "" {
		s.env.Warn(fmt.Errorf("the job and its returns are not stored until that is possible again: %s", running.Unstored))
	}
	if end != Previewed {
		s.log.Info("job", logging.KeyJID, start.JID, "minions", len(start.Minions), "missing", len(start.Missing))
	}
	switch end {
	case Previewed:
		return s.preview(start)
	case Started:
		return s.async(start)
	}
	s.begin(start)
	err = s.steps(ctx, running)
	stop()
	var signal *cli.SignalError
	if errors.As(context.Cause(ctx), &signal) {
		s.interrupted()
		return errors.Join(context.Cause(ctx), s.close())
	}
	if closed := s.close(); err == nil {
		err = closed
	}
	if err != nil {
		return client.Error(s.left(err))
	}
	return s.verdict()
}

// left adds a hint to the error when the daemon is gone, or stops: who waited needs the id to go on, and perhaps
// another master.
func (s *Show) left(err error) error {
	goesOn := fmt.Sprintf("a job that was started goes on: '%s jobs.follow %s' shows it, in a cluster at another member", s.runner, s.start.JID)
	switch {
	case errors.Is(err, brine.ErrLost):
		return cli.Fail(cli.Unavailable, salt.WithHint(err, "its log says why it ended; "+goesOn))
	case errors.Is(err, brine.ErrUnavailable) && !strings.Contains(salt.Hint(err), string(s.start.JID)):
		return salt.WithHint(err, goesOn)
	}
	return err
}

// watched is WhileRead, if results go to standard output.
func (s *Show) watched(ctx context.Context) (context.Context, func(), error) {
	if s.toFile {
		return ctx, func() {}, nil
	}
	return s.env.WhileRead(ctx)
}

// start begins the job, in bounded time.
func (b Begin) start(ctx context.Context) (*brine.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	running, err := b(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, cli.Fail(cli.Unavailable, fmt.Errorf("the master did not start the job within %s", startTime))
	}
	return running, client.Error(err)
}

// startOf is how a job begins, with the ids of its minions as such.
func startOf(running *brine.Job) job.Start {
	ids := func(names []string) []salt.MinionID {
		list := make([]salt.MinionID, len(names))
		for i, name := range names {
			list[i] = salt.MinionID(name)
		}
		return list
	}
	return job.Start{JID: salt.JID(running.ID), Minions: ids(running.Minions), Missing: ids(running.Missing)}
}

// steps shows each step of the job, with what was returned as the minion has written it.
func (s *Show) steps(ctx context.Context, running *brine.Job) error {
	for line, err := range running.Lines(ctx) {
		if err != nil {
			return err
		}
		if err := s.update(line); err != nil {
			return err
		}
	}
	return nil
}
