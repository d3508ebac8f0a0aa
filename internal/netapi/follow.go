package netapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/brinebus/brine/client"
)

// The formats of the progress of a job.
const (
	asEvents encoding = "text/event-stream"
	asLines  encoding = "application/x-ndjson"
)

// followSession runs one job with the session's login and sends its progress.
func followSession(r *request) error {
	c, err := r.followed()
	if err != nil {
		return err
	}
	as, err := r.call(r.Context())
	if err != nil {
		return err
	}
	defer as.close()
	return r.follow(as, c)
}

// followRun does so with the login in the chunk.
func followRun(r *request) error {
	logins := &logins{r: r, of: map[login]*caller{}}
	defer logins.close()
	c, err := r.followed()
	if err != nil {
		return err
	}
	as, err := logins.as(c)
	if err != nil {
		return err
	}
	return r.follow(as, c)
}

// followed returns the chunk whose progress is to be sent.
func (r *request) followed() (chunk, error) {
	accept := r.Header.Get("Accept")
	if r.reply = choose(accept, asLines, asEvents); r.reply == "" {
		r.reply = asLines
	}
	maps, err := lowstates(r.body)
	if err != nil {
		return chunk{}, err
	}
	list, err := r.chunks(maps)
	if err != nil {
		return chunk{}, err
	}
	if len(list) != 1 || list[0].job == nil || list[0].job.opts.Detach || list[0].unknown != "" {
		return chunk{}, problem(http.StatusBadRequest, "follow is for one chunk of the client local, local_batch or local_subset.")
	}
	return list[0], nil
}

// follow sends the progress of a job as it happens. The job goes on when the reader is gone.
func (r *request) follow(as *caller, c chunk) error {
	leave, err := r.s.limits.stream(as.name())
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(r.s.ctx, cancel)()
	j := *c.job
	j.opts.Output = true
	run, err := r.begin(ctx, as, j)
	if err != nil {
		if errors.Is(err, client.ErrDenied) {
			return r.denied(ctx, as, c, err)
		}
		return err
	}
	defer run.Close()
	run.Limit(func(line []byte) error { return r.collect(as.name(), line) })
	return r.tellRun(ctx, run, func() { r.forget(as.name()) })
}

// tellRun sends each step, and calls sent after it.
func (r *request) tellRun(ctx context.Context, run *client.Job, sent func()) error {
	h := r.w.Header()
	h.Set("Content-Type", string(r.reply)+";charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	r.w.WriteHeader(http.StatusOK)
	ids := listOf(run.Minions)
	if err := r.step("start", map[string]any{"jid": run.ID, "minions": ids}); err != nil {
		return nil //nolint:nilerr // the reader is gone
	}
	end := map[string]any{"jid": run.ID, "of": int64(len(ids))}
	done := int64(0)
	for u, err := range run.Updates(ctx) {
		if err != nil {
			end["error"] = err.Error()
			break
		}
		if u.Final() {
			done++
		}
		if kind, data := show(u); kind != "" {
			data["done"], data["of"] = done, int64(len(ids))
			if err := r.step(kind, data); err != nil {
				return nil //nolint:nilerr // the reader is gone
			}
		}
		sent()
	}
	end["done"] = done
	_ = r.step("end", end) // the reader may be gone
	return nil
}

// show returns what is sent for one update.
func show(u client.Update) (kind string, data map[string]any) {
	id := map[string]any{"minion": u.Minion}
	switch {
	case len(u.Begun) > 0:
		return "begun", map[string]any{"minions": listOf(u.Begun)}
	case len(u.Output) > 0:
		list := []any{}
		for _, o := range u.Output {
			list = append(list, map[string]any{"stderr": o.Error, "text": o.Text})
		}
		id["output"] = list
		return "output", id
	case u.OutputEnd:
		return "", nil
	case u.Returned():
		id["return"], id["retcode"], id["success"] = u.Value, retcode(u.Return), success(u.Return)
		return "return", id
	case u.Status == client.NotTargeted:
		return "", nil
	}
	id["state"] = string(u.Status)
	if u.Text != "" {
		id["text"] = u.Text
	}
	return "state", id
}
