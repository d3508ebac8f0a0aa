package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target/fnmatch"
	"github.com/brinebus/brine/internal/value"
)

// AuditLog is the master's audit log, on behalf of the user of the runner.
type AuditLog interface {
	// Chains returns the audit logs that can be read here: the master's own first, then those of other members of its
	// cluster, and of former ones.
	Chains(ctx context.Context) ([]*audit.Chain, error)
	Repair(ctx context.Context) (audit.Repaired, error)
}

// Limits of what is returned at once.
const (
	searchLimit = 1000
	exportBytes = 64 << 20
)

// auditModule reads the audit log. It is for operators, and for users with a rule that names it.
func auditModule(h *Host) *function.Module {
	a := auditReader{h.Audit}
	member := function.Param{Name: "member", Kind: function.String}
	return &function.Module{Name: "audit", Doc: "The log of decisions: who requested what, and whether it was allowed. In a cluster each member has one.", Functions: []function.Function{
		{Name: "export", Class: function.Secret, Doc: "Return the entries as they are stored, one line each: the hash of one line is the prev of the next. They are those of the master that is asked, or of the member that is named.", Example: "salt-run audit.export > audit.jsonl\nsalt-run audit.export since=24h\nsalt-run audit.export member=172_16_0_12_4520",
			Params: []function.Param{{Name: "since", Kind: function.String}, member}, Out: "txt", Run: a.export},
		{Name: "repair", Class: function.AsDaemon, Doc: "Make a new audit.head and audit.key if they are damaged; until then nothing that needs an entry is done. The damaged files are kept beside the new ones, and an entry says who repaired what, and up to which entry the chain is complete. Compare that with a head that was kept on another machine, with audit.verify.",
			Example: "salt-run audit.repair", Run: a.repair},
		{Name: "search", Class: function.Secret, Doc: "Return the entries that match all arguments. fun may be a pattern; arg and kwarg are compared by their digest. The newest are last. In a cluster they are those of all members, also of former ones, each with its member; member=NAME returns those of one. A log that cannot be searched has an error in place of its entries, and the exit code is 1: arguments cannot be compared in the log of a member that does not run, which has the key of their digests.",
			Example: "salt-run audit.search user=fred verdict=refused since=2h\nsalt-run audit.search fun='cmd.*' minion=web1\nsalt-run audit.search fun=cmd.run arg='[reboot]'\nsalt-run audit.search user=fred member=172_16_0_12_4520",
			Params: []function.Param{
				{Name: "user", Kind: function.String}, {Name: "fun", Kind: function.String}, {Name: "verdict", Kind: function.String}, {Name: "kind", Kind: function.String},
				{Name: "minion", Kind: function.String}, {Name: "tgt", Kind: function.String}, {Name: "jid", Kind: function.String}, {Name: "since", Kind: function.String},
				{Name: "arg", Kind: function.Any}, {Name: "kwarg", Kind: function.Any}, {Name: "limit", Kind: function.Int, Default: searchLimit}, member,
			}, Run: a.search},
		{Name: "tail", Class: function.Secret, Doc: "Return the newest entries. In a cluster they are those of all members, or of the one that is named.", Example: "salt-run audit.tail\nsalt-run audit.tail 3\nsalt-run audit.tail member=172_16_0_12_4520",
			Params: []function.Param{{Name: "count", Kind: function.Int, Default: 20}, member}, Run: a.tail},
		{Name: "verify", Class: function.Secret, Doc: "Check that no entry was changed or removed, and return the head of the audit log. Keep the head on another machine and pass it the next time: then a log that was replaced as a whole is noticed, too. In a cluster the logs of the other members, also of former ones, are checked as well: they are below chains, and compared_with names what each was compared with. member=NAME checks one of them, and head is then of that one.",
			Example: "salt-run audit.verify\nsalt-run audit.verify head=1042:6d1f9c...\nsalt-run audit.verify member=172_16_0_12_4520 head=977:81bc02...",
			Params:  []function.Param{{Name: "head", Kind: function.String}, member}, Run: a.verify},
	}}
}

// auditReader runs the functions on a log.
type auditReader struct{ AuditLog }

// chains returns the logs that a call is about: all, or the one of the member that it names.
func (a auditReader) chains(ctx context.Context, c *function.Call) ([]*audit.Chain, error) {
	all, err := a.Chains(ctx)
	name := c.String("member")
	if err != nil || name == "" {
		return all, err
	}
	var names []string
	for _, one := range all {
		if one.Name == name {
			return []*audit.Chain{one}, nil
		}
		if one.Name != "" {
			names = append(names, one.Name)
		}
	}
	err = fmt.Errorf("there is no audit log of a member %.80q", name)
	if len(names) == 0 {
		return nil, salt.WithHint(err, "this master has the audit logs of no other: leave member= out")
	}
	return nil, salt.WithHint(err, "there are those of "+strings.Join(names, ", "))
}

