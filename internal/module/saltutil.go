package module

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target/fnmatch"
)

// JobTable is the running jobs of this minion.
type JobTable interface {
	List() []Running // a copy, oldest first
	// Signal ends the job on behalf of by: its context is cancelled, and its programs get the
	// signal, and soon after SIGKILL. It is an error if no such job runs.
	Signal(jid salt.JID, sig syscall.Signal, by string) error
}

// Running is one running job.
type Running struct {
	JID        salt.JID
	Function   salt.Function
	PID        int // of the process that runs it
	Args       []any
	Target     any
	TargetType string
	Returner   string
	User       string
	Started    time.Time
}

// Refresher updates what the minion knows about itself.
type Refresher interface {
	RefreshGrains(context.Context) error // collects them and sends them to the master
	RefreshPillar(context.Context) error // fetches it from the master
}

var jobID = function.Param{Name: "jid", Kind: function.String, Required: true}

// saltutilModule manages the minion itself.
var saltutilModule = &function.Module{
	Name: "saltutil",
	Doc:  "Functions that manage the minion and its running jobs.",
	Functions: []function.Function{
		{
			Name:    "clear_cache",
			Doc:     "Remove the minion's copies of files of the master and of the web. Keys, jobs, the outbox and data.* stay.",
			Example: `salt '*' saltutil.clear_cache`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				if c.Host.CacheDir == "" {
					return nil, function.Unavailable("directory for copies")
				}
				var all error
				for _, name := range []string{"content", "files", "recv", "urls"} {
					all = errors.Join(all, os.RemoveAll(filepath.Join(c.Host.CacheDir, name)))
				}
				return done(all)
			},
		},
		{
			Name:    "cmd",
			Doc:     "Run a function on other minions through the master, as publish.full_data does and as far as its setting peer allows.",
			Example: `salt-call saltutil.cmd 'web*' test.ping`,
			Params:  publication,
			Calls: &function.Calls{Read: published, Run: func(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
				return publishTo(ctx, c, r, showFull)
			}},
		},
		{
			Name: "find_cached_job",
			Doc: "Return what this minion returned for a finished job: jid, fun, fun_args, return, retcode and success. The master, which keeps all returns, is asked for jobs.list_job, " +
				"which its setting peer_run must allow.",
			Example: `salt-call saltutil.find_cached_job 20261121113344286549`,
			Params:  []function.Param{jobID},
			Calls: &function.Calls{
				Read: func(a *function.Arguments) function.Reading {
					return function.Reading{Inner: []function.Inner{cachedJob(a).Inner()}}
				},
				Run: findCachedJob,
			},
		},
		{
			Name:    "find_job",
			Doc:     "Return the running job of that id, an empty dictionary if it does not run here.",
			Example: `salt '*' saltutil.find_job 20261121113344286549`,
			Params:  []function.Param{jobID},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				jobs, err := otherJobs(c, func(r Running) bool { return string(r.JID) == c.String("jid") })
				if err != nil || len(jobs) == 0 {
					return map[string]any{}, err
				}
				return jobDictionary(jobs[0]), nil
			},
		},
		{
			Name:    "is_running",
			Doc:     "Return the running jobs whose function matches the glob.",
			Example: `salt '*' saltutil.is_running 'cmd.*'`,
			Params:  []function.Param{{Name: "fun", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return listJobs(c, func(r Running) bool { return fnmatch.Match(c.String("fun"), string(r.Function)) })
			},
		},
		{
			Name:    "kill_all_jobs",
			Doc:     "Send SIGKILL to every other running job.",
			Example: `salt '*' saltutil.kill_all_jobs`,
			Run:     func(_ context.Context, c *function.Call) (any, error) { return signalAll(c, syscall.SIGKILL) },
		},
		{
			Name:    "kill_job",
			Doc:     "Send SIGKILL to the running job of that id. Returns an empty text where it does not run.",
			Example: `salt '*' saltutil.kill_job 20261121113344286549`,
			Params:  []function.Param{jobID},
			Run:     func(_ context.Context, c *function.Call) (any, error) { return signalJob(c, syscall.SIGKILL) },
		},
		{
			Name:    "refresh_grains",
			Doc:     "Collect the grains again and tell the master.",
			Example: `salt '*' saltutil.refresh_grains`,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				facts := services(c.Host).Facts
				if facts == nil {
					return nil, function.Unavailable("refreshing grains")
				}
				return true, facts.RefreshGrains(ctx)
			},
		},
		{
			Name:    "refresh_modules",
			Doc:     "Return True: functions that were added can be called as soon as they are there. saltutil.sync_modules fetches them.",
			Example: `salt '*' saltutil.refresh_modules`,
			Run:     func(context.Context, *function.Call) (any, error) { return true, nil },
		},
		{
			Name:    "refresh_pillar",
			Doc:     "Ask the master for the pillar again.",
			Example: `salt '*' saltutil.refresh_pillar`,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				facts := services(c.Host).Facts
				if facts == nil {
					return nil, function.Unavailable("refreshing the pillar")
				}
				return true, facts.RefreshPillar(ctx)
			},
		},
		{
			Name:    "regen_keys",
			Doc:     "Remove the minion's keys. It makes new ones when it starts again, which the master must accept; delete the old one there. Until then it goes on with the old ones.",
			Example: `salt-call --local saltutil.regen_keys`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				if c.Host.PKIDir == "" {
					return nil, function.Unavailable("directory of keys")
				}
				for _, name := range []string{"minion.pem", "minion.pub"} {
					if err := os.Remove(filepath.Join(c.Host.PKIDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
						return nil, err
					}
				}
				return true, nil
			},
		},
		{
			Name:    "revoke_auth",
			Doc:     "Ask the master to forget this minion's key: it does so a moment later, and then the key waits to be accepted again. For a machine that is taken out of use.",
			Example: `salt-call saltutil.revoke_auth`,
			Params:  []function.Param{{Name: "preserve_minion_cache", Kind: function.Bool, Default: false}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				revoke := services(c.Host).Revoke
				if revoke == nil {
					return nil, function.Unavailable("connection to a master")
				}
				return done(revoke(ctx))
			},
		},
		{
			Name:    "runner",
			Doc:     "Run a runner on the master, as publish.runner does and as far as its setting peer_run allows.",
			Example: `salt-call saltutil.runner manage.up`,
			Params:  runnerParams,
			Calls:   onMaster(false),
		},
		{
			Name:    "running",
			Doc:     "Return all other running jobs.",
			Example: `salt '*' saltutil.running`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return listJobs(c, func(Running) bool { return true })
			},
		},
		{
			Name:    "signal_job",
			Doc:     "Send a signal, by number or name, to the running job of that id. Returns an empty text where it does not run.",
			Example: `salt '*' saltutil.signal_job 20261121113344286549 15`,
			Params:  []function.Param{jobID, {Name: "sig", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				sig, err := parseSignal(c.String("sig"))
				if err != nil {
					return nil, err
				}
				return signalJob(c, sig)
			},
		},
		{
			Name:    "sync_all",
			Doc:     "Synchronise the programs of the master's _modules, _grains and _returners and return what has changed, by kind.",
			Example: `salt '*' saltutil.sync_all`,
			Params:  syncParams,
			Run:     syncAll,
		},
		{
			Name:    "sync_grains",
			Doc:     "Synchronise the programs of the master's _grains and return what has changed. Then the grains are collected again, unless refresh is False.",
			Example: "salt '*' saltutil.sync_grains\nsalt '*' saltutil.sync_grains saltenv=base,dev",
			Params:  syncParams,
			Run:     runSync(extension.Grains),
		},
		{
			Name:    "sync_modules",
			Doc:     "Synchronise the programs of the master's _modules and return what has changed; what the master no longer has is removed. Their functions can be called at once.",
			Example: "salt '*' saltutil.sync_modules\nsalt '*' saltutil.sync_modules saltenv=base,dev",
			Params:  syncParams,
			Run:     runSync(extension.Modules),
		},
		{
			Name:    "sync_returners",
			Doc:     "Synchronise the programs of the master's _returners and return what has changed.",
			Example: `salt '*' saltutil.sync_returners`,
			Params:  syncParams,
			Run:     runSync(extension.Returners),
		},
		{
			Name:    "term_all_jobs",
			Doc:     "Send SIGTERM to every other running job.",
			Example: `salt '*' saltutil.term_all_jobs`,
			Run:     func(_ context.Context, c *function.Call) (any, error) { return signalAll(c, syscall.SIGTERM) },
		},
		{
			Name:    "term_job",
			Doc:     "Send SIGTERM to the running job of that id. Returns an empty text where it does not run.",
			Example: `salt '*' saltutil.term_job 20261121113344286549`,
			Params:  []function.Param{jobID},
			Run:     func(_ context.Context, c *function.Call) (any, error) { return signalJob(c, syscall.SIGTERM) },
		},
		{
			Name:    "wheel",
			Doc:     "Run a wheel function on the master, as far as its setting peer_run allows below @wheel.",
			Example: `salt-call saltutil.wheel key.list accepted`,
			Params:  runnerParams,
			Calls:   onMaster(true),
		},
	},
}

