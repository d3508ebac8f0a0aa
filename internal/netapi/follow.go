package netapi

import (
	"context"
	"net/http"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/rpc"
)

// The forms of the course of a job.
const (
	asEvents encoding = "text/event-stream"
	asLines  encoding = "application/x-ndjson"
)

// followSession runs one job in the name of the session and tells its course.
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

// followRun does so in the name of the login that the chunk holds.
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

// followed is the chunk whose course is to be told.
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
	if len(list) != 1 || list[0].publish == nil || list[0].publish.Async || list[0].unknown != "" {
		return chunk{}, problem(http.StatusBadRequest, "follow is for one chunk of the client local, local_batch or local_subset.")
	}
	return list[0], nil
}

// follow tells the course of a job as it happens. When the reader goes the job goes on.
func (r *request) follow(as *caller, c chunk) error {
	leave, err := r.s.limits.stream(as.who.backend + ":" + as.user)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(r.s.ctx, cancel)()
	q := *c.publish
	q.Follow = true
	if q.Timeout == 0 {
		q.Timeout = job.Seconds(r.s.opts.Timeout.Seconds())
	}
	run, err := begin(ctx, as, q)
	if err != nil {
		if rpc.CodeOf(err) == rpc.Denied {
			return r.denied(ctx, as, c, err)
		}
		return err
	}
	defer run.stream.Close()
	return r.tellRun(ctx, c, run)
}

func (r *request) tellRun(ctx context.Context, c chunk, run *jobRun) error {
	h := r.w.Header()
	h.Set("Content-Type", string(r.reply)+";charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	r.w.WriteHeader(http.StatusOK)
	ids := []any{}
	for _, id := range run.start.Minions {
		ids = append(ids, string(id))
	}
	if err := r.step("start", map[string]any{"jid": string(run.start.JID), "minions": ids}); err != nil {
		return nil //nolint:nilerr // the reader has gone
	}
	done := 0
	err := run.each(ctx, func(u job.Update) error {
		if u.State.Final() && u.State != job.Disconnected || u.State.Returned() {
			done++
		}
		kind, data := show(c, run.start, u)
		if kind == "" {
			return nil
		}
		data["done"], data["of"] = int64(done), int64(len(ids))
		return r.step(kind, data)
	})
	end := map[string]any{"jid": string(run.start.JID), "done": int64(done), "of": int64(len(ids))}
	if err != nil {
		end["error"] = err.Error()
	}
	_ = r.step("end", end) // the reader may have gone
	return nil
}

// show is what is said of one update.
func show(c chunk, start job.Start, u job.Update) (kind string, data map[string]any) {
	id := map[string]any{"minion": string(u.ID)}
	switch {
	case len(u.Begun) > 0:
		list := []any{}
		for _, id := range u.Begun {
			list = append(list, string(id))
		}
		return "begun", map[string]any{"minions": list}
	case len(u.Output) > 0:
		list := []any{}
		for _, o := range u.Output {
			list = append(list, map[string]any{"stderr": o.Error, "text": o.Text.V})
		}
		id["output"] = list
		return "output", id
	case u.OutputEnd:
		return "", nil
	case u.State.Returned():
		id["return"], id["retcode"], id["success"] = u.Return.V, u.Retcode.V, u.Success.V
		return "return", id
	case u.State == job.NotTargeted:
		return "", nil
	}
	id["state"] = string(u.State)
	if u.Text != "" {
		id["text"] = u.Text
	}
	return "state", id
}
