package runner

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
)

// JoinReport is what stands between a single master and its cluster.
type JoinReport struct {
	Member  string   // the name that it will have, "" if the configuration does not say it
	Fits    []string // what is as it must be
	Missing []error
	// What becomes of minions; the daemon cannot see whether they are prepared for it.
	Warnings []error
	Next     []string // the commands that make it a member, once nothing is missing
}

// LeaveReport is what a member that leaves leaves behind.
type LeaveReport struct {
	Member  string
	Minions int      // that are sent to the others
	Left    []string // the others that run
	Quorum  int      // how many of those that are left have to run
	Copies  int      // of what they store: as many members have to be named
}

// fewestPeers is how many members cluster_peers names at least, and the fewest copies.
const fewestPeers = 3

// Commands of a service manager.
const (
	stopMaster  = "systemctl stop salt-master"
	startMaster = "systemctl start salt-master"
	// Of several members that all wait for each other: without --no-block the command ends when they all
	// run, and who starts one after the other would wait at the first.
	startMember = "systemctl start --no-block salt-master"
)

func clusterBackup(h *Host) function.Function {
	return function.Function{Name: "backup", Class: function.AsDaemon, Doc: "Write the store of the whole cluster, with the journals of all members, into a new directory on the machine of the member that is asked, while all members serve. It does what journal.backup does at a single master. The directory appears when everything in it has been read back. It contains returns, pillar data and tokens: keep it as safe as the masters. Keys and configuration are not in it. cluster.restore checks it and says how to restore it.",
		Example: "salt-run cluster.backup /var/backups/salt/2026-11-26", Params: []function.Param{{Name: "dir", Kind: function.String, Required: true}}, Run: func(ctx context.Context, c *function.Call) (any, error) {
			s, err := h.ClusterStatus(ctx)
			if err != nil {
				return nil, hintAlone(err, "'salt-run journal.backup DIR' backs up the store of a single master")
			}
			if s.Fault != "" {
				return nil, salt.WithHint(fmt.Errorf("nothing is backed up while too few members are reached, since most of them know more than this one: %s", s.Fault), "'salt-run cluster.status' shows which are reached")
			}
			b, err := h.Backup(ctx, c.String("dir"))
			if err != nil {
				return nil, err
			}
			return b.data(c.String("dir")), nil
		}}
}

// hintAlone gives the error of a single master another hint.
func hintAlone(err error, hint string) error {
	if errors.Is(err, ErrAlone) {
		return salt.WithHint(ErrAlone, hint)
	}
	return err
}

func clusterJoin(h *Host) function.Function {
	return function.Function{Name: "join", Class: function.Changes, Doc: "Check, at a single master whose configuration files already have the settings of a member, what is missing before it can start as one: the settings, the signing key pair that all members share, the signature of its own key, the port, the space on the disk, and that each of the other members runs, accepts this master and has the same cluster_peers. Nothing is changed. Return what is missing, or the commands that make it a member. If minions must be prepared first, since this master does not sign its key yet, warnings says how. The exit code is 1 if something is missing.",
		Example: "salt-run cluster.join", Run: func(ctx context.Context, c *function.Call) (any, error) {
			if s, err := h.ClusterStatus(ctx); err == nil {
				return nil, salt.WithHint(fmt.Errorf("this master is a member of the cluster %s already: %s", s.Cluster, s.Member), "'salt-run cluster.status' shows the others")
			}
			r, err := h.CheckJoin(ctx)
			if err != nil {
				return nil, err
			}
			missing := lines(r.Missing)
			data := map[string]any{"member": r.Member, "fits": anyList(r.Fits), "missing": missing}
			if len(r.Warnings) > 0 {
				data["warnings"] = lines(r.Warnings)
			}
			if len(missing) > 0 {
				c.SetRetcode(1)
				return data, nil
			}
			data["next"] = anyList(r.Next)
			return data, nil
		}}
}

func lines(errs []error) []any {
	list := []any{}
	for _, err := range errs {
		list = append(list, line(err))
	}
	return list
}

// line is an error with its hint.
func line(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if hint := salt.Hint(err); hint != "" {
		text += " (" + hint + ")"
	}
	return text
}