// cachedJob returns the request to the master for a finished job.
func cachedJob(a *function.Arguments) function.RunnerCall {
	return function.RunnerCall{Command: salt.Command{Function: "jobs.list_job", Args: []any{a.String("jid")}}}
}

// findCachedJob returns this minion's part of a job, in the form of its return.
func findCachedJob(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
	if _, err := salt.ParseJID(c.String("jid")); err != nil {
		return nil, function.Invalid("%w", err)
	}
	publisher, err := r.Publisher()
	if err != nil {
		return nil, coded(c, err)
	}
	a, err := publisher.Runner(ctx, cachedJob(c.Bound()))
	if err != nil {
		return nil, coded(c, err)
	}
	whole, _ := a.Return.(map[string]any)
	results, _ := whole["Result"].(map[string]any)
	own, ok := results[string(c.Host.ID)].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s has returned nothing for job %s", c.Host.ID, c.String("jid"))
	}
	one := map[string]any{"jid": c.String("jid"), "fun": whole["Function"], "fun_args": whole["Arguments"]}
	maps.Copy(one, own)
	return one, nil
}

// otherJobs returns the selected running jobs, without the calling one.
func otherJobs(c *function.Call, selected func(Running) bool) ([]Running, error) {
	table, err := runningJobs(c.Host)
	if err != nil {
		return nil, err
	}
	var jobs []Running
	for _, job := range table.List() {
		if job.JID != c.JID && selected(job) {
			jobs = append(jobs, job)
		}
	}
	return jobs, nil
}

