package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Command is one function with its arguments: nil, bool, string, numbers, and slices and
// maps with texts as keys, of these.
type Command struct {
	Function string
	Args     []any
	Kwargs   map[string]any
}

// Call is a [Command] with positional arguments.
func Call(function string, args ...any) Command { return Command{Function: function, Args: args} }

func (c Command) wire() (job.Command, error) {
	f, err := salt.ParseFunction(c.Function)
	if err != nil {
		return job.Command{}, failure{err, ErrUsage}
	}
	out := job.Command{Function: f, Kwargs: map[string]any{}}
	for _, v := range c.Args {
		v, err := value.Plain(v)
		if err != nil {
			return out, failure{fmt.Errorf("argument of %s: %w", f, err), ErrUsage}
		}
		out.Args = append(out.Args, v)
	}
	for k, v := range c.Kwargs {
		if out.Kwargs[k], err = value.Plain(v); err != nil {
			return out, failure{fmt.Errorf("argument %s of %s: %w", k, f, err), ErrUsage}
		}
	}
	return out, nil
}

// Target says which minions are meant: an expression, and its type, in the words of Salt:
// glob (also for ""), list, pcre, grain, grain_pcre, pillar, pillar_pcre, nodegroup, ipcidr,
// compound.
type Target struct {
	Expr      string
	Type      string
	Delimiter string // between the levels of a grain or pillar target; ":" for ""
}

// Glob is the target of the minions whose ids match a shell pattern.
func Glob(pattern string) Target { return Target{Expr: pattern} }

// RunOptions change how a job is run. The zero value is usual.
type RunOptions struct {
	Timeout  time.Duration // give up minions that say nothing for so long; 0 is 5 seconds
	Batch    string        // run on "N" or "N%" of the minions at a time
	Subset   int           // run on so many of the minions, at random
	Queue    time.Duration // leave the job for minions that are away, for so long
	Metadata any           // for the events of the job
	Output   bool          // hear what commands write while they run, by [Job.Updates]
	Detach   bool          // leave the job to the master: no returns come, see [Conn.Follow]

	BatchWait    time.Duration // until the place in a batch of one that has ended is taken again
	BatchMaxFail string        // "N" or "N%" of the minions may fail, then no further one begins
	SafeLimit    int           // of more minions than these,
	SafeSize     int           // so many run at a time where Batch is ""

	Returners      string         // where minions put their returns besides, with commas
	ReturnTag      string         // the tag for the returner master_bus
	ReturnerConfig string         // another set of the returners' settings
	ReturnerKwargs map[string]any // single ones of them
}

// last are the options that count; without any they are the usual ones.
func last[T any](opts []T) (o T) {
	if len(opts) > 0 {
		o = opts[len(opts)-1]
	}
	return o
}

// put sets what the options say.
func (o RunOptions) put(q *protocol.Publish) (err error) {
	q.Timeout, q.Queue, q.Subset, q.Follow = job.Seconds(o.Timeout.Seconds()), job.Seconds(o.Queue.Seconds()), o.Subset, o.Output
	q.Async = o.Detach
	q.Batch = job.BatchOptions{Size: o.Batch, Wait: job.Seconds(o.BatchWait.Seconds()), MaxFail: o.BatchMaxFail, SafeLimit: o.SafeLimit, SafeSize: o.SafeSize}
	q.Returner, q.ReturnTag, q.ReturnConfig = o.Returners, o.ReturnTag, o.ReturnerConfig
	if q.Metadata.V, err = value.Plain(o.Metadata); err != nil {
		return failure{fmt.Errorf("metadata: %w", err), ErrUsage}
	}
	if o.ReturnerKwargs == nil {
		return nil
	}
	if q.ReturnKwargs.V, err = value.Plain(o.ReturnerKwargs); err != nil {
		return failure{fmt.Errorf("settings of returners: %w", err), ErrUsage}
	}
	return nil
}

// Job is a job that was started. The master goes on with it whatever becomes of the Job.
type Job struct {
	ID      string   // its jid
	Minions []string // those that the target means
	Missing []string // named by a list, but not known

	conn   *Conn
	stream *rpc.Stream
	lines  [][]byte
}

// Run starts a job. Its returns come by [Job.Returns].
func (c *Conn) Run(ctx context.Context, t Target, cmd Command, opts ...RunOptions) (*Job, error) {
	return c.publish(ctx, t, []Command{cmd}, opts, func(*protocol.Publish) {})
}

