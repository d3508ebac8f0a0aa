package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
)

// ErrAlone is the error of functions that need a cluster, at a single master.
var ErrAlone = salt.WithHint(errors.New("this master is not a member of a cluster"), "doc/masters.md says how to make three masters one system")

// Unrecorded reports whether an operator may run a runner while the store cannot be written, so that
// the audit log gets no entry. Such a runner changes nothing, and says what is wrong with the store.
func Unrecorded(name salt.Function) bool { return name == "cluster.status" || name == "cluster.repair" }

// ClusterStatus is what a member knows of its cluster.
type ClusterStatus struct {
	Cluster string // its name
	Member  string // that was asked
	Copies  int    // of each event, job, key and table
	Fault   string // why nothing can be stored, "" if it can
	// Lacking is the streams that do not have all their copies, with what is wrong, as far as known.
	Lacking map[string]string
	// Unstored is how many jobs the asked member has run without the quorum that are not stored yet.
	Unstored int
	Members  []MemberStatus
}

// MemberStatus is what is known of a member.
type MemberStatus struct {
	Name    string
	Address string // "" for a member that only others name, and that does not tell it
	Self    bool   // it was asked
	Running bool   // it answers
	Leaving bool   // it has asked to leave the cluster, and the others still count it
	Removed bool   // it does not run, and its key was removed
	// Left is when it has left in good order, as far as known; the zero time for one that has not, or runs again.
	Left      time.Time
	Fault     string // why there is no route to it, as far as known
	Version   string
	Minions   int  // connected to it
	SameRules bool // its access rules are those of the asked member
	SamePeers bool // and so is its list of the members, as far as it tells
	// Copies is its cluster_copies if that is another number than the one of the asked member; otherwise 0.
	Copies int
	// Leads means that the end of another member delays nothing that it stores.
	Leads bool
	// ClockAhead is by how much its clock is at least ahead of that of the asked member, negative if
	// it is behind; nil where that is not known.
	ClockAhead *time.Duration
}

// Counts reports whether the member should run: it was not removed, and has not left in good order.
func (m MemberStatus) Counts() bool { return !m.Removed && m.Left.IsZero() }

// clusterModule is about the masters that are one system.
func clusterModule(h *Host) *function.Module {
	return &function.Module{Name: "cluster", Doc: "The members of a cluster: several masters that work as one system.", Functions: []function.Function{
		clusterBackup(h), clusterJoin(h), clusterLeave(h), clusterRemove(h), clusterRemoveFile(h), clusterRepair(h), clusterRestore(h), clusterStatus(h), clusterStepDown(h),
	}}
}

func clusterRemove(h *Host) function.Function {
	return function.Function{Name: "remove", Class: function.AsDaemon, Doc: "Remove a member from the cluster for good: its key is refused from now on, and it does not count for elections any more. member is its name or its address in cluster.status, or the fingerprint of its key. Return the fingerprint, and below not_told all members of cluster_peers that have not confirmed this, also those that do not run: each learns of it from the others when it starts and is linked with one that knows, and accepts the key until then, so add the fingerprint to the file cluster_removed in pki_dir of each of these before it is started; the exit code is 1 then. next is what remains to be done. Use cluster.leave for a member that runs and is to leave in good order.",
		Example: "salt-run cluster.remove 172_16_0_12_4520", Params: []function.Param{{Name: "member", Kind: function.String, Required: true}}, Run: func(ctx context.Context, c *function.Call) (any, error) {
			removed, unaware, err := h.RemoveMember(ctx, c.String("member"))
			if err != nil {
				return nil, err
			}
			if len(unaware) > 0 {
				c.SetRetcode(1)
			}
			return map[string]any{"removed": removed, "not_told": anyList(unaware), "next": anyList(afterRemoval(ctx, h, len(unaware)))}, nil
		}}
}

// afterRemoval is what remains to be done after a member was removed that so many others do not know of.
func afterRemoval(ctx context.Context, h *Host, unaware int) []string {
	list := []string{"stop the removed member: it goes on with the minions that still trust its key"}
	if unaware > 0 {
		list = append(list, "add the fingerprint to cluster_removed in the pki_dir of each member below not_told, before it is started or goes on")
	}
	if s, err := h.ClusterStatus(ctx); err == nil && len(s.Lacking) > 0 {
		list = append(list, fmt.Sprintf("stop no other member until 'salt-run cluster.status' shows lacking: 0. Now it is %d", len(s.Lacking)))
	}
	return list
}

