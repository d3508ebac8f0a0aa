package saltmaster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/backup"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/membership"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/version"
)

// stores implements master.Stores.
type stores struct {
	pkiDir string
	log    *slog.Logger
}

// Check implements master.Stores.
func (stores) Check(cacheDir string, p membership.Place) error {
	if p.Hosted {
		return backup.CheckHosted(cacheDir)
	}
	return ofCluster(cacheDir, p, backup.CheckStore(cacheDir, p.Name))
}

// lookAt is Check without a start: it changes nothing.
func lookAt(cacheDir string, p membership.Place) error {
	if p.Hosted {
		return backup.LookAtHosted(cacheDir)
	}
	return ofCluster(cacheDir, p, backup.LookAtStore(cacheDir, p.Name))
}

// ofCluster checks, after another check that has ended with err, that the store of a member is of its cluster.
func ofCluster(cacheDir string, p membership.Place, err error) error {
	if err != nil || p.Cluster == "" {
		return err
	}
	return backup.CheckCluster(cacheDir, p.Cluster)
}

// CarryOut implements master.Stores.
func (s stores) CarryOut(ctx context.Context, nc *nats.Conn, cacheDir string, p membership.Place) error {
	outdated, err := membership.Outdated(s.pkiDir, s.log)
	if err != nil {
		return err
	}
	_, err = backup.CarryOut(ctx, nc, cacheDir, backup.Target{
		Member: p.Name, Cluster: p.Cluster, Members: p.All, Copies: p.Copies, Hosted: p.Hosted, Entry: membership.MoveEntry, Renamed: membership.RenameEntry, Unconfirmed: master.UnconfirmedEntry, Outdated: outdated,
		Follow: func(did *backup.Restored) error { return master.RenameAuditLogs(s.pkiDir, did.Renamed) },
		Log:    s.log,
	})
	return err
}

// Backup implements master.Stores.
func (s stores) Backup(ctx context.Context, nc *nats.Conn, dir string, p membership.Place) (runner.JournalBackup, error) {
	m, err := backup.Write(ctx, nc, backup.Options{Dir: dir, Member: p.Name, Cluster: p.Cluster, Version: version.Version(), Log: s.log})
	if err != nil {
		return runner.JournalBackup{}, err
	}
	return counted(m), nil
}

// CheckBackup implements master.Stores.
func (stores) CheckBackup(ctx context.Context, dir string) (runner.BackupReport, error) {
	m, err := backup.Open(dir)
	if err != nil {
		return runner.BackupReport{}, err
	}
	r := runner.BackupReport{JournalBackup: counted(m), Time: m.Time, Version: m.Version, Members: m.Members()}
	return r, m.Verify(ctx, dir)
}

// CheckJoin implements master.Stores.
func (stores) CheckJoin(cacheDir string) error { return backup.CheckJoin(cacheDir) }

// counted is what is in a backup.
func counted(m *backup.Manifest) runner.JournalBackup {
	b := runner.JournalBackup{Streams: len(m.Streams), Bytes: m.Bytes()}
	for _, one := range m.Streams {
		b.Messages += one.Messages
	}
	return b
}

// restoreFlags are the options for a restore.
func restoreFlags() []urcli.Flag {
	return []urcli.Flag{
		&urcli.StringFlag{Category: "Store", Name: "restore", Usage: "fill the empty store of this master, which does not run, from `DIR`, and end: a backup of salt-run journal.backup, or the directory of a store that no master has open, such as journal or cluster in cachedir. A member of a cluster, and a master with nats_jetstream, does it at its next start"},
		&urcli.BoolFlag{Category: "Store", Name: "repair", Usage: "when the other members of a cluster are lost for ever: make the store of this member that of a single master, and end. The old store is kept beside it. This is refused while anything answers at the address of another member"},
		&urcli.StringFlag{Category: "Store", Name: "restore-as", Usage: "with --restore or --repair of what a cluster had: take the place of its member `NAME`; the default is the member of the same name, for a single master the one that made the backup"},
	}
}

// checkStoreFlags refuses options that would be ignored: the daemon would start where something else
// was meant.
func checkStoreFlags(opts *urcli.Context) error {
	var set []string
	for _, name := range []string{"restore", "repair", "nats-config"} {
		if opts.IsSet(name) {
			set = append(set, "--"+name)
		}
	}
	if len(set) > 1 {
		return cli.Usagef("%s do not go together", strings.Join(set, " and "))
	}
	if opts.IsSet("restore-as") && !opts.IsSet("restore") && !opts.IsSet("repair") {
		return cli.Usagef("--restore-as needs --restore or --repair")
	}
	return nil
}

