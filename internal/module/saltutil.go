package module

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/salt"
)

var jobID = Param{Name: "jid", Kind: String, Required: true}

// saltutilModule manages the minion itself.
var saltutilModule = &Module{
	Name: "saltutil",
	Doc:  "Functions that manage the minion and its running jobs.",
	Functions: []Function{
		{
			Name:    "find_job",
			Doc:     "Return the running job of that id, an empty dictionary if it does not run here.",
			Example: `salt '*' saltutil.find_job 20261121113344286549`,
			Params:  []Param{jobID},
			Run: func(_ context.Context, c *Call) (any, error) {
				jobs, err := c.otherJobs(func(r Running) bool { return string(r.JID) == c.String("jid") })
				if err != nil || len(jobs) == 0 {
					return map[string]any{}, err
				}
				return jobs[0].dictionary(), nil
			},
		},
		{
			Name:    "is_running",
			Doc:     "Return the running jobs whose function matches the glob.",
			Example: `salt '*' saltutil.is_running 'cmd.*'`,
			Params:  []Param{{Name: "fun", Kind: String, Required: true}},
			Run: func(_ context.Context, c *Call) (any, error) {
				return c.listJobs(func(r Running) bool { return globMatch(c.String("fun"), string(r.Function)) })
			},
		},
		{
			Name:    "kill_all_jobs",
			Doc:     "Send SIGKILL to every other running job.",
			Example: `salt '*' saltutil.kill_all_jobs`,
			Run:     func(_ context.Context, c *Call) (any, error) { return c.signalAll(syscall.SIGKILL) },
		},
		{
			Name:    "kill_job",
			Doc:     "Send SIGKILL to the running job of that id. Returns an empty text where it does not run.",
			Example: `salt '*' saltutil.kill_job 20261121113344286549`,
			Params:  []Param{jobID},
			Run:     func(_ context.Context, c *Call) (any, error) { return c.signalJob(syscall.SIGKILL) },
		},
		{
			Name:    "refresh_grains",
			Doc:     "Collect the grains again and tell the master.",
			Example: `salt '*' saltutil.refresh_grains`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				if c.Host.RefreshGrains == nil {
					return nil, unavailable("refreshing grains")
				}
				return true, c.Host.RefreshGrains(ctx)
			},
		},
		{
			Name:    "refresh_pillar",
			Doc:     "Ask the master for the pillar again.",
			Example: `salt '*' saltutil.refresh_pillar`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				if c.Host.RefreshPillar == nil {
					return nil, unavailable("refreshing the pillar")
				}
				return true, c.Host.RefreshPillar(ctx)
			},
		},
		{
			Name:    "regen_keys",
			Doc:     "Remove the minion's keys. It makes new ones when it starts again, which the master must accept; delete the old one there. Until then it goes on with the old ones.",
			Example: `salt-call --local saltutil.regen_keys`,
			Run: func(_ context.Context, c *Call) (any, error) {
				if c.Host.PKIDir == "" {
					return nil, unavailable("directory of keys")
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
			Params:  []Param{{Name: "preserve_minion_cache", Kind: Bool, Default: false}},
			Run: func(ctx context.Context, c *Call) (any, error) {
				if c.Host.RevokeKey == nil {
					return nil, unavailable("connection to a master")
				}
				return done(c.Host.RevokeKey(ctx))
			},
		},
		{
			Name:    "running",
			Doc:     "Return all other running jobs.",
			Example: `salt '*' saltutil.running`,
			Run: func(_ context.Context, c *Call) (any, error) {
				return c.listJobs(func(Running) bool { return true })
			},
		},
		{
			Name:    "signal_job",
			Doc:     "Send a signal, by number or name, to the running job of that id. Returns an empty text where it does not run.",
			Example: `salt '*' saltutil.signal_job 20261121113344286549 15`,
			Params:  []Param{jobID, {Name: "sig", Kind: String, Required: true}},
			Run: func(_ context.Context, c *Call) (any, error) {
				sig, err := parseSignal(c.String("sig"))
				if err != nil {
					return nil, err
				}
				return c.signalJob(sig)
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
			Doc:     "Synchronise the programs of the master's _modules and return what has changed; what the master has no more goes. Their functions can be called at once.",
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
			Run:     func(_ context.Context, c *Call) (any, error) { return c.signalAll(syscall.SIGTERM) },
		},
		{
			Name:    "term_job",
			Doc:     "Send SIGTERM to the running job of that id. Returns an empty text where it does not run.",
			Example: `salt '*' saltutil.term_job 20261121113344286549`,
			Params:  []Param{jobID},
			Run:     func(_ context.Context, c *Call) (any, error) { return c.signalJob(syscall.SIGTERM) },
		},
	},
}

// otherJobs returns the running jobs that are selected, without the one that
// asks.
func (c *Call) otherJobs(selected func(Running) bool) ([]Running, error) {
	table, err := c.Host.jobs()
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

func (c *Call) listJobs(selected func(Running) bool) (any, error) {
	jobs, err := c.otherJobs(selected)
	list := []any{}
	for _, job := range jobs {
		list = append(list, job.dictionary())
	}
	return list, err
}

// dictionary is the job as Salt's users know it.
func (r Running) dictionary() map[string]any {
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
func (c *Call) signalJob(sig syscall.Signal) (any, error) {
	if _, err := salt.ParseJID(c.String("jid")); err != nil {
		return nil, err
	}
	sent, err := c.signal(sig, func(r Running) bool { return string(r.JID) == c.String("jid") })
	return strings.Join(sent, "\n"), err
}

func (c *Call) signalAll(sig syscall.Signal) (any, error) {
	return c.signal(sig, func(Running) bool { return true })
}

// signal signals the selected jobs and returns a sentence for each. One that
// ended meanwhile is none of the caller's business.
func (c *Call) signal(sig syscall.Signal, selected func(Running) bool) ([]string, error) {
	jobs, err := c.otherJobs(selected)
	sent := []string{}
	for _, job := range jobs {
		if c.Host.Jobs.Signal(job.JID, sig, c.Host.User) == nil {
			sent = append(sent, fmt.Sprintf("Signal %d sent to job %s at pid %d", sig, job.JID, job.PID))
		}
	}
	return sent, err
}

// parseSignal reads 15, TERM or SIGTERM.
func parseSignal(s string) (syscall.Signal, error) {
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n <= 64 {
		return syscall.Signal(n), nil
	}
	return 0, invalid("unknown signal %q", s)
}
