package acl

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/argument"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/documented"
)

// saltCases are cases with the answers of Salt 3006; the files describe their format.
type saltCases struct {
	Minions []struct {
		ID     salt.MinionID
		Grains value.Value
		Pillar value.Value
	}
	Nodegroups value.Value
	Cases      []json.RawMessage

	facts fleet
}

// fleet implements Fleet.
type fleet []target.Facts

func (f fleet) IDs() []salt.MinionID {
	var ids []salt.MinionID
	for _, m := range f {
		ids = append(ids, m.ID)
	}
	return ids
}

func (f fleet) Facts(id salt.MinionID) target.Facts {
	for _, m := range f {
		if m.ID == id {
			return m
		}
	}
	return target.Facts{}
}

func loadCases(t testing.TB, file string) *saltCases {
	t.Helper()
	b, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	c := &saltCases{}
	if err := json.Unmarshal(b, c); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Minions {
		c.facts = append(c.facts, target.Facts{ID: m.ID, Grains: m.Grains.V.(map[string]any), Pillar: m.Pillar.V.(map[string]any)})
	}
	return c
}

func (c *saltCases) groups() map[string]any { return c.Nodegroups.V.(map[string]any) }

// setting makes a setting from JSON, which is also YAML.
func setting(t testing.TB, key string, v json.RawMessage) Setting {
	t.Helper()
	return yamlSetting(t, key, string(v))
}

func yamlSetting(t testing.TB, key, text string) Setting {
	t.Helper()
	if text == "" || text == "null" {
		return Setting{Key: key}
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatalf("%s: %v\n%s", key, err, text)
	}
	if len(doc.Content) == 0 {
		return Setting{Key: key}
	}
	return Setting{Key: key, Node: doc.Content[0], File: func(*yaml.Node) string { return "master" }}
}

// aclCase is a case of acl.json; which fields it has depends on its kind.
type aclCase struct {
	ID, Kind  string
	Verdict   value.Value
	Line      string
	Expr      string
	Regex     any
	Fun       value.Value
	Arg       value.Value
	Args      value.Value
	Tgt       value.Value
	TgtType   string          `json:"tgt_type"`
	AuthList  json.RawMessage `json:"auth_list"`
	Blacklist json.RawMessage `json:"publisher_acl_blacklist"`
	ACL       json.RawMessage `json:"publisher_acl"`
	Eauth     json.RawMessage `json:"eauth_config"`
	User      string
	Name      string
	Groups    []string
	Permisive bool    `json:"permissive_acl"`
	KeyOf     *string `json:"key_of"`
	Form      string
	Kwargs    struct{ Eauth, Username string }
	Config    struct {
		ACL        json.RawMessage `json:"publisher_acl"`
		Blacklist  json.RawMessage `json:"publisher_acl_blacklist"`
		External   json.RawMessage `json:"external_auth"`
		SudoACL    bool            `json:"sudo_acl"`
		Permissive bool            `json:"permissive_acl"`
	}
}

// allowed reports whether Salt allows it; an error is a refusal.
func (c *aclCase) allowed() bool {
	switch v := c.Verdict.V.(type) {
	case bool:
		return v
	case map[string]any:
		return v["published"] == true
	}
	return false
}

// commands returns the functions of the case with their arguments: fun is text, or a list; then
// arg is a list of lists.
func commands(fun, arg any) []salt.Command {
	funs, ok := fun.([]any)
	if !ok {
		return []salt.Command{command(fun, arg)}
	}
	args, _ := arg.([]any)
	var list []salt.Command
	for i, f := range funs {
		var a any
		if i < len(args) {
			a = args[i]
		}
		list = append(list, command(f, a))
	}
	return list
}

func command(fun, arg any) salt.Command {
	name, _ := fun.(string)
	args, ok := arg.([]any)
	if text, isText := arg.(string); !ok && isText {
		args = []any{text}
	}
	c := salt.Command{Function: salt.Function(name), Args: args}
	if n := len(args); n > 0 {
		if m, ok := args[n-1].(map[string]any); ok && m["__kwarg__"] == true {
			c.Args, c.Kwargs = args[:n-1], maps.Clone(m)
			delete(c.Kwargs, "__kwarg__")
		}
	}
	return c
}

// resolve finds the minions as the master does. A target that cannot be parsed has none.
func (c *saltCases) resolve(tgt any, kind string) (*target.Target, []salt.MinionID) {
	expr, _ := tgt.(string)
	if list, ok := tgt.([]any); ok {
		words := make([]string, len(list))
		for i, w := range list {
			words[i], _ = w.(string)
		}
		expr = strings.Join(words, ",")
	}
	if kind == "" {
		kind = "glob"
	}
	parsed, err := target.Parse(expr, target.Kind(kind), target.Options{Nodegroups: c.groups()})
	if err != nil {
		return nil, nil
	}
	var ids []salt.MinionID
	for _, f := range c.facts {
		if ok, err := parsed.Match(f); ok && err == nil {
			ids = append(ids, f.ID)
		}
	}
	return parsed, ids
}

