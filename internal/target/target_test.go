package target

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
)

func parse(t testing.TB, expr string, kind Kind, opt Options) *Target {
	t.Helper()
	tgt, err := Parse(expr, kind, opt)
	if err != nil {
		t.Fatalf("Parse(%q, %s): %v", expr, kind, err)
	}
	return tgt
}

func TestParseKind(t *testing.T) {
	for _, k := range kinds {
		if got, err := ParseKind(string(k)); got != k || err != nil {
			t.Errorf("ParseKind(%q) = %q, %v", k, got, err)
		}
	}
	for _, s := range []string{"", "Grain", "exsel", "glob "} {
		if got, err := ParseKind(s); got != "" || !errors.Is(err, ErrKind) || salt.Hint(err) == "" {
			t.Errorf("ParseKind(%q) = %q, %v; want ErrKind with a hint", s, got, err)
		}
		if tgt, err := Parse("*", Kind(s), Options{}); tgt != nil || !errors.Is(err, ErrKind) {
			t.Errorf("Parse with the kind %q = %v, %v", s, tgt, err)
		}
	}
}

var groups = map[string]any{
	"web": "L@web1,web2", "both": "N@web or N@db", "db": `E@db\d`, "empty": "", "list": []any{"web1", "web2"},
	"loop": "web1 or N@loop2", "loop2": []any{"N@loop"}, "self": "N@self", "inside": "N@nosuch or web1",
	"number": int64(5), "numbers": []any{int64(1)}, "blank": []any{"G@roles:front end"}, "bad": "and web1",
	"strings": []string{"web1", "or", "db1"}, "either": "web1 or db1",
}

func TestErrors(t *testing.T) {
	tests := []struct {
		name, expr string
		kind       Kind
		want       error
		text       string // what the message must name
	}{
		{"operator first", "and web1", Compound, ErrSyntax, `word 1, "and"`},
		{"operator last", "web1 and", Compound, ErrSyntax, `ends after "and"`},
		{"operator alone", "not", Compound, ErrSyntax, `ends after "not"`},
		{"operators together", "web1 and or web2", Compound, ErrSyntax, `word 3, "or"`},
		{"double not", "not not web1", Compound, ErrSyntax, `word 2, "not"`},
		{"no operator", "web1 web2", Compound, ErrSyntax, `word 2, "web2"`},
		{"blank in a list", "L@web1, web2", Compound, ErrSyntax, `word 2, "web2"`},
		{"capitals", "web1 OR web2", Compound, ErrSyntax, `word 2, "OR"`},
		{"open parenthesis", "( web1 or web2", Compound, ErrSyntax, `word 1, "(": it is never closed`},
		{"close parenthesis", "web1 )", Compound, ErrSyntax, `word 2, ")": it closes nothing`},
		{"empty parentheses", "web1 or ( )", Compound, ErrSyntax, `word 4, ")"`},
		{"empty", " ", Compound, ErrSyntax, "it is empty"},
		{"deep", strings.Repeat("( ", 201) + "a" + strings.Repeat(" )", 201), Compound, ErrSyntax, "more than 200"},
		{"range", "web1 or R@%web", Compound, ErrSyntax, `word 3, "R@%web"`},
		{"letter without pattern", "E@", Compound, ErrSyntax, "nothing follows"},
		{"regexp in a compound", "web1 or E@(", Compound, ErrSyntax, "unterminated subpattern at position 0"},
		{"regexp", "[", PCRE, ErrSyntax, "unterminated character set at position 0"},
		{"grain regexp", "os:(deb", GrainPCRE, ErrSyntax, "unterminated subpattern"},
		{"grain regexp with a colon", "os:(deb:x", GrainPCRE, ErrSyntax, "unterminated subpattern"},
		{"grain without value", "os", Grain, ErrSyntax, `no ":"`},
		{"pillar without value", "role", Pillar, ErrSyntax, `no ":"`},
		{"address", "10.0.0.256", IPCIDR, ErrSyntax, "neither an address nor a network"},
		{"network with host", "10.0.0.11/24", IPCIDR, ErrSyntax, "beyond the mask"},
		{"leading zero", "010.0.0.11", IPCIDR, ErrSyntax, "neither"},
		{"odd mask", "10.0.0.0/255.0.255.0", IPCIDR, ErrSyntax, "neither"},
		{"long", strings.Repeat("a", MaxPattern+1), Glob, ErrSyntax, "the limit is"},
		{"many keys", strings.Repeat("a:", maxParts+1) + "b", Grain, ErrSyntax, "more than"},
		{"unknown group", "nosuch", Nodegroup, ErrNodegroup, `"nosuch": it is not defined`},
		{"unknown group in a compound", "web1 or N@nosuch", Compound, ErrNodegroup, `word 3, "N@nosuch"`},
		{"unknown group in a group", "inside", Nodegroup, ErrNodegroup, `"nosuch": it is not defined, but "inside" names it`},
		{"loop", "N@loop", Compound, ErrNodegroup, "loop -> loop2 -> loop"},
		{"self", "self", Nodegroup, ErrNodegroup, "self -> self"},
		{"number", "number", Nodegroup, ErrNodegroup, "neither text nor a list"},
		{"numbers", "numbers", Nodegroup, ErrNodegroup, "item 1"},
		{"blank in a word", "blank", Nodegroup, ErrNodegroup, "not one word"},
		{"bad group", "bad", Nodegroup, ErrSyntax, `"bad"`},
		{"bad group", "bad", Nodegroup, ErrNodegroup, `word 1, "and"`},
	}
	for _, tt := range tests {
		tgt, err := Parse(tt.expr, tt.kind, Options{Nodegroups: groups})
		if tgt != nil || !errors.Is(err, tt.want) || !strings.Contains(fmt.Sprint(err), tt.text) {
			t.Errorf("%s: Parse(%.40q, %s) = %v, %v; want %q with %q", tt.name, tt.expr, tt.kind, tgt, err, tt.want, tt.text)
		}
	}
}