// restore fills the store of a master that does not run.
func restore(ctx context.Context, env *cli.Env, opts *urcli.Context, cfg *config.Master, log *slog.Logger) error {
	p, err := membership.PlaceIn(ctx, cfg)
	if err != nil {
		return config.Mistake(err)
	}
	release, err := daemon.Open(cfg.CacheDir, version.Version())
	if err != nil {
		return err
	}
	defer release()
	r := request(opts, cfg, opts.String("restore"), p.Name, log)
	r.Hosted, r.Cluster = p.Hosted, p.Cluster
	did, err := r.Carry(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(env.Stdout, describe(did, p)+addresses(did, p))
	return err
}

func request(opts *urcli.Context, cfg *config.Master, source, member string, log *slog.Logger) backup.Request {
	return backup.Request{
		CacheDir: cfg.CacheDir, Source: source, From: opts.String("restore-as"), Member: member, Version: version.Version(), Entry: membership.MoveEntry, Unconfirmed: master.UnconfirmedEntry, Log: log,
	}
}

// repair opens the store of the last member of a cluster alone. Two masters that both go on with
// what the cluster had could not be made one again, so nobody else may run.
func repair(ctx context.Context, env *cli.Env, opts *urcli.Context, cfg *config.Master, log *slog.Logger) error {
	release, err := daemon.Open(cfg.CacheDir, version.Version())
	if err != nil {
		return err
	}
	defer release()
	store := backup.StoreDir(cfg.CacheDir, true)
	if _, err := os.Stat(store); errors.Is(err, fs.ErrNotExist) {
		return salt.WithHint(fmt.Errorf("%s is missing: this machine has no store of a cluster", store), "look at the configuration: is cachedir the right one?")
	}
	answers, err := membership.Answering(ctx, cfg)
	if err != nil {
		return config.Mistake(err)
	}
	if len(answers) > 0 {
		return salt.WithHint(fmt.Errorf("%s: another member answers, so they are not all lost", strings.Join(answers, ", ")),
			"start this master as a member; with most of them lost, stop the others for good and run this again on the one that goes on alone")
	}
	did, err := request(opts, cfg, store, "", log).Carry(ctx)
	if err != nil {
		return err
	}
	text := describe(did, membership.Place{})
	if cfg.ClusterID != "" {
		text += "Take cluster_id and cluster_peers out of the configuration, keep master_sign_pubkey, then start this master. The other members must not start again.\n"
	}
	text += addresses(did, membership.Place{})
	_, err = fmt.Fprint(env.Stdout, text)
	return err
}

// describe says what was done, or will be.
func describe(did *backup.Result, p membership.Place) string {
	if did.Restored == nil && p.Hosted {
		return fmt.Sprintf("The next start of this master restores the %d streams of %s into the JetStream of nats_servers. Start it when these run.\n", len(did.Manifest.Streams), did.Manifest.Time.Format("2006-01-02 15:04:05 MST"))
	}
	if did.Restored == nil {
		return fmt.Sprintf("The next start of this master, as the member %s, restores the %d streams of %s. Start it together with the other members, each with 'systemctl start --no-block salt-master': they wait for each other, and without --no-block so does the command.\n", p.Name, len(did.Manifest.Streams), did.Manifest.Time.Format("2006-01-02 15:04:05 MST"))
	}
	text := fmt.Sprintf("Restored: %d streams, as they were at %s.\n", len(did.Restored.Streams), did.Manifest.Time.Format("2006-01-02 15:04:05 MST"))
	if len(did.Restored.Left) > 0 {
		text += fmt.Sprintf("Left out, since they are of use to other members only: %q.\n", did.Restored.Left)
	}
	if did.Moved != "" {
		text += fmt.Sprintf("The store that it was taken from is now %s. Remove it once everything is as it should be.\n", did.Moved)
	}
	return text
}

// addresses says what an operator has to do at minions, which only try the addresses that they have.
func addresses(did *backup.Result, p membership.Place) string {
	if p.Cluster == "" && len(did.Manifest.Members()) > 1 {
		return "Once this master runs, its minions forget the other members. On each minion whose setting master does not name this master, set it to this one and restart the minion, while it is connected: after a lost connection or a restart it tries only what master names.\n"
	}
	return "If this master has another address than before, set master in the configuration of its minions to the new one: they try only what master names.\n"
}
