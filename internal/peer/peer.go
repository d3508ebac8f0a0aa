// Package peer is the client side of a minion that reaches other minions through the master: it
// publishes to them, runs runners, and reads and writes the mine. It sends the request over a
// connection and collects the answers. The master alone decides what is permitted, and who gets
// it.
package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Client implements function.Publisher and module.Mine over a connection to the master, or to
// the minion's daemon, which passes requests on.
type Client struct {
	Conn func(master string) *rpc.Conn // to this master, or "" for any; nil for none
}

// Away is the error for op if the minion has no connection to a master. The first text is
// Salt's.
func Away(op string) error {
	if op == protocol.OpPublish || op == protocol.OpRun {
		return errors.New("Cannot run publish commands without a connection to a salt master. No command sent")
	}
	return errors.New("no master is connected")
}

// Publish implements function.Publisher.
func (c Client) Publish(ctx context.Context, p function.Publication) ([]function.Answer, error) {
	stream, err := c.call(p.Via, protocol.OpPublish, request(p))
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var start job.Start
	if err := stream.Decode(ctx, &start); err != nil {
		return nil, meaning(err)
	}
	if p.Check || p.Async {
		return expected(start, ""), nil
	}
	heard, err := gather(ctx, stream)
	if err != nil {
		return nil, meaning(err)
	}
	answers := expected(start, string(job.Silent))
	for i := range answers {
		if u, ok := heard[answers[i].ID]; ok {
			answers[i] = answer(u)
			answers[i].JID = start.JID
		}
	}
	return answers, nil
}

func request(p function.Publication) protocol.Publish {
	q := protocol.Publish{
		Target: p.Target, TargetType: p.TargetType, Compound: p.Compound, Returner: p.Returner, Via: p.Via,
		Timeout: job.Seconds(p.Timeout.Seconds()), Preview: p.Check, Async: p.Async, Lines: true,
	}
	for _, c := range p.Calls {
		q.Commands = append(q.Commands, job.Command{Function: c.Function, Args: c.Args, Kwargs: c.Kwargs})
	}
	return q
}

// gather reads the progress of a job to its end, and returns the latest update for each minion.
func gather(ctx context.Context, s *rpc.Stream) (map[salt.MinionID]job.Update, error) {
	heard := map[salt.MinionID]job.Update{}
	for {
		b, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			return heard, nil
		}
		if err != nil {
			return nil, err
		}
		for line := range bytes.SplitSeq(b, []byte("\n")) {
			u, err := job.ReadUpdate(line)
			if err != nil {
				return nil, fmt.Errorf("unreadable message of the master: %w", err)
			}
			heard[u.ID] = u
		}
	}
}

// expected returns the minions of a job before any has answered.
func expected(start job.Start, text string) []function.Answer {
	var list []function.Answer
	for _, id := range start.Minions {
		list = append(list, function.Answer{JID: start.JID, ID: id, Text: text})
	}
	for _, id := range start.Missing {
		list = append(list, function.Answer{JID: start.JID, ID: id, Text: "no accepted key has this id"})
	}
	return list
}

func answer(u job.Update) function.Answer {
	a := function.Answer{ID: u.ID, Returned: u.State.Returned(), Failed: u.State != job.Done, Return: u.Return.V, Out: u.Out, Retcode: u.Retcode.V, Text: u.Text}
	if !a.Returned {
		a.Text = strings.TrimSuffix(string(u.State)+", "+u.Text, ", ")
	}
	return a
}

// Runner implements function.Publisher.
func (c Client) Runner(ctx context.Context, q function.RunnerCall) (a function.RunnerAnswer, err error) {
	if q.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, q.Timeout, fmt.Errorf("%s did not return within %s", q.Function, q.Timeout))
		defer cancel()
	}
	stream, err := c.call("", protocol.OpRun, protocol.Run{Command: job.Command(q.Command), Wheel: q.Wheel, Async: q.Async})
	if err != nil {
		return a, err
	}
	defer stream.Close()
	var begun protocol.RunStart
	if err := stream.Decode(ctx, &begun); err != nil {
		return a, meaning(err)
	}
	a.JID, a.Tag = begun.JID, begun.Tag
	if q.Async {
		return a, nil
	}
	var res protocol.RunResult
	if err := stream.Decode(ctx, &res); err != nil {
		return a, meaning(err)
	}
	a.Return, a.Out, a.Retcode = res.Return.V, res.Out, res.Retcode
	return a, failure(res)
}

// failure is the error of a runner that has failed, nil for one that has returned.
func failure(res protocol.RunResult) error {
	switch {
	case res.Error == "":
		return nil
	case res.Retcode == protocol.RunRefused:
		return marked{errors.New(res.Error), function.ErrRefused}
	}
	return errors.New(res.Error)
}

func (c Client) call(master, op string, in any) (*rpc.Stream, error) {
	conn := c.Conn(master)
	if conn == nil {
		return nil, fmt.Errorf("%w: %w", function.ErrUnavailable, Away(op))
	}
	return conn.Call(op, in)
}

// meaning converts the error codes of the bus for package function, which does not know them.
// The texts stay the master's.
func meaning(err error) error {
	switch rpc.CodeOf(err) {
	case rpc.Denied:
		return marked{err, function.ErrRefused}
	case rpc.NoMatch:
		return marked{err, function.ErrNoMatch}
	case rpc.Unavailable:
		return marked{err, function.ErrUnavailable}
	}
	return err
}

// marked is an error that also matches another one.
type marked struct {
	error
	as error
}

func (m marked) Unwrap() []error { return []error{m.error, m.as} }