func TestHintNamesTheNetwork(t *testing.T) {
	_, err := Parse("web1 or S@10.0.0.11/24", Compound, Options{})
	if got, want := salt.Hint(err), "the network is 10.0.0.0/24"; got != want {
		t.Errorf("hint %q, want %q", got, want)
	}
}

func TestNodegroupsStayUnits(t *testing.T) {
	for expr, want := range map[string]string{
		"not N@either":          "not ( web1 or db1 )",
		"web2 and N@either":     "web2 and ( web1 or db1 )",
		"N@both":                `( L@web1,web2 or E@db\d )`,
		"not N@web":             "not L@web1,web2",
		"( N@list )":            "( L@web1,web2 )",
		"N@strings or N@empty":  "( web1 or db1 ) or L@",
		"web1  not\tweb2":       "web1 and not web2",
		"G|@a:b|c and P@os:D.*": "G|@a:b|c and P@os:D.*",
	} {
		got, kind := parse(t, expr, Compound, Options{Nodegroups: groups}).Published()
		if got != want || kind != Compound {
			t.Errorf("%q is published as %q, %s; want %q", expr, got, kind, want)
		}
	}
}

// TestLikeSalt holds what the cases of testdata do not have, each as Salt answers it.
func TestLikeSalt(t *testing.T) {
	is := Facts{ID: "web1", Grains: map[string]any{
		"selinux": map[string]any{"enabled": true}, "os": "Debian", "ipv4": "10.0.0.1", "ipv6": []any{"fe80::1%eth0", "fe80::2"},
	}}
	groups := map[string]any{"others": "not web1", "closed": "( not web1 )", "far": "N@others"}
	for _, c := range []struct {
		expr string
		kind Kind
		want bool
	}{
		{"selinux:*", GrainPCRE, true}, // a star is any map, though no expression
		{"selinux:*:*", GrainPCRE, true},
		{"os:*", GrainPCRE, false},
		{"P@selinux:*", Compound, true},
		{"fe80::1%eth0", IPCIDR, true}, // an address has its zone
		{"fe80::1%eth1", IPCIDR, false},
		{"fe80::1", IPCIDR, false},
		{"fe80::2%eth0", IPCIDR, false},
		{"fe80::2", IPCIDR, true},
		{"fe80::/64", IPCIDR, true},
		{"10.0.0.1", IPCIDR, true},
		{"not N@closed", Compound, true},
		{"* and N@others", Compound, false},
		{"N@others or web1", Compound, true},
	} {
		if got, err := parse(t, c.expr, c.kind, Options{Nodegroups: groups}).Match(is); got != c.want || err != nil {
			t.Errorf("%s %q: %v, %v; want %v", c.kind, c.expr, got, err, c.want)
		}
	}
	for _, expr := range []string{"not N@others", "web1 and not N@others", "not N@far", "( not N@others )"} {
		if _, err := Parse(expr, Compound, Options{Nodegroups: groups}); err == nil || !strings.Contains(err.Error(), "follows another") {
			t.Errorf("%q: %v, want the mistake of two negations", expr, err)
		}
	}
	if _, err := Parse("a|b:c", PillarPCRE, Options{Delimiter: "|"}); !errors.Is(err, ErrSyntax) || salt.Hint(err) == "" {
		t.Errorf("a delimiter for an expression of pillar: %v, want a mistake with a hint", err)
	}
}

