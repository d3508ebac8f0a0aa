package netapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/value"
)

// all runs the chunks, one after the other. Of several, all are checked before the first is
// run: a refused request has no effect.
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

// preview has the master check a chunk without running it.
func (p *principal) preview(ctx context.Context, as *caller, c chunk) error {
	var err error
	switch {
	case c.job != nil:
		_, err = as.conn.Preview(ctx, c.job.target, c.job.commands, c.job.opts)
	case c.run != nil && c.run.wheel:
		err = as.conn.PreviewWheel(ctx, c.run.command, c.run.opts())
	case c.run != nil:
		err = as.conn.PreviewRunner(ctx, c.run.command, c.run.opts())
	}
	switch {
	case errors.Is(err, client.ErrDenied):
		return p.denied(ctx, as, c, err)
	case errors.Is(err, client.ErrNoMatch), errors.Is(err, client.ErrNotFound), errors.Is(err, client.ErrUsage):
		return nil // it is permitted, and the error is reported when the chunk is run
	}
	return err // nobody has decided whether it is permitted
}

// do runs one chunk and returns its entries.
func (p *principal) do(ctx context.Context, as *caller, c chunk) ([]any, error) {
	var list []any
	var err error
	switch {
	case c.run != nil:
		list, err = p.runOne(ctx, as, c)
	case c.unknown != "":
		list, err = noFunction(ctx, as, c)
	case c.job != nil:
		list, err = p.publishOne(ctx, as, c)
	default:
		return []any{map[string]any{}}, nil // ssh: its roster is empty
	}
	switch {
	case errors.Is(err, client.ErrDenied):
		return nil, p.denied(ctx, as, c, err)
	case errors.Is(err, client.ErrNoMatch) && c.client == "local_batch":
		return []any{}, nil
	case errors.Is(err, client.ErrNoMatch):
		return []any{map[string]any{}}, nil
	}
	return list, err
}

// denied makes the answer for a refusal, in Salt's words: for a login that has ended, or
// without permission.
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
	if kindUnknown(c.job.target.Type) {
		return []any{map[string]any{}}, nil // as for a target without minions
	}
	run, err := p.begin(ctx, as, *c.job)
	if errors.Is(err, client.ErrUsage) && c.job.opts.Batch == "" {
		return []any{map[string]any{}}, nil // an invalid target matches no minion
	}
	if err != nil {
		return nil, err
	}
	defer run.Close()
	if c.job.opts.Detach {
		return []any{map[string]any{"jid": run.ID, "minions": listOf(slices.Sorted(slices.Values(run.Minions)))}}, nil
	}
	one, list := map[string]any{}, []any{}
	run.Limit(func(line []byte) error { return p.collect(as.name(), line) })
	for u, err := range run.Updates(ctx) {
		if err != nil {
			return nil, err
		}
		v, ok := c.result(run.ID, u)
		if !ok {
			p.forget(as.name())
			continue
		}
		if err := p.holdAnswer(as.name(), entryCost); err != nil {
			return nil, tooMuch(err)
		}
		one[u.Minion] = v
		list = append(list, map[string]any{u.Minion: v})
	}
	if c.client == "local_batch" {
		return list, nil
	}
	return []any{one}, nil
}

// begin starts a job.
func (p *principal) begin(ctx context.Context, as *caller, j job) (*client.Job, error) {
	if j.opts.Timeout == 0 {
		j.opts.Timeout = p.s.opts.Timeout
	}
	if j.several {
		return as.conn.RunAll(ctx, j.target, j.commands, j.opts)
	}
	return as.conn.Run(ctx, j.target, j.commands[0], j.opts)
}

func listOf(ids []string) []any {
	list := make([]any, len(ids))
	for i, id := range ids {
		list[i] = id
	}
	return list
}

// opts returns the options for the master.
func (r run) opts() client.RunnerOptions { return client.RunnerOptions{Detach: r.async} }

