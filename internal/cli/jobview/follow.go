// Package jobview shows the course of a job that the master tells: returns as they
// arrive, what commands write while they run, who is missing and why, and the exit
// code that all of it means. It is for the commands that wait for jobs; it starts
// none.
package jobview

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/rpc"
)

// startTime bounds how long the master may take to begin a job.
const startTime = 30 * time.Second

// End says what of a job is to be seen.
type End int

// The ends: its whole course, its id, or only whom it would go to.
const (
	Whole End = iota
	Started
	Previewed
)

// Follow asks for a job by op and shows its course to the end. It closes the
// output.
func (s *Show) Follow(ctx context.Context, conn *rpc.Conn, op string, request any, end End) error {
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
	stream, err := conn.Call(op, request)
	if err != nil {
		return client.Error(err)
	}
	start, err := begun(ctx, stream)
	if err != nil {
		return err
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
	err = lines(ctx, stream, s.update)
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
		return client.Error(err)
	}
	return s.verdict()
}

// watched is WhileRead, where results go to standard output.
func (s *Show) watched(ctx context.Context) (context.Context, func(), error) {
	if s.toFile {
		return ctx, func() {}, nil
	}
	return s.env.WhileRead(ctx)
}

func begun(ctx context.Context, stream *rpc.Stream) (start job.Start, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := stream.Decode(ctx, &start); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return start, cli.Fail(cli.Unavailable, fmt.Errorf("the master did not start the job within %s", startTime))
		}
		return start, client.Error(err)
	}
	return start, nil
}