func listJobs(c *function.Call, selected func(Running) bool) (any, error) {
	jobs, err := otherJobs(c, selected)
	list := []any{}
	for _, job := range jobs {
		list = append(list, jobDictionary(job))
	}
	return list, err
}

// jobDictionary returns the job in Salt's format.
func jobDictionary(r Running) map[string]any {
	args := r.Args
	if args == nil {
		args = []any{}
	}
	return map[string]any{
		"jid": string(r.JID), "fun": string(r.Function), "arg": args, "pid": r.PID,
		"tgt": r.Target, "tgt_type": r.TargetType, "ret": r.Returner, "user": r.User,
	}
}

// signalJob signals the job of the argument jid.
func signalJob(c *function.Call, sig syscall.Signal) (any, error) {
	if _, err := salt.ParseJID(c.String("jid")); err != nil {
		return nil, err
	}
	sent, err := signalJobs(c, sig, func(r Running) bool { return string(r.JID) == c.String("jid") })
	return strings.Join(sent, "\n"), err
}

func signalAll(c *function.Call, sig syscall.Signal) (any, error) {
	return signalJobs(c, sig, func(Running) bool { return true })
}

// signalJobs signals the selected jobs and returns a sentence for each. A job that ended meanwhile
// is ignored.
func signalJobs(c *function.Call, sig syscall.Signal, selected func(Running) bool) ([]string, error) {
	jobs, err := otherJobs(c, selected)
	sent := []string{}
	for _, job := range jobs {
		if services(c.Host).Jobs.Signal(job.JID, sig, c.Host.User) == nil {
			sent = append(sent, fmt.Sprintf("Signal %d sent to job %s at pid %d", sig, job.JID, job.PID))
		}
	}
	return sent, err
}

// parseSignal parses 15, TERM or SIGTERM.
func parseSignal(s string) (syscall.Signal, error) {
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := posix.SignalNumber(name); sig != 0 {
		return sig, nil
	}
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n <= 64 {
		return syscall.Signal(n), nil
	}
	return 0, function.Invalid("unknown signal %q", s)
}
