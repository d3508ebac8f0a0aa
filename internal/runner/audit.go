package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target/fnmatch"
	"github.com/brinebus/brine/internal/value"
)

// AuditLog is the master's audit log, on behalf of the user of the runner.
type AuditLog interface {
	Each(ctx context.Context, q audit.Query, f func(line []byte) error) error
	Verify(ctx context.Context, kept ...string) (audit.Report, error)
	Repair(ctx context.Context) (audit.Repaired, error)
	Digest(args []any, kwargs map[string]any) (string, error)
}

// Limits of what is returned at once.
const (
	searchLimit = 1000
	exportBytes = 64 << 20
)

// auditModule reads the audit log. It is for operators, and for users with a rule that names it.
func auditModule(h *Host) *function.Module {
	a := auditReader{h.Audit}
	return &function.Module{Name: "audit", Doc: "The log of decisions: who requested what, and whether it was allowed.", Functions: []function.Function{
		{Name: "export", Class: function.Secret, Doc: "Return the entries as they are stored, one line each: the hash of one line is the prev of the next.", Example: "salt-run audit.export > audit.jsonl\nsalt-run audit.export since=24h",
			Params: []function.Param{{Name: "since", Kind: function.String}}, Out: "txt", Run: a.export},
		{Name: "repair", Class: function.AsDaemon, Doc: "Make a new audit.head and audit.key if they are damaged; until then nothing that needs an entry is done. The damaged files are kept beside the new ones, and an entry says who repaired what, and up to which entry the chain is complete. Compare that with a head that was kept on another machine, with audit.verify.",
			Example: "salt-run audit.repair", Run: a.repair},
		{Name: "search", Class: function.Secret, Doc: "Return the entries that match all arguments. fun may be a pattern; arg and kwarg are compared by their digest. The newest are last.",
			Example: "salt-run audit.search user=fred verdict=refused since=2h\nsalt-run audit.search fun='cmd.*' minion=web1\nsalt-run audit.search fun=cmd.run arg='[reboot]'",
			Params: []function.Param{
				{Name: "user", Kind: function.String}, {Name: "fun", Kind: function.String}, {Name: "verdict", Kind: function.String}, {Name: "kind", Kind: function.String},
				{Name: "minion", Kind: function.String}, {Name: "tgt", Kind: function.String}, {Name: "jid", Kind: function.String}, {Name: "since", Kind: function.String},
				{Name: "arg", Kind: function.Any}, {Name: "kwarg", Kind: function.Any}, {Name: "limit", Kind: function.Int, Default: searchLimit},
			}, Run: a.search},
		{Name: "tail", Class: function.Secret, Doc: "Return the newest entries.", Example: "salt-run audit.tail\nsalt-run audit.tail 3",
			Params: []function.Param{{Name: "count", Kind: function.Int, Default: 20}}, Run: a.tail},
		{Name: "verify", Class: function.Secret, Doc: "Check that no entry was changed or removed, and return the head of the audit log. Keep the head on another machine and pass it the next time: then a log that was replaced as a whole is noticed, too.",
			Example: "salt-run audit.verify\nsalt-run audit.verify head=1042:6d1f9c...",
			Params:  []function.Param{{Name: "head", Kind: function.String}}, Run: a.verify},
	}}
}

// auditReader runs the functions on a log.
type auditReader struct{ AuditLog }

func (a auditReader) verify(ctx context.Context, c *function.Call) (any, error) {
	var kept []string
	if head := c.String("head"); head != "" {
		kept = append(kept, head)
	}
	r, err := a.Verify(ctx, kept...)
	if err != nil {
		return nil, err
	}
	if !r.OK {
		c.SetRetcode(1)
	}
	return map[string]any{
		"ok": r.OK, "entries": r.Entries, "first": r.First, "last": r.Last, "head": r.Head, "problems": anyTexts(r.Problems),
	}, nil
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
	return a.collect(ctx, audit.Query{Last: c.Int("count")}, c.Int("count"), func(auditLine) bool { return true })
}

// auditLine has the fields of an entry that are searched.
type auditLine struct {
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

// collect returns the newest of the entries that match.
func (a auditReader) collect(ctx context.Context, q audit.Query, limit int, match func(auditLine) bool) ([]any, error) {
	var lines [][]byte
	err := a.Each(ctx, q, func(line []byte) error {
		var l auditLine
		if err := json.Unmarshal(line, &l); err != nil || !match(l) {
			return nil // verify reports unreadable entries
		}
		lines = append(lines, line)
		if len(lines) > 2*limit {
			lines = slices.Clone(lines[limit:])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, line := range lines[max(0, len(lines)-limit):] {
		v, err := value.Decode(line)
		entry, ok := v.(map[string]any)
		if err != nil || !ok {
			continue
		}
		entry["hash"] = audit.Hash(line)
		out = append(out, entry)
	}
	return out, nil
}

func (a auditReader) search(ctx context.Context, c *function.Call) (any, error) {
	from, err := since(c)
	if err != nil {
		return nil, err
	}
	if c.Int("limit") < 1 {
		return nil, errors.New("limit is below 1")
	}
	digest, err := a.digest(c)
	if err != nil {
		return nil, err
	}
	fun := globs(c.String("fun"))
	is := func(name, have string) bool { return c.String(name) == "" || c.String(name) == have }
	return a.collect(ctx, audit.Query{Since: from}, c.Int("limit"), func(l auditLine) bool {
		return is("user", l.User) && is("verdict", l.Verdict) && is("kind", l.Kind) && is("tgt", l.Target) && is("jid", l.JID) &&
			(digest == "" || digest == l.Digest) && fun(l.Fun) && about(c.String("minion"), l)
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

// digest returns the digest of the arguments that are searched for, "" for none.
func (a auditReader) digest(c *function.Call) (string, error) {
	if !c.Has("arg") && !c.Has("kwarg") {
		return "", nil
	}
	args, ok := c.Any("arg").([]any)
	if !ok && c.Any("arg") != nil {
		args = []any{c.Any("arg")}
	}
	kwargs, ok := c.Any("kwarg").(map[string]any)
	if !ok && c.Any("kwarg") != nil {
		return "", errors.New("kwarg is not a mapping")
	}
	return a.Digest(args, kwargs)
}

func (a auditReader) export(ctx context.Context, c *function.Call) (any, error) {
	from, err := since(c)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	err = a.Each(ctx, audit.Query{Since: from}, func(line []byte) error {
		if text.Len()+len(line) > exportBytes {
			return salt.WithHint(fmt.Errorf("the entries have more than %d bytes", exportBytes), "name a later since=, or let audit_file have them all")
		}
		text.Write(line)
		text.WriteByte('\n')
		return nil
	})
	return strings.TrimSuffix(text.String(), "\n"), err
}
