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

// Command is one function with its arguments: nil, bool, string, numbers, and slices and maps
// of these, with strings as keys.
type Command struct {
	Function string
	Args     []any
	Kwargs   map[string]any
}

// Call returns a [Command] with positional arguments.
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

// Target selects minions: an expression, and its type by Salt's name: glob (the default, also
// for ""), list, pcre, grain, grain_pcre, pillar, pillar_pcre, nodegroup, ipcidr, compound.
type Target struct {
	Expr      string
	Type      string
	Delimiter string // between the levels of a grain or pillar target; "" means ":"
}

// Glob returns the target of the minions whose ids match a shell pattern.
func Glob(pattern string) Target { return Target{Expr: pattern} }

// RunOptions change how a job is run. The zero value has the defaults.
type RunOptions struct {
	Timeout  time.Duration // how long a minion may be silent; 0 is 5 seconds
	Batch    string        // run on at most "N" or "N%" of the minions at a time
	Subset   int           // run on that many of the minions, chosen at random
	Queue    time.Duration // how long the job waits for minions that are not connected
	Metadata any           // added to the events of the job
	Output   bool          // report what commands write while they run, by [Job.Updates]
	Detach   bool          // return when the master has the job: no returns come, see [Conn.Follow]

	BatchWait    time.Duration // pause before a minion of a batch is replaced by the next one
	BatchMaxFail string        // if more than "N" or "N%" of the minions fail, no further one begins
	SafeLimit    int           // if there are more minions than this,
	SafeSize     int           // at most that many run at a time, unless Batch is set

	Returners      string         // further returners for minions to use, separated by commas
	ReturnTag      string         // the tag of the returner master_bus
	ReturnerConfig string         // the name of an alternative configuration of the returners
	ReturnerKwargs map[string]any // single settings of the returners

	// Waiting is called when the start of the job has to wait, or what its minions return, with what
	// is waited for: that the masters of a cluster elect a leader, for example. It may be nil.
	Waiting func(what string)
}

// last returns the options that count: the last ones given, or the zero value.
func last[T any](opts []T) (o T) {
	if len(opts) > 0 {
		o = opts[len(opts)-1]
	}
	return o
}