func clusterRemoveFile(h *Host) function.Function {
	return function.Function{Name: "remove_file", Class: function.AsDaemon, Doc: "Remove a file that a minion has uploaded with cp.push, at all members. A file can also be removed by hand from the directory of any member; this is for those that a member cannot put into its directory, as its log says, and for many at once. path is that below minions/ID/files of the cachedir.",
		Example: "salt-run cluster.remove_file web1 etc/fstab", Params: []function.Param{{Name: "minion", Kind: function.String, Required: true}, {Name: "path", Kind: function.String, Required: true}}, Run: func(ctx context.Context, c *function.Call) (any, error) {
			id, err := salt.ParseMinionID(c.String("minion"))
			if err != nil {
				return nil, err
			}
			if err := h.RemoveUpload(ctx, id, c.String("path")); err != nil {
				return nil, err
			}
			return true, nil
		}}
}

func clusterStatus(h *Host) function.Function {
	return function.Function{Name: "status", Class: function.Shared, Doc: "Return the members of the cluster, also those that only the cluster_peers of others name, if they are linked: which run, which of them leave at the moment (leaving), which were removed or have left in good order and are still in cluster_peers (state, and the time in UTC as left), with which version, how many minions are connected to each, whether their access rules and their cluster_peers are the same as those of the member that is asked (same_rules, same_peers), their cluster_copies if that is another number (copies), whether they lead the streams that they write, and by how many seconds their clock is at least ahead of that of the member that is asked (clock_ahead, negative if it is behind). lacking is how many streams do not have all their copies at the moment, for example after a member was lost: do not stop another one until it is 0; lacking_streams says which, and what is wrong with each. unstored_jobs is how many jobs the member that is asked has run without the quorum (cluster_without_quorum: run) that are not stored yet. Operators get an answer also where too few members are reached to store anything.",
		Example: "salt-run cluster.status", Run: func(ctx context.Context, _ *function.Call) (any, error) {
			s, err := h.ClusterStatus(ctx)
			if err != nil {
				return nil, err
			}
			return s.data(), nil
		}}
}

func clusterStepDown(h *Host) function.Function {
	return function.Function{Name: "step_down", Class: function.AsDaemon, Doc: "Make the member that is asked let others lead its streams, before it is stopped or upgraded, so that nobody waits for an election. It takes none back until it is restarted, but can be elected again when another member is lost. Return how many streams it led.",
		Example: "salt-run cluster.step_down", Run: func(ctx context.Context, _ *function.Call) (any, error) { return h.StepDown(ctx) }}
}

// data is the status as a value.
func (s ClusterStatus) data() map[string]any {
	members := map[string]any{}
	for _, m := range s.Members {
		members[m.Name] = m.data()
	}
	data := map[string]any{"cluster": s.Cluster, "member": s.Member, "copies": s.Copies, "stores": s.Fault == "", "lacking": len(s.Lacking), "unstored_jobs": s.Unstored, "members": members}
	if len(s.Lacking) > 0 {
		streams := map[string]any{}
		for name, what := range s.Lacking {
			streams[name] = what
		}
		data["lacking_streams"] = streams
	}
	if s.Fault != "" {
		data["error"] = s.Fault
	}
	return data
}

func (m MemberStatus) data() map[string]any {
	data := map[string]any{"running": m.Running}
	if m.Address != "" {
		data["address"] = m.Address
	}
	if m.Leaving {
		data["leaving"] = true
	}
	switch {
	case m.Running:
		data["version"], data["minions"], data["same_rules"], data["same_peers"], data["leads"] = m.Version, m.Minions, m.SameRules, m.SamePeers, m.Leads
		if m.Copies > 0 {
			data["copies"] = m.Copies
		}
		if m.ClockAhead != nil {
			data["clock_ahead"] = m.ClockAhead.Round(100 * time.Millisecond).Seconds()
		}
	case m.Removed: // whether something answers at its address says nothing
		data["state"] = "removed"
	case !m.Left.IsZero():
		data["state"], data["left"] = "left", m.Left.UTC().Format(time.DateTime)
	case m.Fault != "":
		data["error"] = m.Fault
	}
	return data
}

func anyList(list []string) []any {
	all := []any{}
	for _, s := range list {
		all = append(all, s)
	}
	return all
}