// RunAll starts a job of several commands, which each minion runs one after the other. What it
// returns is a map by function.
func (c *Conn) RunAll(ctx context.Context, t Target, cmds []Command, opts ...RunOptions) (*Job, error) {
	return c.publish(ctx, t, cmds, opts, func(q *protocol.Publish) { q.Compound = true })
}

// Publish starts a job and leaves it to the master. It returns its jid, for [Conn.Follow].
func (c *Conn) Publish(ctx context.Context, t Target, cmd Command, opts ...RunOptions) (jid string, err error) {
	j, err := c.publish(ctx, t, []Command{cmd}, opts, func(q *protocol.Publish) { q.Async = true })
	if err != nil {
		return "", err
	}
	j.Close()
	return j.ID, nil
}

// Preview returns the minions that a job would be for. It is judged as the job would be, and
// nothing runs. Without commands it is judged by the target alone.
func (c *Conn) Preview(ctx context.Context, t Target, cmds []Command, opts ...RunOptions) ([]string, error) {
	j, err := c.publish(ctx, t, cmds, opts, func(q *protocol.Publish) { q.Preview, q.Async = true, false })
	if err != nil {
		return nil, err
	}
	j.Close()
	return j.Minions, nil
}

// Follow watches a job that was started before, from its beginning.
func (c *Conn) Follow(ctx context.Context, jid string) (*Job, error) {
	id, err := salt.ParseJID(jid)
	if err != nil {
		return nil, failure{err, ErrUsage}
	}
	return c.job(ctx, protocol.OpFollow, protocol.Follow{JID: id})
}

func (c *Conn) publish(ctx context.Context, t Target, cmds []Command, opts []RunOptions, also func(*protocol.Publish)) (*Job, error) {
	q := protocol.Publish{Target: t.Expr, TargetType: cmp.Or(t.Type, "glob"), Delimiter: t.Delimiter, Lines: true}
	for _, cmd := range cmds {
		command, err := cmd.wire()
		if err != nil {
			return nil, err
		}
		q.Commands = append(q.Commands, command)
	}
	if err := last(opts).put(&q); err != nil {
		return nil, err
	}
	also(&q)
	return c.job(ctx, protocol.OpPublish, q)
}

// job asks for a job and reads how it begins.
func (c *Conn) job(ctx context.Context, op string, q any) (*Job, error) {
	stream, err := c.rpc.Call(op, q)
	if err != nil {
		return nil, known(err)
	}
	var start job.Start
	if err := stream.Decode(ctx, &start); err != nil {
		stream.Close()
		return nil, known(err)
	}
	return &Job{ID: string(start.JID), Minions: texts(start.Minions), Missing: texts(start.Missing), conn: c, stream: stream}, nil
}

func texts(ids []salt.MinionID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}

// Status says how a job has ended on a minion.
type Status string

// How a job ends. With Done, Failed and Killed the minion has returned something.
const (
	Done         Status = Status(job.Done)
	Failed       Status = Status(job.Failed)
	Killed       Status = Status(job.Killed)
	Refused      Status = Status(job.Refused)      // the minion would not run it, and says why
	Expired      Status = Status(job.Expired)      // it came too late
	Cancelled    Status = Status(job.Cancelled)    // it was never sent
	NotTargeted  Status = Status(job.NotTargeted)  // by its live facts the target does not mean it
	NotConnected Status = Status(job.NotConnected) // it was away
	Silent       Status = Status(job.Silent)       // it is connected, and said nothing in time
)

// Where a job stands on a minion before that, in an [Update].
const (
	Queued       Status = Status(job.Queued)       // not sent yet
	Received     Status = Status(job.Received)     // the minion has it
	Running      Status = Status(job.Running)      // it works on it
	Disconnected Status = Status(job.Disconnected) // it was lost meanwhile, and may come back
)

// Return is how a job has ended on one minion.
type Return struct {
	Minion  string
	Status  Status
	Value   any    // what the function returned
	Retcode int    // of the function
	Text    string // why, where the minion did not return
	// Outputter is what the function would have its value shown by, one of those of 'salt --out'; "" is
	// the usual one.
	Outputter string
	// Each is how each function of [Conn.RunAll] has ended, by name; there is no Retcode then.
	Each map[string]Outcome
}