func (c *saltCases) question(s Subject, tgt any, kind string, cmds []salt.Command) Question {
	t, ids := c.resolve(tgt, kind)
	return Question{Subject: s, Commands: cmds, Target: t, Minions: ids, Fleet: c.facts, Functions: tables{}}
}

// tally compares answers with those of Salt.
type tally struct {
	known, unseen map[string]string
	asked         documented.Comparison
}

func newTally(known map[string]string) *tally { return &tally{known: known, unseen: maps.Clone(known)} }

// check compares one answer. That Brine never allows more than Salt is checked separately,
// whatever the list of differences says.
func (ta *tally) check(t *testing.T, id string, got, salt bool, what any) {
	t.Helper()
	reason, known := ta.known[id]
	if got && !salt {
		t.Errorf("%s: Brine allows what Salt refuses: %v", id, what)
	}
	switch {
	case got == salt && known:
		t.Errorf("%s no longer differs: take it off the list (%s)", id, reason)
	case got != salt && !known:
		t.Errorf("%s: %v, Salt says %v: %v", id, got, salt, what)
	}
	ta.asked.Count(documented.Verdict(got, salt))
	delete(ta.unseen, id)
}

// skip counts a case that does not apply here.
func (ta *tally) skip() { ta.asked.Count(documented.Different) }

func (ta *tally) finish(t *testing.T, about string) {
	t.Helper()
	for id := range ta.unseen {
		t.Errorf("%s is on the list of differences and not among the cases", id)
	}
	ta.asked.Stands(t, about)
}

func TestSaltACLCases(t *testing.T) {
	all := loadCases(t, "acl.json")
	ta := newTally(aclDifferences.cases("acl"))
	for _, raw := range all.Cases {
		var c aclCase
		if err := json.Unmarshal(raw, &c); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if reason := notAsked(&c); reason != "" {
			documented.Differences(t, reason)
			ta.skip()
			continue
		}
		got, want, ok := all.answer(t, &c)
		if !ok {
			t.Errorf("%s is not asked, and nothing says why", c.ID)
		}
		if c.asOther() && got {
			documented.Differences(t, inOwnName)
			ta.skip()
			continue
		}
		ta.check(t, c.ID, got, want, string(raw))
	}
	ta.finish(t, "access rules")
}

// notAsked returns why a case does not apply to Brine, "" if it does.
func notAsked(c *aclCase) string {
	switch {
	case c.Kind == "check_whitelist_blacklist", c.Kind == "user_is_whitelisted":
		return "no setting of the master uses Salt's helper for whitelists"
	case c.Kind == "spec_check" && c.Form == "cloud":
		return "there is no salt-cloud, and no rule for it"
	}
	return ""
}

// inOwnName is the reason for cases in which a user does in their own name what Salt refuses
// them in the name of another user.
const inOwnName = "nobody can make a request in the name of another user: the kernel says who the user is"

// asOther reports whether the request names another user.
func (c *aclCase) asOther() bool {
	return c.Kind == "publish" && c.Kwargs.Eauth == "" && c.KeyOf != nil && *c.KeyOf != "root" && *c.KeyOf != c.User
}

// answer asks the question of a case. The third result is false for an unknown kind.
func (all *saltCases) answer(t *testing.T, c *aclCase) (got, want, ok bool) {
	t.Helper()
	switch c.Kind {
	case "expr_match":
		return all.nameMatch(c), c.allowed(), true
	case "match_check":
		return functionMatch(c), c.allowed(), true
	case "user_is_blacklisted", "cmd_is_blacklisted":
		return all.blacklisted(t, c)
	case "auth_check":
		return all.authCheck(t, c)
	case "spec_check":
		return all.specCheck(t, c)
	case "publisher_acl_list", "fill_auth_list":
		return all.ruleList(t, c)
	case "publish":
		return all.publish(t, c)
	}
	return false, false, false
}

func (all *saltCases) nameMatch(c *aclCase) bool {
	n, err := newName(c.Expr)
	if err != nil {
		return false
	}
	ok, err := n.match(c.Line)
	return ok && err == nil
}

