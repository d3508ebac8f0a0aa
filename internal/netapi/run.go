package netapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// all does the chunks, one after the other. Of several, all are judged before the first is
// done: a request that is refused has done nothing.
func (p *principal) all(ctx context.Context, chunks []chunk, as func(chunk) (*caller, error)) ([]any, error) {
	callers := make([]*caller, len(chunks))
	for i, c := range chunks {
		var err error
		if callers[i], err = as(c); err != nil {
			return nil, err
		}
		if len(chunks) > 1 {
			if err := p.preview(ctx, callers[i], c); err != nil {
				return nil, err
			}
		}
	}
	results := []any{}
	for i, c := range chunks {
		list, err := p.do(ctx, callers[i], c)
		if err != nil {
			return nil, err
		}
		results = append(results, list...)
	}
	return results, nil
}

// preview has a chunk judged.
func (p *principal) preview(ctx context.Context, as *caller, c chunk) error {
	var err error
	switch {
	case c.publish != nil:
		q := *c.publish
		q.Preview, q.Async = true, false
		err = as.conn.Ask(ctx, protocol.OpPublish, q, new(job.Start))
	case c.run != nil:
		q := *c.run
		q.Preview = true
		err = as.conn.Ask(ctx, protocol.OpRun, q, nil)
	}
	if rpc.CodeOf(err) == rpc.Denied {
		return p.denied(ctx, as, c, err)
	}
	return nil // any other mistake is that of the chunk's turn
}

// do does one chunk and returns its entries.
func (p *principal) do(ctx context.Context, as *caller, c chunk) ([]any, error) {
	var list []any
	var err error
	switch {
	case c.run != nil:
		list, err = p.runOne(ctx, as, c)
	case c.unknown != "":
		list, err = noFunction(ctx, as, c)
	case c.publish != nil:
		list, err = p.publishOne(ctx, as, c)
	default:
		return []any{map[string]any{}}, nil // ssh: nobody is in its roster
	}
	switch {
	case rpc.CodeOf(err) == rpc.Denied:
		return nil, p.denied(ctx, as, c, err)
	case rpc.CodeOf(err) == rpc.NoMatch && c.client == "local_batch":
		return []any{}, nil
	case rpc.CodeOf(err) == rpc.NoMatch:
		return []any{map[string]any{}}, nil
	}
	return list, err
}

// denied words a refusal as Salt does: of a login that has ended, or of what it may not do.
func (p *principal) denied(ctx context.Context, as *caller, c chunk, err error) error {
	text := authorization
	if c.run != nil {
		text = "Authentication failure of type \"" + as.kind + "\" occurred for user " + as.user + "."
	}
	if !as.holds(ctx, p.address) {
		text = notAuthentic
		if p.session != nil {
			p.s.ended(p.session)
		}
	}
	return because(err, http.StatusUnauthorized, "%s", text)
}

// publishOne runs a job and waits for its returns, unless it is asynchronous.
func (p *principal) publishOne(ctx context.Context, as *caller, c chunk) ([]any, error) {
	if kindUnknown(c.publish.TargetType) {
		return []any{map[string]any{}}, nil // as for a target that means nobody
	}
	q := *c.publish
	if q.Timeout == 0 {
		q.Timeout = job.Seconds(p.s.opts.Timeout.Seconds())
	}
	run, err := begin(ctx, as, q)
	if rpc.CodeOf(err) == rpc.Usage && q.Batch.Size == "" {
		return []any{map[string]any{}}, nil // a target that is none means nobody
	}
	if err != nil {
		return nil, err
	}
	defer run.stream.Close()
	if q.Async {
		ids := []any{}
		for _, id := range slices.Sorted(slices.Values(run.start.Minions)) {
			ids = append(ids, string(id))
		}
		return []any{map[string]any{"jid": string(run.start.JID), "minions": ids}}, nil
	}
	one, list := map[string]any{}, []any{}
	err = run.each(ctx, func(u job.Update) error {
		v, ok := c.result(run.start, u)
		if ok {
			one[string(u.ID)] = v
			list = append(list, map[string]any{string(u.ID): v})
		}
		return nil
	})
	if c.client == "local_batch" {
		return list, err
	}
	return []any{one}, err
}