func clusterLeave(h *Host) function.Function {
	return function.Function{Name: "leave", Class: function.AsDaemon, Doc: "Make the member that is asked leave its cluster in good order: it sends its minions to the others, lets others lead its streams, and stops. The others take over its jobs and what it has to handle, keep its journal, and do not count it for elections any more. It does not start as a member again; its key stays valid. This is refused if the others could not continue without it, or while streams do not have all their copies. Return who is left, and what remains to be done. Use cluster.remove for a member that is lost or not to be trusted.",
		Example: "salt-run cluster.leave", Run: func(ctx context.Context, _ *function.Call) (any, error) {
			r, err := h.Leave(ctx)
			if err != nil {
				return nil, err
			}
			return map[string]any{"member": r.Member, "minions": r.Minions, "left": anyList(r.Left), "quorum": r.Quorum, "next": anyList(r.next())}, nil
		}}
}

// next is what remains to be done.
func (r LeaveReport) next() []string {
	list := []string{"this master stops now: keep it stopped (systemctl disable salt-master)"}
	if len(r.Left) < fewestPeers {
		return append(list, fmt.Sprintf("%d members are left, and %d of them have to run: add another one soon, in the place of this one in cluster_peers. Until then leave the entry there, since at least %d have to be named", len(r.Left), r.Quorum, max(fewestPeers, r.Copies)))
	}
	if len(r.Left) < r.Copies {
		return append(list, fmt.Sprintf("%d members are left, and cluster_copies is %d: add another one soon, in the place of this one in cluster_peers. Until then leave the entry there. To go on without another one, set cluster_copies: %d on the others when you take this master out of cluster_peers, and restart them one by one", len(r.Left), r.Copies, fewestPeers))
	}
	return append(list, "take this master out of cluster_peers on the others, and restart them one by one")
}

func clusterRestore(h *Host) function.Function {
	return function.Function{Name: "restore", Class: function.AsDaemon, Doc: "Read a whole backup on the machine of the master that is asked, and compare it with its sums. Return what is in it, and as next the steps that restore it, in their order: some are for all members together, the others name theirs. The entry keys says what becomes of the decisions about keys of minions, and of tokens. Nothing is restored yet: a store that is in use is never replaced, and members can only restore together.",
		Example: "salt-run cluster.restore /var/backups/salt/2026-11-26", Params: []function.Param{{Name: "dir", Kind: function.String, Required: true}}, Run: func(ctx context.Context, c *function.Call) (any, error) {
			dir := c.String("dir")
			if !filepath.IsAbs(dir) {
				return nil, salt.WithHint(fmt.Errorf("%.200q is not the path of a backup", dir), "name it from the root on, since the daemon has a directory of its own")
			}
			b, err := h.CheckBackup(ctx, dir)
			if err != nil {
				return nil, err
			}
			var members []MemberStatus
			if s, err := h.ClusterStatus(ctx); err == nil {
				members = s.Members
			}
			data := b.data(dir)
			data["time"], data["version"], data["members"] = b.Time.UTC().Format(time.RFC3339), b.Version, anyList(b.Members)
			data["next"] = anyList(b.next(dir, h.StoreDir(), members))
			if len(members)+len(b.Members) > 0 || h.StoreDir() == "" { // a single master has its keys in pki_dir alone
				data["keys"] = olderKeys
			}
			return data, nil
		}}
}

// olderKeys is what a restore changes that nobody may expect.
const olderKeys = "keys of minions that the backup accepts and pki_dir does not are not accepted again, and the log of the member names them; a member whose pki_dir is older than that, or new, accepts what the backup accepts: compare 'salt-key -L' before and after it; tokens that were revoked since are valid again"