// functionMatch compares a pattern with functions; if they are a list, all must match.
func functionMatch(c *aclCase) bool {
	text, ok := c.Regex.(string)
	re, err := newFunction(text)
	if !ok || err != nil {
		return false
	}
	funs, isList := c.Fun.V.([]any)
	if !isList {
		funs = []any{c.Fun.V}
	}
	for _, f := range funs {
		s, ok := f.(string)
		matches, err := re.match(s)
		if !ok || !matches || err != nil {
			return false
		}
	}
	return len(funs) > 0
}

// blacklisted inverts the question, so that "allowed" means: neither the user nor any of the
// functions is on the blacklist.
func (all *saltCases) blacklisted(t *testing.T, c *aclCase) (got, want, ok bool) {
	r, err := Parse(Config{PublisherACLBlacklist: setting(t, "publisher_acl_blacklist", c.Blacklist)})
	_, isError := c.Verdict.V.(map[string]any)
	want = !c.allowed() && !isError
	if err != nil {
		return false, want, true
	}
	list, texts := r.blacklist.users, []string{c.User}
	if c.Kind == "cmd_is_blacklisted" {
		list, texts = r.blacklist.modules, nil
		for _, cmd := range commands(c.Fun.V, nil) {
			texts = append(texts, string(cmd.Function))
		}
	}
	for _, text := range texts {
		if b, err := find(list, text); b != nil || err != nil {
			return false, want, true
		}
	}
	return true, want, true
}

// authCheck asks for a user whose rules are the list of the case.
func (all *saltCases) authCheck(t *testing.T, c *aclCase) (got, want, ok bool) {
	r, err := Parse(Config{PublisherACL: setting(t, "publisher_acl", json.RawMessage(`{"fred": `+string(c.AuthList)+`}`)), Nodegroups: all.groups()})
	if err != nil {
		return false, c.allowed(), true
	}
	q := all.question(Subject{Kind: Local, Name: "fred"}, c.Tgt.V, c.TgtType, commands(c.Fun.V, c.Arg.V))
	// A mistake in the target is reported, and nothing is published.
	return r.Decide(q).Verdict == Allow && q.Target != nil, c.allowed(), true
}

func (all *saltCases) specCheck(t *testing.T, c *aclCase) (got, want, ok bool) {
	scope, ok := map[string]Scope{"runner": Runner, "wheel": Wheel}[c.Form]
	if !ok {
		return false, false, false
	}
	r, err := Parse(Config{ExternalAuth: setting(t, "external_auth", json.RawMessage(`{"pam": {"fred": `+string(c.AuthList)+`}}`))})
	if err != nil {
		return false, c.allowed(), true
	}
	fun, _ := c.Fun.V.(string)
	cmd := salt.Command{Function: salt.Function(fun)}
	if m, ok := c.Args.V.(map[string]any); ok {
		cmd.Args, _ = m["arg"].([]any)
		cmd.Kwargs, _ = m["kwarg"].(map[string]any)
	}
	d := r.Decide(Question{Subject: Subject{Kind: External, Backend: "pam", Name: "fred"}, Scope: scope, Commands: []salt.Command{cmd}, Functions: tables{}})
	return d.Verdict == Allow, c.allowed(), true
}

// ruleList asks which rules a user gets. Fewer than in Salt is stricter.
func (all *saltCases) ruleList(t *testing.T, c *aclCase) (got, want, ok bool) {
	s := Subject{Kind: Local, Name: c.User}
	cfg := Config{PublisherACL: setting(t, "publisher_acl", c.ACL), PermissiveACL: c.Permisive}
	if c.Kind == "fill_auth_list" {
		s = Subject{Kind: External, Backend: "pam", Name: c.Name, Groups: c.Groups}
		cfg = Config{ExternalAuth: setting(t, "external_auth", json.RawMessage(`{"pam": `+string(c.Eauth)+`}`)), PermissiveACL: c.Permisive}
	}
	theirs := functionTexts(c.Verdict.V)
	r, err := Parse(cfg)
	if err != nil {
		return false, len(theirs) > 0, true
	}
	holders, _, err := r.holders(&Question{}, &s)
	if err != nil {
		t.Errorf("%s: %v", c.ID, err)
	}
	var ours []string
	for _, h := range holders {
		for _, r := range h.rules {
			ours = append(ours, r.function.text)
		}
	}
	for _, text := range ours {
		if !slices.Contains(theirs, text) {
			t.Errorf("%s: Brine applies the rule %s and Salt does not", c.ID, text)
		}
	}
	// Equal lists agree; a shorter one refuses what Salt allows.
	return slices.Equal(slices.Sorted(slices.Values(ours)), slices.Sorted(slices.Values(theirs))), true, true
}