// runOne runs a runner or a wheel function.
func (p *principal) runOne(ctx context.Context, as *caller, c chunk) ([]any, error) {
	stream, err := as.conn.Call(protocol.OpRun, *c.run)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var start protocol.RunStart
	if err := stream.Decode(ctx, &start); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if c.run.Async {
		return []any{map[string]any{"tag": start.Tag, "jid": string(start.JID)}}, nil
	}
	var res protocol.RunResult
	if err := stream.Decode(ctx, &res); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if res.Retcode == protocol.RunRefused && res.Error != "" {
		return nil, &rpc.Error{Code: rpc.Denied, Text: res.Error, Hint: res.Hint}
	}
	ret := res.Return.V
	if res.Error != "" {
		ret = res.Error
	}
	kind := "runner."
	if c.run.Wheel {
		kind = "wheel."
	}
	data := map[string]any{
		"fun": kind + string(c.run.Command.Function), "jid": string(start.JID), "user": as.user,
		"_stamp": time.Now().UTC().Format(stampLayout), "return": ret, "success": res.Success && res.Error == "",
	}
	switch {
	case c.run.Wheel:
		data["tag"] = start.Tag
		return []any{map[string]any{"tag": start.Tag, "data": data}}, nil
	case c.full:
		data["fun_args"] = shown(c.run.Command)
		return []any{map[string]any{"data": data, "tag": start.Tag + "/ret"}}, nil
	}
	return []any{ret}, nil
}

// noFunction answers for what is the name of no function: each minion of the target would
// say that it has none. Nothing is run.
func noFunction(ctx context.Context, as *caller, c chunk) ([]any, error) {
	q := *c.publish
	q.Preview, q.Async, q.Commands = true, false, nil
	var start job.Start
	if err := as.conn.Ask(ctx, protocol.OpPublish, q, &start); err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, id := range start.Minions {
		out[string(id)] = "'" + c.unknown + "' is not available."
	}
	return []any{out}, nil
}

// jobRun is a job as it runs.
type jobRun struct {
	start  job.Start
	stream *rpc.Stream
}

// begin starts a job.
func begin(ctx context.Context, as *caller, q protocol.Publish) (*jobRun, error) {
	c := &jobRun{}
	var err error
	if c.stream, err = as.conn.Call(protocol.OpPublish, q); err != nil {
		return nil, err
	}
	if err := c.stream.Decode(ctx, &c.start); err != nil {
		c.stream.Close()
		return nil, err
	}
	return c, nil
}

// each gives the updates of a job to f until its end.
func (c *jobRun) each(ctx context.Context, f func(job.Update) error) error {
	for {
		b, err := c.stream.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for line := range bytes.SplitSeq(b, []byte("\n")) {
			u, err := job.ReadUpdate(line)
			if err != nil {
				return err
			}
			if err := f(u); err != nil {
				return err
			}
		}
	}
}

// kindUnknown says whether tgt_type is a word that means no kind of target.
func kindUnknown(kind string) bool { return strings.ContainsAny(kind, " \t\n") }

// result is what Salt says of one minion; a minion that did not return has false.
func (c chunk) result(start job.Start, u job.Update) (any, bool) {
	switch {
	case u.State.Returned():
	case u.State == job.NotTargeted:
		return nil, false
	case u.State == job.Refused:
		return u.Text, true
	case u.State.Final() && u.State != job.Disconnected:
		return false, true
	default:
		return nil, false
	}
	if !c.full || c.client == "local_batch" {
		return u.Return.V, true
	}
	full := map[string]any{"ret": u.Return.V, "retcode": u.Retcode.V, "jid": string(start.JID)}
	if u.Out != "" {
		full["out"] = u.Out
	}
	return full, true
}

// stampLayout is that of _stamp.
const stampLayout = "2006-01-02T15:04:05.000000"
