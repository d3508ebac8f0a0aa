// Package direct is salt-call's own connection to a master, with the key of the minion, if no
// daemon of the minion runs. What runs over it is in package route.
package direct

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/version"
)

// Master is a connection to one master. It implements module.MasterConnection.
type Master struct {
	*upstream.Connection
	Pillar protocol.Pillar // of the minion
	name   string
}

// Dial connects to the first configured master that accepts the minion. Its error is a message of a
// tool.
func Dial(ctx context.Context, env *cli.Env, cfg *config.Minion, wait time.Duration, log *slog.Logger) (*Master, error) {
	key, err := pki.LoadPrivate(filepath.Join(cfg.PKIDir, "minion.pem"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cli.Fail(cli.Unavailable, salt.WithHint(fmt.Errorf("no minion is running here, and there is no minion key: %w", err),
			"start salt-minion once, use --local, or name the configuration directory with -c"))
	}
	if err != nil {
		return nil, cli.Fail(cli.NoPermission, err)
	}
	if len(cfg.Master) == 0 {
		return nil, cli.Fail(cli.Usage, salt.WithHint(errors.New("no minion is running here, and no master is configured"), "set master in the minion's configuration, or use --local"))
	}
	var failed error
	masters, cluster := cfg.Master, upstream.OpenCluster(cfg, log)
	if cluster != nil {
		masters = cluster.Masters()
	}
	for _, master := range masters {
		m, err := dial(ctx, env, cfg, cluster, key, master, wait, log)
		if err == nil {
			return m, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}

// dial connects to one master.
func dial(ctx context.Context, env *cli.Env, cfg *config.Minion, cluster *upstream.Cluster, key *pki.PrivateKey, name string, wait time.Duration, log *slog.Logger) (*Master, error) {
	defer env.Waiting(ctx, cli.Patience, func() string { return "the master at " + name })()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	o := upstream.FromConfig(cfg, key, name, log)
	o.Caller, o.Version, o.Timeout = true, version.Version(), wait
	cluster.Trust(&o)
	l, err := upstream.Connect(ctx, o)
	if err != nil {
		return nil, failure(err)
	}
	if !l.Ready() {
		state := l.State()
		l.Close()
		return nil, cli.Fail(cli.NoPermission, salt.WithHint(
			fmt.Errorf("Minion failed to authenticate with the master, has the minion key been accepted? (its state is %s, its fingerprint %s)", state, key.Public().SHA256()),
			"on the master: salt-key -a "+string(cfg.ID)))
	}
	m := &Master{Connection: l, name: name}
	if err := m.loadPillar(ctx); err != nil {
		l.Close()
		return nil, err
	}
	return m, nil
}

// loadPillar fetches the pillar before anything runs: a function must not run without a pillar
// because the pillar has an error.
func (m *Master) loadPillar(ctx context.Context) error {
	var p protocol.Pillar
	if err := m.Ask(ctx, protocol.OpPillar, nil, &p); err != nil {
		return fmt.Errorf("ask the master at %s for the pillar: %w", m.name, err)
	}
	if len(p.Errors) > 0 {
		return errors.New(strings.Join(p.Errors, "\n"))
	}
	m.Pillar = p
	return nil
}

// failure returns why a master cannot be used.
func failure(err error) error {
	switch {
	case errors.Is(err, upstream.ErrMasterKey), errors.Is(err, upstream.ErrSignature):
		return cli.Fail(cli.NoPermission, err)
	case errors.Is(err, upstream.ErrDenied) && salt.Hint(err) != "":
		return cli.Fail(cli.NoPermission, err)
	case errors.Is(err, upstream.ErrRejected), errors.Is(err, upstream.ErrDenied):
		return cli.Fail(cli.NoPermission, salt.WithHint(err, "delete the public key for this minion on the Salt Master and run this again"))
	case pki.Untrusted(err), errors.Is(err, pki.ErrUnsafe), errors.Is(err, fs.ErrPermission):
		return cli.Fail(cli.NoPermission, err)
	case salt.Hint(err) != "": // no master is at work at the NATS servers, for example
		return cli.Fail(cli.Unavailable, err)
	}
	return cli.Fail(cli.Unavailable, salt.WithHint(err, "start salt-minion, whose outbox keeps what is for the master, or use --local"))
}

// Masters implements module.MasterConnection.
func (m *Master) Masters() []string {
	if !m.NC.IsConnected() {
		return nil
	}
	return []string{m.name}
}

// Ping implements module.MasterConnection.
func (m *Master) Ping(ctx context.Context, master string) error {
	if master != "" && master != m.name {
		return fmt.Errorf("the master in use is %s", m.name)
	}
	return m.NC.FlushWithContext(ctx)
}