// next has the steps that restore a backup, in their order. A member that is stopped, emptied and started
// by itself would get all back from the others, and what it alone had would be lost: so all stop first, and
// all start together. store is the directory of the store of the asked member, "" at NATS servers; without
// members it is a single master.
func (b BackupReport) next(dir, store string, members []MemberStatus) (list []string) {
	restore := "salt-master --restore " + dir
	if store == "" {
		return b.nextHosted(restore)
	}
	if len(members) == 0 {
		return []string{stopMaster, "mv " + store + " " + store + ".old", restore, startMaster}
	}
	options, free := b.restorers(members)
	var others, copied, running []string
	for _, m := range members {
		if m.Self {
			continue
		}
		others = append(others, m.Name)
		if m.Running {
			running = append(running, m.Name)
		}
		if _, ok := options[m.Name]; ok {
			copied = append(copied, m.Name)
		}
	}
	if len(running) > 0 {
		list = append(list, "these other members still run, and have what was stored since the backup: "+strings.Join(running, ", ")+". A restore takes the place of all that")
	}
	list = append(list, "on all members, before anything else: "+stopMaster)
	if len(copied) > 0 {
		list = append(list, "copy "+dir+" to the same place on the machines of "+strings.Join(copied, ", "))
	}
	for _, m := range members {
		where := store
		if !m.Self {
			where = "STORE" // its cachedir may be another one
		}
		step := fmt.Sprintf("on %s: mv %s %s.old", m.Name, where, where)
		if more, ok := options[m.Name]; ok {
			step += "; " + restore + more
		}
		list = append(list, step)
	}
	if len(free) > 0 {
		list = append(list, "NAME is one of "+strings.Join(free, ", ")+", another one on each member")
	}
	if len(others) > 0 {
		list = append(list, "STORE is the directory cluster in the cachedir of that member, here "+store)
	}
	return append(list, "on all members, when that is done on each: "+startMember)
}

// hostedName is the name that the journal of a master has at NATS servers.
const hostedName = "nats"

// nextHosted has the steps of a master whose store is at NATS servers.
func (b BackupReport) nextHosted(restore string) []string {
	options, free := map[string]string{}, []string(nil)
	if len(b.Members) > 0 {
		options, free = b.restorers([]MemberStatus{{Name: hostedName, Self: true}})
	}
	list := []string{
		"on all masters with this nats_creds: " + stopMaster,
		"at the NATS servers, as their operator: remove the streams of the account BRINE_JOURNAL, since nothing is restored over what is there. What was stored since the backup is lost",
		restore + options[hostedName],
	}
	if len(free) > 0 {
		list = append(list, "NAME is one of "+strings.Join(free, ", "))
	}
	return append(list, startMaster)
}

// restoreAs is the option of a member that has another name than one of the backup.
const restoreAs = " --restore-as NAME"

// restorers returns which members restore something of their own, with the options for that, and the names for
// which members with other names stand in. The others start empty: a journal that two of them restored would have
// each event twice. A backup of a single master is for the asked member.
func (b BackupReport) restorers(members []MemberStatus) (options map[string]string, free []string) {
	options = map[string]string{}
	var unnamed []string
	for _, m := range members {
		switch {
		case slices.Contains(b.Members, m.Name), len(b.Members) == 0 && m.Self:
			options[m.Name] = ""
		case m.Self:
			unnamed = slices.Insert(unnamed, 0, m.Name)
		default:
			unnamed = append(unnamed, m.Name)
		}
	}
	for _, name := range b.Members {
		if _, ok := options[name]; !ok {
			free = append(free, name)
		}
	}
	if len(unnamed) == 0 {
		return options, nil
	}
	for _, name := range unnamed[:min(len(unnamed), len(free))] {
		options[name] = restoreAs
	}
	return options, free
}

func clusterRepair(h *Host) function.Function {
	return function.Function{Name: "repair", Class: function.Shared, Doc: "Return, at the only member that is left when the others are lost for ever, why nothing can be stored, and the commands that make it a single master with its store. A running member cannot do that by itself. While most members are reached there is nothing to repair, and this fails. Operators get an answer although it cannot be recorded.",
		Example: "salt-run cluster.repair", Run: func(ctx context.Context, _ *function.Call) (any, error) {
			s, err := h.ClusterStatus(ctx)
			if err != nil {
				return nil, hintAlone(err, "'salt-master --repair' makes a store that this machine has of a cluster that of a single master")
			}
			if s.Fault == "" {
				return nil, salt.WithHint(errors.New("most members are reached: there is nothing to repair"), "a member that is lost is taken out with 'salt-run cluster.remove MEMBER'")
			}
			return map[string]any{"member": s.Member, "error": s.Fault, "next": anyList([]string{
				"make sure that the other members are lost for ever: what only they have stored is lost, and they must not start again", stopMaster, "salt-master --repair", "take cluster_id and cluster_peers out of the configuration, and keep master_sign_pubkey", startMaster,
				"while the minions are connected, set master in their configuration to this master: they forget the other members, and after a lost connection or a restart try only what master names",
			})}, nil
		}}
}