// put adds the options to a request.
func (o RunOptions) put(q *protocol.Publish) (err error) {
	q.Timeout, q.Queue, q.Subset, q.Follow = job.Seconds(o.Timeout.Seconds()), job.Seconds(o.Queue.Seconds()), o.Subset, o.Output
	q.Async, q.Waiting = o.Detach, o.Waiting != nil
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

// Job is a job that was started. The master continues it whatever happens to the Job.
type Job struct {
	ID      string   // its jid
	Minions []string // that the target matches
	Missing []string // named by a list target, but unknown
	// Unstored is why the job is not in the master's journal yet, "" if it is: most masters of the
	// cluster are not reached. It is stored, with its returns, as soon as they are.
	Unstored string

	conn    *Conn
	stream  *rpc.Stream
	waiting func(string) // see RunOptions
	lines   [][]byte
	take    func(line []byte) error
}

// Run starts a job. [Job.Returns] returns its returns.
func (c *Conn) Run(ctx context.Context, t Target, cmd Command, opts ...RunOptions) (*Job, error) {
	return c.publish(ctx, t, []Command{cmd}, opts, func(*protocol.Publish) {})
}

// RunAll starts a job of several commands, which each minion runs one after the other. The
// value of a return is a map by function.
func (c *Conn) RunAll(ctx context.Context, t Target, cmds []Command, opts ...RunOptions) (*Job, error) {
	return c.publish(ctx, t, cmds, opts, func(q *protocol.Publish) { q.Compound = true })
}

// Publish starts a job without waiting for returns. It returns the jid, for [Conn.Follow].
func (c *Conn) Publish(ctx context.Context, t Target, cmd Command, opts ...RunOptions) (jid string, err error) {
	j, err := c.publish(ctx, t, []Command{cmd}, opts, func(q *protocol.Publish) { q.Async = true })
	if err != nil {
		return "", err
	}
	j.Close()
	return j.ID, nil
}

// Preview returns the minions that a job would be sent to, without running anything. It is
// permitted if the job is. Without commands only the permission for the target is checked.
func (c *Conn) Preview(ctx context.Context, t Target, cmds []Command, opts ...RunOptions) ([]string, error) {
	j, err := c.publish(ctx, t, cmds, opts, func(q *protocol.Publish) { q.Preview, q.Async = true, false })
	if err != nil {
		return nil, err
	}
	j.Close()
	return j.Minions, nil
}

// Follow returns a job that was started before, with its returns and updates from the
// beginning.
func (c *Conn) Follow(ctx context.Context, jid string, opts ...RunOptions) (*Job, error) {
	id, err := salt.ParseJID(jid)
	if err != nil {
		return nil, failure{err, ErrUsage}
	}
	waiting := last(opts).Waiting
	return c.job(ctx, protocol.OpFollow, protocol.Follow{JID: id, Waiting: waiting != nil}, waiting)
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
	return c.job(ctx, protocol.OpPublish, q, last(opts).Waiting)
}

// job sends a request for a job and reads the start of the answer.
func (c *Conn) job(ctx context.Context, op string, q any, waiting func(string)) (*Job, error) {
	stream, err := c.rpc.Call(op, q)
	if err != nil {
		return nil, known(err)
	}
	start, err := readStart(ctx, stream, waiting)
	if err != nil {
		stream.Close()
		return nil, known(err)
	}
	return &Job{ID: string(start.JID), Minions: texts(start.Minions), Missing: texts(start.Missing), Unstored: start.Unstored, conn: c, stream: stream, waiting: waiting}, nil
}

// readStart reads the start of a job, and calls waiting, if not nil, when it has to wait.
func readStart(ctx context.Context, stream *rpc.Stream, waiting func(string)) (job.Start, error) {
	for {
		var start job.Start
		if err := stream.Decode(ctx, &start); err != nil || start.Waiting == "" {
			return start, err
		}
		if waiting != nil {
			waiting(start.Waiting)
		}
	}
}

func texts(ids []salt.MinionID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}

// Status is the state of a job on a minion.
type Status string

// Final states. With Done, Failed and Killed the minion has returned something.
const (
	Done         Status = Status(job.Done)
	Failed       Status = Status(job.Failed)
	Killed       Status = Status(job.Killed)
	Refused      Status = Status(job.Refused)      // the minion refused to run it; Text has the reason
	Expired      Status = Status(job.Expired)      // it reached the minion too late
	Cancelled    Status = Status(job.Cancelled)    // it was never sent
	NotTargeted  Status = Status(job.NotTargeted)  // according to its present facts the target does not match it
	NotConnected Status = Status(job.NotConnected) // it was not connected
	Silent       Status = Status(job.Silent)       // it is connected, but has not answered in time
)

// States before that, in an [Update].
const (
	Queued       Status = Status(job.Queued)       // not sent yet
	Received     Status = Status(job.Received)     // the minion has it
	Running      Status = Status(job.Running)      // the minion runs it
	Disconnected Status = Status(job.Disconnected) // its connection was lost, and may come back
)

// Return is the result of a job on one minion.
type Return struct {
	Minion  string
	Status  Status
	Value   any    // what the function returned
	Retcode int    // of the function
	Text    string // why the minion did not return, if so
	// Outputter is how the function wants its value to be shown, a value of 'salt --out'; "" is
	// the default.
	Outputter string
	// Each is the result of each function of [Conn.RunAll], by name; there is no Retcode then.
	Each map[string]Outcome
}

// Outcome is the result of one of several functions.
type Outcome struct {
	Retcode int
	OK      bool
}

// OK reports whether the function has succeeded.
func (r Return) OK() bool { return r.Status == Done }

// Returned reports whether the minion has returned something, be it a failure.
func (r Return) Returned() bool { return job.State(r.Status).Returned() }

// Returns returns the returns of the job as they arrive, one for each minion, until the end of
// the job. An error is the last element.
func (j *Job) Returns(ctx context.Context) iter.Seq2[Return, error] {
	return func(yield func(Return, error) bool) {
		for u, err := range j.updates(ctx) {
			if (err != nil || u.State.Final()) && !yield(returned(u), err) {
				return
			}
		}
	}
}

// Update is a step of a job on one minion: a receipt, output of a command, or the return. In a
// batch it may report that minions begin now; then Minion is "".
type Update struct {
	Return          // Status is the present state; Value is set if the minion has returned
	Output []Output // written by a command since the previous Update, see RunOptions.Output
	// OutputEnd means that no more output follows, and that nothing was left out.
	OutputEnd bool
	Begun     []string
}

// Final reports whether this is the last Update of its minion.
func (u Update) Final() bool { return job.State(u.Status).Final() && u.Minion != "" }

// Output is output of a command: some lines, the last of which may be incomplete.
type Output struct {
	Error bool   // written to its standard error
	Text  string // as written; it need not be UTF-8
}

// Updates returns the steps of the job as they happen, until its end. Use it instead of
// [Job.Returns]. An error is the last element.
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

// Lines returns the steps of the job as written by the daemon, each one JSON document on one
// line with id, state, return and other members. It is for programs that pass them on, or need
// the members of returned maps in the minion's order. Use it instead of [Job.Updates]. An error
// is the last element.
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

// Limit has take called with each step of [Job.Updates] and [Job.Returns] before it is decoded, in
// the form of [Job.Lines]. If take returns an error, the step is decoded without its values: a
// return counts as failed, with the error as its value, and output is left out. It is for
// programs that limit their memory: a small text can become a large value.
func (j *Job) Limit(take func(line []byte) error) { j.take = take }

// read decodes a step as far as take permits.
func (j *Job) read(line []byte) (job.Update, error) {
	if j.take != nil {
		if err := j.take(line); err != nil {
			return job.ReadUnread(line, err)
		}
	}
	return job.ReadUpdate(line)
}

// updates returns the updates of the daemon, and the error that ends them, if any.
func (j *Job) updates(ctx context.Context) iter.Seq2[job.Update, error] {
	return func(yield func(job.Update, error) bool) {
		for line, err := range j.Lines(ctx) {
			var u job.Update
			if err == nil {
				if u, err = j.read(line); err != nil {
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
	for {
		line, err := j.next(ctx)
		what, waits := job.ReadWaiting(line)
		if err != nil || !waits {
			return line, err
		}
		if j.waiting != nil {
			j.waiting(what)
		}
	}
}

// next waits for the next line.
func (j *Job) next(ctx context.Context) ([]byte, error) {
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

// outcomes returns the results of the functions of a compound command, nil for a single
// function.
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

// Close stops receiving; the job continues. It may be called more than once.
func (j *Job) Close() { j.stream.Close() }