func (a auditReader) verify(ctx context.Context, c *function.Call) (any, error) {
	all, err := a.chains(ctx, c)
	if err != nil {
		return nil, err
	}
	var kept []string
	if head := c.String("head"); head != "" {
		kept = append(kept, head)
	}
	reports, ok := make([]map[string]any, len(all)), true
	for i, one := range all {
		r, err := one.Verify(ctx, kept...)
		if err != nil && i == 0 {
			return nil, err
		}
		if err != nil {
			r.Problems = []string{err.Error()}
		}
		ok = ok && r.OK
		reports[i], kept = reportOf(one, r), nil
	}
	if !ok {
		c.SetRetcode(1)
	}
	first := reports[0]
	if len(all) == 1 {
		return first, nil
	}
	others := map[string]any{}
	for i, one := range all[1:] {
		others[one.Name] = reports[i+1]
	}
	first["ok"], first["chains"] = ok, others
	return first, nil
}

// reportOf returns the report about one log. That of a single master needs no name, nor what it was compared with.
func reportOf(one *audit.Chain, r audit.Report) map[string]any {
	m := map[string]any{
		"ok": r.OK, "entries": r.Entries, "first": r.First, "last": r.Last, "head": r.Head, "problems": anyTexts(r.Problems),
	}
	if one.Name != "" {
		m["member"], m["running"], m["compared_with"] = one.Name, one.Running(), anyTexts(r.Compared)
	}
	return m
}

func (a auditReader) repair(ctx context.Context, _ *function.Call) (any, error) {
	r, err := a.Repair(ctx)
	if err != nil {
		return nil, err
	}
	files := []any{}
	for _, f := range r.Files {
		files = append(files, map[string]any{"file": f.File, "reason": f.Reason, "kept": f.Aside})
	}
	if len(files) == 0 {
		return map[string]any{"repaired": files}, nil
	}
	return map[string]any{"repaired": files, "good": r.Good, "entry": r.Entry, "problems": anyTexts(r.Problems)}, nil
}

func anyTexts(texts []string) []any {
	list := make([]any, len(texts))
	for i, s := range texts {
		list[i] = s
	}
	return list
}

func (a auditReader) tail(ctx context.Context, c *function.Call) (any, error) {
	if c.Int("count") < 1 {
		return nil, errors.New("count is below 1")
	}
	all, err := a.chains(ctx, c)
	if err != nil {
		return nil, err
	}
	return collectAll(c, all, c.Int("count"), func(one *audit.Chain) ([]found, error) {
		return collect(ctx, one, audit.Query{Last: c.Int("count")}, c.Int("count"), func(auditLine) bool { return true })
	})
}

// auditLine has the fields of an entry that are searched.
type auditLine struct {
	Time    time.Time       `json:"time"`
	User    string          `json:"user"`
	Minion  string          `json:"minion"`
	Fun     string          `json:"fun"`
	Verdict string          `json:"verdict"`
	Kind    string          `json:"kind"`
	Target  string          `json:"tgt"`
	JID     string          `json:"jid"`
	Digest  string          `json:"args"`
	Minions []salt.MinionID `json:"minions"`
}

// found is an entry that matches.
type found struct {
	line []byte
	time time.Time
}

// collect returns the newest of the entries that match.
func collect(ctx context.Context, from *audit.Chain, q audit.Query, limit int, match func(auditLine) bool) (list []found, err error) {
	err = from.Each(ctx, q, func(line []byte) error {
		var l auditLine
		if err := json.Unmarshal(line, &l); err != nil || !match(l) {
			return nil // verify reports unreadable entries
		}
		list = append(list, found{line, l.Time})
		if len(list) > 2*limit {
			list = slices.Clone(list[limit:])
		}
		return nil
	})
	return list[max(0, len(list)-limit):], err
}