// runOne runs a runner or a wheel function.
func (p *principal) runOne(ctx context.Context, as *caller, c chunk) ([]any, error) {
	var began client.RunnerJob
	opts := c.run.opts()
	opts.Begun = func(j client.RunnerJob) { began = j }
	if c.full {
		if err := p.collectArgs(as.name(), c.run.command); err != nil {
			return nil, err
		}
	}
	runIt, kind := as.conn.RunnerResult, "runner."
	if c.run.wheel {
		runIt, kind = as.conn.WheelResult, "wheel."
	}
	res, err := runIt(ctx, c.run.command, opts)
	if err == nil && c.run.async {
		return []any{map[string]any{"tag": began.Tag, "jid": began.ID}}, nil
	}
	var ret any
	var failed *client.RunnerError
	switch {
	case errors.As(err, &failed) && !errors.Is(err, client.ErrDenied):
		ret, res.Success = failed.Reason, false
	case err != nil:
		return nil, err
	default:
		if err := p.collect(as.name(), res.JSON); err != nil {
			ret, res.Success = "the result is not read: "+err.Error(), false
		} else if ret, err = res.Value(); err != nil {
			return nil, err
		}
	}
	data := map[string]any{
		"fun": kind + c.run.command.Function, "jid": began.ID, "user": as.user,
		"_stamp": time.Now().UTC().Format(stampLayout), "return": ret, "success": res.Success,
	}
	switch {
	case c.run.wheel:
		data["tag"] = began.Tag
		return []any{map[string]any{"tag": began.Tag, "data": data}}, nil
	case c.full:
		data["fun_args"] = shown(c.run.command)
		return []any{map[string]any{"data": data, "tag": began.Tag + "/ret"}}, nil
	}
	return []any{ret}, nil
}

// collectArgs counts the memory of arguments that become part of the answer.
func (p *principal) collectArgs(who string, command client.Command) error {
	text, err := value.Encode(shown(command))
	if err == nil {
		err = p.collect(who, text)
	}
	if err != nil {
		return tooMuch(err)
	}
	return nil
}

func tooMuch(err error) error {
	return because(err, http.StatusServiceUnavailable, "The answers under way take too much memory.")
}

// noFunction answers for a text that is not a function name: each minion of the target would
// say that it does not have it. Nothing is run.
func noFunction(ctx context.Context, as *caller, c chunk) ([]any, error) {
	ids, err := as.conn.Preview(ctx, c.job.target, nil, c.job.opts)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, id := range ids {
		out[id] = "'" + c.unknown + "' is not available."
	}
	return []any{out}, nil
}

// kindUnknown reports whether tgt_type is certainly unknown.
func kindUnknown(kind string) bool { return strings.ContainsAny(kind, " \t\n") }

// result returns what Salt reports for one minion; false for a minion that did not return.
func (c chunk) result(jid string, u client.Update) (any, bool) {
	switch {
	case u.Returned():
	case u.Status == client.NotTargeted:
		return nil, false
	case u.Status == client.Refused:
		return u.Text, true
	case u.Final():
		return false, true
	default:
		return nil, false
	}
	if !c.full || c.client == "local_batch" {
		return u.Value, true
	}
	full := map[string]any{"ret": u.Value, "retcode": retcode(u.Return), "jid": jid}
	if u.Outputter != "" {
		full["out"] = u.Outputter
	}
	return full, true
}

// retcode is a number, or a map for several commands.
func retcode(r client.Return) any {
	if r.Each == nil {
		return int64(r.Retcode)
	}
	codes := map[string]any{}
	for f, o := range r.Each {
		codes[f] = int64(o.Retcode)
	}
	return codes
}

// success reports whether the function has succeeded, or which of several.
func success(r client.Return) any {
	if r.Each == nil {
		return r.OK()
	}
	all := map[string]any{}
	for f, o := range r.Each {
		all[f] = o.OK
	}
	return all
}

// stampLayout is the layout of _stamp.
const stampLayout = "2006-01-02T15:04:05.000000"