// Outcome is how one of several functions has ended.
type Outcome struct {
	Retcode int
	OK      bool
}

// OK says whether the function has succeeded.
func (r Return) OK() bool { return r.Status == Done }

// Returned says whether the minion has returned something, whatever that is.
func (r Return) Returned() bool { return job.State(r.Status).Returned() }

// Returns are those of the job as they arrive, one for each minion, to the end of the job. An
// error is the last thing that comes.
func (j *Job) Returns(ctx context.Context) iter.Seq2[Return, error] {
	return func(yield func(Return, error) bool) {
		for u, err := range j.updates(ctx) {
			if (err != nil || u.State.Final()) && !yield(returned(u), err) {
				return
			}
		}
	}
}

// Update is a step of a job on one minion: a receipt, what a command has written, or the return.
// Of a batch it may be that minions begin now; then Minion is "".
type Update struct {
	Return          // with a Status that says where it stands, and a Value if it has returned
	Output []Output // what a command has written since the last one, see RunOptions.Output
	// OutputEnd says that no more of it comes, and that nothing was left out.
	OutputEnd bool
	Begun     []string
}

// Final says whether this was the last of its minion.
func (u Update) Final() bool { return job.State(u.Status).Final() && u.Minion != "" }

// Output is what a command has written: some lines, the last of which may have no end.
type Output struct {
	Error bool   // to its standard error
	Text  string // as it was written; it need not be UTF-8
}

// Updates are the steps of the job as they happen, to its end. It takes the place of
// [Job.Returns]. An error is the last thing that comes.
func (j *Job) Updates(ctx context.Context) iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		for u, err := range j.updates(ctx) {
			step := Update{Return: returned(u), OutputEnd: u.OutputEnd, Begun: texts(u.Begun)}
			for _, o := range u.Output {
				text, _ := o.Text.V.(string)
				step.Output = append(step.Output, Output{o.Error, text})
			}
			if !yield(step, err) {
				return
			}
		}
	}
}

// Lines are the steps of the job as the daemon has written them, each one document of JSON on one line with id, state,
// return and what else there is: for who passes them on, or wants the members of what was returned in the order in
// which the minion has them. They take the place of [Job.Updates]. An error is the last thing that comes.
func (j *Job) Lines(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		defer j.Close()
		for {
			line, err := j.line(ctx)
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(line, err) || err != nil {
				return
			}
		}
	}
}

// updates are those of the daemon, and an error if they end by one.
func (j *Job) updates(ctx context.Context) iter.Seq2[job.Update, error] {
	return func(yield func(job.Update, error) bool) {
		for line, err := range j.Lines(ctx) {
			var u job.Update
			if err == nil {
				if u, err = job.ReadUpdate(line); err != nil {
					err = fmt.Errorf("unreadable answer: %w", err)
				}
			}
			if !yield(u, err) || err != nil {
				return
			}
		}
	}
}

// line waits for the next step; io.EOF is the end of the job.
func (j *Job) line(ctx context.Context) ([]byte, error) {
	for len(j.lines) == 0 {
		b, err := j.stream.Next(ctx)
		if err != nil && b == nil {
			return nil, known(err)
		}
		j.lines = bytes.Split(b, []byte("\n"))
	}
	line := j.lines[0]
	j.lines = j.lines[1:]
	return line, nil
}

func returned(u job.Update) Return {
	code, _ := u.Retcode.V.(int64)
	return Return{Minion: string(u.ID), Status: Status(u.State), Value: u.Return.V, Retcode: int(code), Text: u.Text, Outputter: u.Out, Each: outcomes(u)}
}

// outcomes are those of compound commands, nil for a function alone.
func outcomes(u job.Update) map[string]Outcome {
	codes, _ := u.Retcode.V.(map[string]any)
	successes, _ := u.Success.V.(map[string]any)
	if codes == nil && successes == nil {
		return nil
	}
	each := map[string]Outcome{}
	for f, v := range codes {
		code, _ := v.(int64)
		each[f] = Outcome{Retcode: int(code)}
	}
	for f, v := range successes {
		ok, _ := v.(bool)
		each[f] = Outcome{each[f].Retcode, ok}
	}
	return each
}

// Close ends the interest in the job, which goes on. It may be called more than once.
func (j *Job) Close() { j.stream.Close() }