// functionTexts returns the patterns of functions in a list of rules.
func functionTexts(v any) []string {
	var out []string
	list, _ := v.([]any)
	for _, item := range list {
		switch x := item.(type) {
		case string:
			out = append(out, x)
		case map[string]any:
			for _, functions := range x {
				out = append(out, functionTexts(functions)...)
			}
		}
	}
	return out
}

// publish asks as the user whose credential is used. Brine has no requests in the name of
// another user: the kernel names the user.
func (all *saltCases) publish(t *testing.T, c *aclCase) (got, want, ok bool) {
	r, err := Parse(Config{
		PublisherACL: setting(t, "publisher_acl", c.Config.ACL), PublisherACLBlacklist: setting(t, "publisher_acl_blacklist", c.Config.Blacklist),
		ExternalAuth: setting(t, "external_auth", c.Config.External), PermissiveACL: c.Config.Permissive, SudoACL: c.Config.SudoACL, Nodegroups: all.groups(),
	})
	if err != nil {
		return false, c.allowed(), true
	}
	var s Subject
	sudo, isSudo := strings.CutPrefix(c.User, "sudo_")
	switch {
	case c.Kwargs.Eauth != "":
		s = Subject{Kind: External, Backend: c.Kwargs.Eauth, Name: c.Kwargs.Username}
	case c.KeyOf == nil:
	case *c.KeyOf == "root":
		s = Subject{Kind: Local, Name: "root", Operator: true}
		if isSudo {
			s.Sudo = sudo
		}
	case *c.KeyOf == c.User:
		s = Subject{Kind: Local, Name: c.User}
	default:
		s = Subject{Kind: Local, Name: *c.KeyOf} // whatever the request says: the kernel names the user
	}
	q := all.question(s, c.Tgt.V, c.TgtType, commands(c.Fun.V, c.Arg.V))
	got = r.Decide(q).Verdict == Allow && len(q.Minions) > 0
	if want = c.allowed(); got && want {
		theirs := fmt.Sprint(c.Verdict.V.(map[string]any)["minions"])
		if ours := fmt.Sprint(slices.Sorted(slices.Values(q.Minions))); ours != theirs { // Salt's are sorted
			t.Errorf("%s: published to %s, by Salt to %s", c.ID, ours, theirs)
		}
	}
	return got, want, true
}

// peerCase is a case of peer.json.
type peerCase struct {
	ID, Kind string
	Config   struct {
		Peer    json.RawMessage
		PeerRun json.RawMessage `json:"peer_run"`
	}
	Load struct {
		ID      string
		Fun     string
		Arg     value.Value
		Tgt     value.Value
		TgtType string `json:"tgt_type"`
	}
	Token   *string
	Verdict map[string]value.Value
}

func TestSaltPeerCases(t *testing.T) {
	all := loadCases(t, "peer.json")
	ta := newTally(peerDifferences.cases("peer"))
	other := peerOther.cases("peer")
	for _, raw := range all.Cases {
		var c peerCase
		if err := json.Unmarshal(raw, &c); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if _, ok := other[c.ID]; ok {
			ta.skip()
			continue
		}
		want := c.Verdict["published"].V != nil || c.Verdict["ran"].V != nil
		ta.check(t, c.ID, all.peer(t, &c), want, string(raw))
	}
	ta.finish(t, "access of peers")
}

// peer asks for the minion whose key the request was signed with.
func (all *saltCases) peer(t *testing.T, c *peerCase) bool {
	t.Helper()
	r, err := Parse(Config{Peer: setting(t, "peer", c.Config.Peer), PeerRun: setting(t, "peer_run", c.Config.PeerRun), Nodegroups: all.groups()})
	if err != nil {
		return false
	}
	s := Subject{Kind: Peer, Name: c.Load.ID}
	if c.Token != nil {
		s.Name = *c.Token
		if s.Name == "garbage" || s.Name == "none" {
			s = Subject{}
		}
	}
	q := all.question(s, c.Load.Tgt.V, c.Load.TgtType, []salt.Command{peerCommand(t, c)})
	if c.Kind == "peer_run" {
		q.Scope = Runner
	}
	if d := r.Decide(q); d.Verdict != Allow {
		return false
	}
	return q.Target != nil || c.Kind == "peer_run" // a mistake in the target is reported, and nothing is published
}

// peerCommand reads arguments of the form k=v as keyword arguments, as publish.publish does.
func peerCommand(t *testing.T, c *peerCase) salt.Command {
	t.Helper()
	cmd := command(c.Load.Fun, c.Load.Arg.V)
	var words []string
	for _, a := range cmd.Args {
		words = append(words, fmt.Sprint(a))
	}
	args, kwargs, err := argument.Parse(words, argument.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args = args
	if cmd.Kwargs == nil {
		cmd.Kwargs = kwargs
	}
	return cmd
}
