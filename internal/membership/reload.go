package membership

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
)

// kindReload is the request to read the configuration again.
const kindReload = "reload"

// reloadTime limits the wait for the answer of a member: it reads some files.
const reloadTime = 10 * time.Second

// reloaded is the answer.
type reloaded struct {
	Changed []string `json:"changed,omitempty"`
	Restart []string `json:"restart,omitempty"`
	Error   string   `json:"error,omitempty"` // why the old configuration stays in force
}

func serveReload(m *Membership, own func() (runner.Reloaded, error)) {
	m.exchange.Handle(kindReload, func(_ context.Context, from string, _ []byte) (any, error) {
		m.log.Info("another member asks this one to read its configuration again", "member", from)
		r, err := own()
		if err != nil {
			return reloaded{Error: runner.Mistakes(err)}, nil
		}
		return reloaded{Changed: r.Changed, Restart: r.Restart}, nil
	})
}

// Reloader implements runner.Reloader. Whoever may reload the configuration of one member may do so at all: each
// reads its own files.
type Reloader struct{ Member *Membership }

// ReloadOthers implements runner.Reloader.
func (r Reloader) ReloadOthers(ctx context.Context) (self string, others []runner.MemberReload, err error) {
	m := r.Member
	if m == nil {
		return "", nil, runner.ErrAlone
	}
	names, err := counted(m)
	if err != nil {
		return "", nil, err
	}
	return m.name, reloadAt(ctx, names, m.exchange.Ask), nil
}

// counted returns the names of all other members: those that run, and those in cluster_peers that are not removed.
func counted(m *Membership) ([]string, error) {
	removed, err := member.ReadRemovals(m.removals.path)
	if err != nil {
		return nil, err
	}
	names, gone := m.exchange.Others(), gone(removed, m.known(), m.name)
	for _, peer := range m.peers {
		if name := nameOf(peer); !gone(name, m.heard.latest(name).Key) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == m.name }), nil
}

// reloadAt asks the members with these names, and returns the results in their order.
func reloadAt(ctx context.Context, names []string, ask func(ctx context.Context, to, kind string, body, answer any) error) []runner.MemberReload {
	ctx, cancel := context.WithTimeout(ctx, reloadTime)
	defer cancel()
	all := make([]runner.MemberReload, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			var a reloaded
			err := ask(ctx, name, kindReload, nil, &a)
			switch {
			case errors.Is(err, cluster.ErrGone):
				err = salt.WithHint(errors.New("it is not reached"), "it reads its configuration when it starts; if it runs, ask it: 'salt-run config.reload' there")
			case err != nil:
				err = salt.WithHint(err, "'salt-run config.reload' at that member, or SIGHUP")
			case a.Error != "":
				err = runner.NotReloaded(errors.New(strings.TrimSpace(a.Error)))
			}
			all[i] = runner.MemberReload{Name: name, Reloaded: runner.Reloaded{Changed: a.Changed, Restart: a.Restart}, Err: err}
		})
	}
	wg.Wait()
	return all
}