func TestGroupsThatDouble(t *testing.T) {
	bomb := map[string]any{"g0": "web1"}
	for i := 1; i < 40; i++ {
		bomb[fmt.Sprintf("g%d", i)] = fmt.Sprintf("N@g%d or N@g%d", i-1, i-1)
	}
	if _, err := Parse("g39", Nodegroup, Options{Nodegroups: bomb}); !errors.Is(err, ErrSyntax) {
		t.Errorf("err = %v, want ErrSyntax", err)
	}
}

// Words of a compound target that cost nothing to match are bounded too, also within nodegroups.
func TestCompoundWordsAreBounded(t *testing.T) {
	half := strings.Repeat("a and ", 50000/4) + "b" // about half of the words, a quarter of the cost
	for name, c := range map[string]struct {
		expr string
		ok   bool
	}{
		"few":            {half, true},
		"many":           {half + " and not " + half, false},
		"many in groups": {"N@half and not N@half", false},
	} {
		_, err := Parse(c.expr, Compound, Options{Nodegroups: map[string]any{"half": half}})
		if c.ok && err != nil || !c.ok && (!errors.Is(err, ErrSyntax) || !strings.Contains(err.Error(), "words")) {
			t.Errorf("%s: %.100v, of %d bytes", name, err, len(c.expr))
		}
	}
}

func TestIDs(t *testing.T) {
	tests := []struct {
		expr  string
		kind  Kind
		known bool
		want  []salt.MinionID
		bad   []string
	}{
		{"web1,web2,web1", List, true, []salt.MinionID{"web1", "web2"}, nil},
		{"web1, web2,,", List, true, []salt.MinionID{"web1"}, []string{" web2"}},
		{"", List, true, []salt.MinionID{}, nil},
		{"web1", Glob, true, []salt.MinionID{"web1"}, nil},
		{"web1 or web2", Glob, true, []salt.MinionID{}, []string{"web1 or web2"}},
		{"web*", Glob, false, nil, nil},
		{"web[1]", Glob, false, nil, nil},
		{"web", Nodegroup, true, []salt.MinionID{"web1", "web2"}, nil},
		{"web1 or ( L@db1,db2 )", Compound, true, []salt.MinionID{"web1", "db1", "db2"}, nil},
		{"web1 or web*", Compound, false, nil, nil},
		{"web1 and web2", Compound, false, nil, nil},
		{"not web1", Compound, false, nil, nil},
		{"web1", PCRE, false, nil, nil},
	}
	for _, tt := range tests {
		tgt := parse(t, tt.expr, tt.kind, Options{Nodegroups: groups})
		ids, known := tgt.IDs()
		if known != tt.known || !slices.Equal(ids, tt.want) {
			t.Errorf("IDs of %s %q = %q, %v; want %q, %v", tt.kind, tt.expr, ids, known, tt.want, tt.known)
		}
		if bad := tgt.Impossible(); !slices.Equal(bad, tt.bad) {
			t.Errorf("Impossible of %s %q = %q, want %q", tt.kind, tt.expr, bad, tt.bad)
		}
	}
}

