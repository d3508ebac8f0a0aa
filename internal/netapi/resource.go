package netapi

import (
	"net/http"
	"strings"
	"time"

	"github.com/brinebus/brine/client"
)

// ask runs one chunk that the server itself has made, with the session's login. The master
// checks it like any other request of that login.
func (r *request) ask(m map[string]any) (any, error) {
	list, err := r.inSession([]any{m})
	if err != nil || len(list) == 0 {
		return map[string]any{}, err
	}
	return list[0], nil
}

// getMinions returns the grains of minions.
func getMinions(r *request) error {
	target := r.word("mid")
	if target == "" {
		target = "*"
	}
	grains, err := r.ask(map[string]any{"client": "local", "tgt": target, "fun": "grains.items"})
	if err != nil {
		return err
	}
	return r.send(http.StatusOK, map[string]any{"return": []any{grains}})
}

// startJobs starts jobs on minions and does not wait for them.
func startJobs(r *request) error {
	list, err := lowstates(r.body)
	if err != nil {
		return err
	}
	all := make([]any, len(list))
	for i, m := range list {
		m["client"] = "local_async"
		all[i] = m
	}
	results, err := r.inSession(all)
	if err != nil {
		return err
	}
	jobs := []any{}
	for _, v := range results {
		if m, ok := v.(map[string]any); ok && m["jid"] != nil {
			jobs = append(jobs, map[string]any{"href": "/jobs/" + textOf(m["jid"])})
		}
	}
	return r.send(http.StatusAccepted, map[string]any{"return": results, "_links": map[string]any{"jobs": jobs}})
}

// getJobs lists jobs, or returns one with its returns.
func getJobs(r *request) error {
	jid := r.word("jid")
	if jid == "" {
		list, err := r.ask(map[string]any{"client": "runner", "fun": "jobs.list_jobs"})
		if err != nil {
			return err
		}
		return r.send(http.StatusOK, map[string]any{"return": []any{list}})
	}
	if !isJID(jid) {
		return problem(http.StatusBadRequest, "The path names no job.")
	}
	answer, err := r.ask(map[string]any{"client": "runner", "fun": "jobs.list_job", "jid": jid, "full_return": true})
	if err != nil {
		return err
	}
	m, _ := answer.(map[string]any)
	data, _ := m["data"].(map[string]any)
	info := data["return"]
	if data["success"] != true {
		if err := r.mayList(); err != nil {
			return err
		}
		info = unknownJob(jid)
	}
	returns := map[string]any{}
	if m, ok := info.(map[string]any); ok {
		results, _ := m["Result"].(map[string]any)
		for id, v := range results {
			if one, ok := v.(map[string]any); ok {
				returns[id] = one["return"]
			}
		}
	}
	return r.send(http.StatusOK, map[string]any{"info": []any{info}, "return": []any{returns}})
}

func isJID(s string) bool { return len(s) == 20 && strings.Trim(s, "0123456789") == "" }

// mayList checks whether the session may list the jobs of others. It is called if no job was
// found, so that another user's job and an unknown job get the same answer.
func (r *request) mayList() error {
	c, err := r.call(r.Context())
	if err != nil {
		return err
	}
	defer c.close()
	q := run{command: client.Call("jobs.list_job")}
	if err := c.conn.PreviewRunner(r.Context(), q.command, client.RunnerOptions{Detach: true}); err != nil {
		return r.denied(r.Context(), c, chunk{run: &q}, err)
	}
	return nil
}

// unknownJob is Salt's answer for an unknown job.
func unknownJob(jid string) map[string]any {
	text := ""
	if t, err := time.Parse("20060102150405.000000", jid[:14]+"."+jid[14:]); err == nil {
		text = t.Format("2006, Jan 02 15:04:05.000000")
	}
	return map[string]any{"jid": jid, "Error": "Cannot contact returner or no job with this jid", "StartTime": text, "Result": map[string]any{}}
}

// getKeys lists the keys of minions, or returns fingerprints.
func getKeys(r *request) error {
	q := map[string]any{"client": "wheel", "fun": "key.list_all"}
	if id := r.word("mid"); id != "" {
		q["fun"], q["match"] = "key.finger", id
	}
	answer, err := r.ask(q)
	if err != nil {
		return err
	}
	m, _ := answer.(map[string]any)
	data, _ := m["data"].(map[string]any)
	return r.send(http.StatusOK, map[string]any{"return": data["return"]})
}

// makeKeys refuses. In Salt it makes a key pair and returns the private key. Here only the
// minion has its private key: it makes its own, and an operator accepts it.
func makeKeys(*request) error {
	return problem(http.StatusNotImplemented, "Keys are made where they are used: start the minion, then accept its key by wheel key.accept.")
}