// collectAll returns the newest of what collect finds in several logs, which are read at the same time. The entries of
// each stay in their order.
func collectAll(c *function.Call, all []*audit.Chain, limit int, collect func(*audit.Chain) ([]found, error)) ([]any, error) {
	lists, errs := make([][]found, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i, one := range all {
		wg.Go(func() { lists[i], errs[i] = collect(one) })
	}
	wg.Wait()
	if len(all) == 1 && errs[0] != nil {
		return nil, errs[0]
	}
	out := []any{}
	for i, err := range errs {
		if err != nil {
			c.SetRetcode(1)
			out = append(out, map[string]any{"member": all[i].Name, "error": err.Error()})
		}
	}
	entries := merged(lists, all)
	return append(out, entries[max(0, len(entries)-limit):]...), nil
}

// merged returns the entries of several logs by their times.
func merged(lists [][]found, of []*audit.Chain) (entries []any) {
	for {
		oldest := -1
		for i, list := range lists {
			if len(list) > 0 && (oldest < 0 || list[0].time.Before(lists[oldest][0].time)) {
				oldest = i
			}
		}
		if oldest < 0 {
			return entries
		}
		if entry := shownEntry(lists[oldest][0].line, of[oldest].Name); entry != nil {
			entries = append(entries, entry)
		}
		lists[oldest] = lists[oldest][1:]
	}
}

// shownEntry returns an entry with its hash, and the member in whose log it is.
func shownEntry(line []byte, member string) any {
	v, err := value.Decode(line)
	entry, ok := v.(map[string]any)
	if err != nil || !ok {
		return nil
	}
	entry["hash"] = audit.Hash(line)
	if member != "" {
		entry["member"] = member
	}
	return entry
}

func (a auditReader) search(ctx context.Context, c *function.Call) (any, error) {
	from, err := since(c)
	if err != nil {
		return nil, err
	}
	if c.Int("limit") < 1 {
		return nil, errors.New("limit is below 1")
	}
	args, kwargs, err := searched(c)
	if err != nil {
		return nil, err
	}
	all, err := a.chains(ctx, c)
	if err != nil {
		return nil, err
	}
	fun := globs(c.String("fun"))
	is := func(name, have string) bool { return c.String(name) == "" || c.String(name) == have }
	return collectAll(c, all, c.Int("limit"), func(one *audit.Chain) ([]found, error) {
		digest := ""
		if c.Has("arg") || c.Has("kwarg") {
			var err error
			if digest, err = one.Digest(ctx, args, kwargs); err != nil {
				return nil, fmt.Errorf("arguments cannot be searched for: %w", err)
			}
		}
		return collect(ctx, one, audit.Query{Since: from}, c.Int("limit"), func(l auditLine) bool {
			return is("user", l.User) && is("verdict", l.Verdict) && is("kind", l.Kind) && is("tgt", l.Target) && is("jid", l.JID) &&
				(digest == "" || digest == l.Digest) && fun(l.Fun) && about(c.String("minion"), l)
		})
	})
}

// since returns the time from which on entries are wanted; zero means all.
func since(c *function.Call) (time.Time, error) {
	if !c.Has("since") {
		return time.Time{}, nil
	}
	return parseMoment("since", c.String("since"), time.Now())
}

// about reports whether the entry is about a minion, as the requester or as a target; "" is any.
func about(minion string, l auditLine) bool {
	return minion == "" || minion == l.Minion || slices.Contains(l.Minions, salt.MinionID(minion))
}

// globs returns a match of one of the functions of a compound command.
func globs(pattern string) func(list string) bool {
	if pattern == "" {
		return func(string) bool { return true }
	}
	match := fnmatch.Compile(pattern).Match
	return func(list string) bool { return slices.ContainsFunc(strings.Split(list, ","), match) }
}

// searched returns the arguments that are searched for.
func searched(c *function.Call) (args []any, kwargs map[string]any, err error) {
	args, ok := c.Any("arg").([]any)
	if !ok && c.Any("arg") != nil {
		args = []any{c.Any("arg")}
	}
	kwargs, ok = c.Any("kwarg").(map[string]any)
	if !ok && c.Any("kwarg") != nil {
		return nil, nil, errors.New("kwarg is not a mapping")
	}
	return args, kwargs, nil
}

func (a auditReader) export(ctx context.Context, c *function.Call) (any, error) {
	from, err := since(c)
	if err != nil {
		return nil, err
	}
	all, err := a.chains(ctx, c)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	err = all[0].Each(ctx, audit.Query{Since: from}, func(line []byte) error {
		if text.Len()+len(line) > exportBytes {
			return salt.WithHint(fmt.Errorf("the entries have more than %d bytes", exportBytes), "name a later since=, or let audit_file have them all")
		}
		text.Write(line)
		text.WriteByte('\n')
		return nil
	})
	return strings.TrimSuffix(text.String(), "\n"), err
}