func TestNeeds(t *testing.T) {
	tests := []struct {
		expr           string
		kind           Kind
		grains, pillar bool
	}{
		{"*", Glob, false, false},
		{"os:*", Grain, true, false},
		{"os:.*", GrainPCRE, true, false},
		{"10.0.0.0/8", IPCIDR, true, false},
		{"a:b", Pillar, false, true},
		{"a:b", PillarPCRE, false, true},
		{"a:b", PillarExact, false, true},
		{"web* and not ( L@a or I@a:b )", Compound, false, true},
		{"web* and not ( S@10.0.0.1 )", Compound, true, false},
		{"web1 or E@x", Compound, false, false},
	}
	for _, tt := range tests {
		tgt := parse(t, tt.expr, tt.kind, Options{})
		if g, p := tgt.NeedsGrains(), tgt.NeedsPillar(); g != tt.grains || p != tt.pillar {
			t.Errorf("%s %q needs grains %v, pillar %v; want %v, %v", tt.kind, tt.expr, g, p, tt.grains, tt.pillar)
		}
	}
}

func TestMissingFactsMatchNothing(t *testing.T) {
	for expr, kind := range map[string]Kind{"os:*": Grain, "*:*": Grain, "a:.*": PillarPCRE, "0.0.0.0/0": IPCIDR} {
		if ok, err := parse(t, expr, kind, Options{}).Match(Facts{ID: "web1"}); ok || err != nil {
			t.Errorf("%s %q on a minion without facts = %v, %v", kind, expr, ok, err)
		}
	}
}

func TestCostlyRegexpIsPaidOnce(t *testing.T) {
	tgt := parse(t, `not E@(?=a)(a|aa)+$`, Compound, Options{})
	f := Facts{ID: salt.MinionID(strings.Repeat("a", 200) + "!")}
	begin := time.Now()
	for range 100 {
		if ok, err := tgt.Match(f); ok || !errors.Is(err, ErrTooExpensive) {
			t.Fatalf("Match = %v, %v; want ErrTooExpensive", ok, err)
		}
	}
	if took := time.Since(begin); took > 20*time.Second { // each of them would take a quarter of a second
		t.Errorf("100 matches took %v", took)
	}
}

// Keys that repeat themselves can be read in two ways at each level.
func TestCostlyDataIsBounded(t *testing.T) {
	m := map[string]any{}
	for range maxParts {
		m = map[string]any{"a": m, "b": "c"}
	}
	tgt := parse(t, strings.Repeat("a:", maxParts-1)+"x", Grain, Options{})
	if ok, err := tgt.Match(Facts{ID: "web1", Grains: m}); ok || !errors.Is(err, ErrTooExpensive) {
		t.Errorf("Match = %v, %v; want ErrTooExpensive", ok, err)
	}
}

func TestConcurrentMatch(t *testing.T) {
	tgt := parse(t, `web* and G@os:Deb* and E@web(?!3)\d`, Compound, Options{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			f := Facts{ID: salt.MinionID(fmt.Sprintf("web%d", i)), Grains: map[string]any{"os": "Debian"}}
			if ok, err := tgt.Match(f); ok == (i == 3) || err != nil {
				t.Errorf("%s: %v, %v", f.ID, ok, err)
			}
		})
	}
	deadline.Call(t, wg.Wait, "wg")
}

