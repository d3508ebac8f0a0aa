package runner

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// logs implements AuditLog.
type logs struct{ *audit.Log }

func (l logs) Chains(ctx context.Context) ([]*audit.Chain, error) { return audit.Chains(ctx, l.Log) }

func (l logs) Repair(ctx context.Context) (audit.Repaired, error) {
	return l.Log.Repair(ctx, audit.Who{})
}

// openLog opens the log of a member, none of whose others runs.
func openLog(t *testing.T, b *bustest.Bus, j *journal.Journal, queue, name string) *audit.Log {
	t.Helper()
	dir := t.TempDir()
	o := audit.Options{Journal: j, Name: name, HeadFile: filepath.Join(dir, "head"), KeyFile: filepath.Join(dir, "key"), Log: bustest.Log(t)}
	var err error
	if o.Queue, err = journal.OpenQueue(t.Context(), b.Conn(), queue, nil); err != nil {
		t.Fatal(err)
	}
	l, err := audit.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// TestAuditOfAllMembers: what somebody did at any member is found at each, by time; one can be named. What cannot be searched is
// told beside what is found.
func TestAuditOfAllMembers(t *testing.T) {
	b := bustest.StartStore(t)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	m1, m3 := openLog(t, b, j, "AUDIT", "m1"), openLog(t, b, j, "AUDIT_m3", "m3")
	for n := range 6 {
		l, arg := m1, any(n)
		if n%2 == 1 {
			l = m3
		}
		if err := l.Record(t.Context(), audit.Entry{Kind: audit.Publish, Verdict: audit.Allowed, Who: audit.Who{User: "fred"}, Target: fmt.Sprint(n), Commands: []salt.Command{{Function: "cmd.run", Args: []any{arg}}}}); err != nil {
			t.Fatal(err)
		}
	}
	table := Table(&Host{Audit: logs{m1}})
	for name, c := range map[string]struct {
		fun     string
		kwargs  map[string]any
		want    string // the targets, with their members
		retcode int
	}{
		"all":                   {"audit.search", map[string]any{"user": "fred"}, "m1/0 m3/1 m1/2 m3/3 m1/4 m3/5", 0},
		"the newest":            {"audit.search", map[string]any{"user": "fred", "limit": int64(3)}, "m3/3 m1/4 m3/5", 0},
		"of one":                {"audit.search", map[string]any{"user": "fred", "member": "m3"}, "m3/1 m3/3 m3/5", 0},
		"the end":               {"audit.tail", map[string]any{"count": int64(2)}, "m1/4 m3/5", 0},
		"the end of one":        {"audit.tail", map[string]any{"count": int64(2), "member": "m1"}, "m1/2 m1/4", 0},
		"by arguments":          {"audit.search", map[string]any{"arg": []any{int64(2)}}, "m3:the key of its digests is at that master m1/2", 1},
		"by arguments, of this": {"audit.search", map[string]any{"arg": []any{int64(2)}, "member": "m1"}, "m1/2", 0},
	} {
		res := call(t, table, c.fun, nil, c.kwargs)
		if res.Err != nil || res.Retcode != c.retcode {
			t.Errorf("%s: %v, %d", name, res.Err, res.Retcode)
			continue
		}
		var got []string
		for _, one := range res.Return.([]any) {
			switch e := one.(map[string]any); {
			case e["error"] != nil:
				_, what, _ := strings.Cut(e["error"].(string), ": ")
				what, _, _ = strings.Cut(what, ",")
				got = append(got, fmt.Sprint(e["member"], ":", what))
			default:
				got = append(got, fmt.Sprint(e["member"], "/", e["tgt"]))
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
	for _, fun := range []string{"audit.search", "audit.tail", "audit.export", "audit.verify"} {
		res := call(t, table, fun, nil, map[string]any{"member": "m2"})
		if res.Err == nil || salt.Hint(res.Err) != "there are those of m1, m3" {
			t.Errorf("%s of a member that never was: %v, hint %q", fun, res.Err, salt.Hint(res.Err))
		}
	}
	text := call(t, table, "audit.export", nil, map[string]any{"member": "m3"}).Return.(string)
	if strings.Count(text, "\n") != 2 || !strings.Contains(text, `"tgt":"5"`) || strings.Contains(text, `"tgt":"4"`) {
		t.Errorf("the entries of m3 are %s", text)
	}

	one := call(t, table, "audit.verify", nil, map[string]any{"member": "m3"}).Return.(map[string]any)
	if one["ok"] != true || one["member"] != "m3" || one["running"] != false || len(one["compared_with"].([]any)) != 0 {
		t.Errorf("%v", one)
	}
	head := one["head"].(string)
	one = call(t, table, "audit.verify", nil, map[string]any{"member": "m3", "head": head}).Return.(map[string]any)
	if one["ok"] != true || len(one["compared_with"].([]any)) != 1 {
		t.Errorf("%v", one)
	}
	wrong := head[:len(head)-3] + "000"
	res := call(t, table, "audit.verify", nil, map[string]any{"member": "m3", "head": wrong})
	if res.Retcode != 1 || res.Return.(map[string]any)["ok"] != false {
		t.Errorf("with another head: %v", res)
	}
	all := call(t, table, "audit.verify", nil, nil).Return.(map[string]any)
	if others := all["chains"].(map[string]any); all["ok"] != true || all["member"] != "m1" || len(others) != 1 || others["m3"].(map[string]any)["entries"] != uint64(3) {
		t.Errorf("%v", all)
	}
	damaged, err := journal.PeerQueue(t.Context(), j, "AUDIT", "m3")
	if err != nil || damaged.Remove(t.Context(), 1) != nil {
		t.Fatal(err)
	}
	res = call(t, table, "audit.verify", nil, nil)
	all = res.Return.(map[string]any)
	if third := all["chains"].(map[string]any)["m3"].(map[string]any); res.Retcode != 1 || all["ok"] != false || third["ok"] != false || len(all["problems"].([]any)) != 0 {
		t.Errorf("%v: something is missing in the log of m3", all)
	}
}