func TestLookup(t *testing.T) {
	m := map[string]any{
		"a":  map[string]any{"b": "leaf", "nil": nil},
		"l":  []any{"x", map[string]any{"k": "v"}, map[string]any{"n": []any{"y"}}},
		"x:": "no",
	}
	tests := []struct {
		keys, delimiter string
		want            any
		ok              bool
	}{
		{"a:b", ":", "leaf", true},
		{"a:b", "", "leaf", true},
		{"a|b", "|", "leaf", true},
		{"a:nil", ":", nil, true},
		{"a:nosuch", ":", nil, false},
		{"a:b:c", ":", nil, false},
		{"l:0", ":", "x", true},
		{"l:-3", ":", "x", true},
		{"l:3", ":", nil, false},
		{"l:-4", ":", nil, false},
		{"l:k", ":", "v", true},
		{"l:n:0", ":", "y", true},
		{"l:nosuch", ":", nil, false},
		{"", ":", nil, false},
	}
	for _, tt := range tests {
		if got, ok := Lookup(m, tt.keys, tt.delimiter); got != tt.want || ok != tt.ok {
			t.Errorf("Lookup(%q, %q) = %v, %v; want %v, %v", tt.keys, tt.delimiter, got, ok, tt.want, tt.ok)
		}
	}
}

// What is accepted prints back the same, and a minion reads what is published
// as the master reads what was written.
func FuzzParse(f *testing.F) {
	all, facts, nodegroups := loadSaltCases(f)
	for _, c := range all.Cases {
		if s, ok := c.Tgt.V.(string); ok {
			f.Add(s, slices.Index(kinds, Kind(c.TgtType)), c.Delimiter)
		}
	}
	f.Fuzz(func(t *testing.T, expr string, k int, delimiter string) {
		if k < 0 || k >= len(kinds) {
			return
		}
		opt := Options{Delimiter: delimiter, Nodegroups: nodegroups}
		tgt, err := Parse(expr, kinds[k], opt)
		if err != nil {
			if tgt != nil || !errors.Is(err, ErrSyntax) && !errors.Is(err, ErrNodegroup) {
				t.Errorf("Parse(%q, %s) = %v, %v", expr, kinds[k], tgt, err)
			}
			return
		}
		again, err := Parse(tgt.String(), kinds[k], opt)
		if err != nil || again.String() != tgt.String() {
			t.Fatalf("%s %q prints as %q, which parses to %v, %v", kinds[k], expr, tgt, again, err)
		}
		published, kind := tgt.Published()
		sent, err := Parse(published, kind, Options{Delimiter: delimiter})
		if err != nil {
			t.Fatalf("%s %q is published as %s %q: %v", kinds[k], expr, kind, published, err)
		}
		for _, m := range facts {
			want, err := tgt.Match(m)
			got, err2 := sent.Match(m)
			if err == nil && err2 == nil && got != want {
				t.Errorf("%s %q on %s: %v; published as %q: %v", kinds[k], expr, m.ID, want, published, got)
			}
		}
	})
}

func manyFacts() []Facts {
	facts := make([]Facts, 10000)
	for i := range facts {
		facts[i] = Facts{
			ID:     salt.MinionID(fmt.Sprintf("web%05d.example.com", i)),
			Grains: map[string]any{"os": "Debian", "roles": []any{"web", "cache"}, "ipv4": []any{"127.0.0.1", "10.0.0.11"}},
		}
	}
	return facts
}

func BenchmarkMatch10000(b *testing.B) {
	facts := manyFacts()
	for _, bm := range []struct {
		name, expr string
		kind       Kind
	}{
		{"glob", "web*7.example.*", Glob},
		{"pcre", `web\d+7\.example\.com`, PCRE},
		{"lookahead", `web(?!0)\d+7\.example\.com`, PCRE},
		{"list", "web00007.example.com,web00008.example.com", List},
		{"grain", "roles:cac*", Grain},
		{"ipcidr", "10.0.0.0/24", IPCIDR},
		{"compound", "web*7.example.com and G@os:Deb* and not L@web00007.example.com", Compound},
	} {
		tgt := parse(b, bm.expr, bm.kind, Options{})
		b.Run(bm.name, func(b *testing.B) {
			for b.Loop() {
				for _, f := range facts {
					if _, err := tgt.Match(f); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		parse(b, `web* and ( G@os:Debian or N@both ) and not E@web(?!1)\d+`, Compound, Options{Nodegroups: groups})
	}
}
