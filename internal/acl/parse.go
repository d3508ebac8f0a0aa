package acl

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// Config is the access settings of a master as read.
type Config struct {
	PublisherACL          Setting
	PublisherACLBlacklist Setting
	ExternalAuth          Setting
	Peer                  Setting
	PeerRun               Setting
	MineGet               Setting
	PermissiveACL         bool
	SudoACL               bool           // users through sudo have the rights of their own name
	Nodegroups            map[string]any // that the targets of rules may name
	// Runners and Wheel are the functions of the master, so that a rule for an unknown one is
	// reported. nil if they are not known.
	Runners, Wheel []salt.Function
	Added          []string // modules of the site's own runners, whose functions are unknown
	// Functions says which of these functions a rule must name, so that one that grants none is reported. nil if it is not known.
	Functions Functions
}

// Rules are the compiled access settings. Many goroutines may use them at once; a nil *Rules
// allows operators everything and others nothing.
type Rules struct {
	local, peer, peerRun, mineGet section
	mineHeld                      bool // mine_get is set
	external                      map[string]section
	blacklist                     blacklist
	permissive, sudo              bool
	warnings                      []Warning
}

// Parse compiles the rules. After a mistake it returns no rules, and an error that wraps an
// Error for each mistake, at most twenty.
func Parse(c Config) (*Rules, error) {
	p := &parser{added: c.Added, does: c.Functions, known: map[Scope][]salt.Function{Runner: c.Runners, Wheel: c.Wheel}, targets: targets{opt: target.Options{Nodegroups: c.Nodegroups}, seen: map[string]*target.Target{}}}
	r := &Rules{permissive: c.PermissiveACL, sudo: c.SudoACL}
	if a := c.PublisherACL.root(); a.Node != nil {
		r.local = p.section(a, p.localWho, p.grants)
	}
	if a := c.PublisherACLBlacklist.root(); a.Node != nil {
		r.blacklist = p.blacklist(a)
	}
	if a := c.ExternalAuth.root(); a.Node != nil {
		r.external = p.external(a, c.PermissiveACL)
	}
	if a := c.Peer.root(); a.Node != nil {
		p.lone = true // peer: {db1: test.ping}, as Salt takes it there and nowhere else
		r.peer = p.section(a, p.peerWho, p.peerGrants)
		p.lone = false
	}
	if a := c.PeerRun.root(); a.Node != nil {
		p.minions = true
		r.peerRun = p.section(a, p.peerWho, p.runnerGrants)
		p.minions = false
	}
	if a := c.MineGet.root(); a.Node != nil {
		r.mineGet, r.mineHeld = p.section(a, p.peerWho, p.mineGrants), true
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	r.warnings = p.warnings
	return r, nil
}

// Lint returns warnings about what is valid but probably not meant, in the order of the
// settings.
func (r *Rules) Lint() []Warning { return slices.Clone(r.warnings) }

// LocalUsers returns the keys of publisher_acl that are plain names, so that a caller can check
// whether these users exist.
func (r *Rules) LocalUsers() []string {
	var names []string
	for i := range r.local {
		if n := r.local[i].who.name; n != nil && n.exact {
			names = append(names, n.text)
		}
	}
	return names
}

// Backends returns the names below external_auth, sorted.
func (r *Rules) Backends() []string { return sortedKeys(r.external) }

// section reads a mapping from users, groups or minions to rules.
func (p *parser) section(a at, who func(at) who, rules func(at) []rule) section {
	var sec section
	for key, v := range p.pairs(a, a.path[len(a.path)-1]) {
		sec = append(sec, holder{who: who(key), rules: rules(v)})
	}
	return sec
}

// localWho reads a key of publisher_acl.
func (p *parser) localWho(key at) who {
	if group, ok := groupOf(key.Value); ok {
		return p.groupWho(key, group)
	}
	n, err := newName(key.Value)
	if err != nil {
		p.fail(key, fmt.Errorf("user %q: %w", key.Value, err))
		return who{}
	}
	if key.Value == "" {
		p.warn(key, true, "an empty name is nobody's")
	}
	return who{text: key.Value, name: n}
}

func (p *parser) groupWho(key at, group string) who {
	if group == "" {
		p.fail(key, salt.WithHint(fmt.Errorf("%q names no group", key.Value), "any group is '*%'"))
	}
	if group != "*" && strings.ContainsAny(group, `*?[|\`) {
		p.warn(key, true, "names of groups are compared as they are, so %s is not a group's", key.Value)
	}
	return who{text: key.Value, group: group}
}

// externalWho reads a key below a backend of external_auth. Names are compared as they are:
// Salt's manual shows patterns here, but its code never matches them.
func (p *parser) externalWho(key at) who {
	text := key.Value
	if group, ok := groupOf(text); ok {
		return p.groupWho(key, group)
	}
	if text == "*" {
		return who{text: text, all: true}
	}
	if text == "" || strings.ContainsAny(text, `*?[|(`) {
		p.warn(key, true, "names in external_auth are compared as they are, so %q is nobody's; give each user a line, or a group: name%%", text)
	}
	return who{text: text, exact: text}
}

// peerWho reads a key of peer or peer_run.
func (p *parser) peerWho(key at) who {
	re, err := newPattern(key.Value)
	if err != nil {
		err = fmt.Errorf("ids of minions are regular expressions: %w", err)
		if key.Value == "*" {
			err = salt.WithHint(err, "every minion is .*")
		}
		p.fail(key, err)
		return who{}
	}
	p.lintID(key)
	return who{text: key.Value, id: re}
}

// external reads external_auth: backends, and below each its users.
func (p *parser) external(a at, permissive bool) map[string]section {
	out := map[string]section{}
	for backend, v := range p.pairs(a, a.path[0]) {
		sec := section{}
		for key, rules := range p.pairs(v, "a backend") {
			if isOption(backend.Value, key.Value) {
				continue
			}
			sec = append(sec, holder{who: p.externalWho(key), rules: p.grants(rules)})
			if key.Value == "*" && permissive {
				p.warn(key, true, "with permissive_acl the star is for nobody, as in Salt 3006")
			}
		}
		out[backend.Value] = sec
	}
	return out
}

// isOption reports whether a key below a backend configures the backend.
func isOption(backend, key string) bool {
	return strings.HasPrefix(key, "^") || backend == "pki" && key == "ca_file"
}

// blacklist reads publisher_acl_blacklist.
func (p *parser) blacklist(a at) blacklist {
	var b blacklist
	for key, v := range p.pairs(a, a.path[0]) {
		switch {
		case key.Value != "users" && key.Value != "modules":
			p.fail(key, salt.WithHint(fmt.Errorf("unknown key %q", key.Value), "the keys are users and modules"))
		case v.isNull():
		case key.Value == "users":
			b.users = p.barred(v, "user")
		default:
			b.modules = p.barred(v, "function")
		}
	}
	return b
}

func (p *parser) barred(a at, what string) []barred {
	var list []barred
	for item := range p.items(a, a.path[len(a.path)-1]) {
		if !item.isText() {
			p.fail(item, errNotText(item))
			continue
		}
		n, err := newBarred(item.Value)
		if err != nil {
			p.fail(item, fmt.Errorf("%s %q: %w", what, item.Value, err))
			continue
		}
		p.lintBarred(item, what, n)
		list = append(list, barred{name: n, rule: item.key() + ": " + item.Value, where: item.where()})
	}
	return list
}

// grants reads the rules of a user: functions, targets with functions, runners.
func (p *parser) grants(a at) []rule {
	return p.list(a, func(key at, value at) []rule {
		if key.Value == targetRule {
			return p.pillarKeys(key, value)
		}
		if strings.HasPrefix(key.Value, "@") {
			return p.special(key, value)
		}
		return p.targeted(key, value)
	})
}

// peerGrants reads the rules of a minion: functions, targets with functions.
func (p *parser) peerGrants(a at) []rule {
	return p.list(a, func(key at, value at) []rule {
		if key.Value == targetRule {
			return p.pillarKeys(key, value)
		}
		if strings.HasPrefix(key.Value, "@") {
			p.fail(key, salt.WithHint(fmt.Errorf("%s is not a target", key.Value), "runners for minions are allowed under peer_run"))
			return nil
		}
		return p.targeted(key, value)
	})
}

// list reads a list of rules. An item is the text of a rule, or a mapping with one key. read
// gets a value without a node if the item was text.
func (p *parser) list(a at, read func(key at, value at) []rule) []rule {
	var rules []rule
	empty := true
	for item := range p.items(a, "the rules of somebody") {
		empty = false
		switch {
		case item.isText() && strings.HasPrefix(item.Value, "@"):
			rules = append(rules, read(item, at{})...)
		case item.isText():
			rules = append(rules, p.function(item, at{}, rule{scopes: []Scope{Minions}})...)
		case item.Kind == yaml.MappingNode:
			if key, value, ok := p.single(item); ok {
				rules = append(rules, read(key, value)...)
			}
		default:
			p.fail(item, fmt.Errorf("a rule is a function or a mapping from a target to functions, but this is %s", item.shape()))
		}
	}
	if empty && a.Kind == yaml.SequenceNode {
		p.warn(a, true, "the list is empty and allows nothing")
	}
	return rules
}

// targeted reads a target and the functions that are allowed on it.
func (p *parser) targeted(key at, functions at) []rule {
	if functions.Kind == yaml.MappingNode && isCondition(functions) {
		p.fail(functions, salt.WithHint(fmt.Errorf("args and kwargs belong to a function below a target, and %q stands where the target does", key.Value),
			"write '*': ['"+key.Value+"': ...] for every minion"))
		return nil
	}
	t, err := p.targets.parse(key.Value)
	if err == nil && strings.TrimSpace(key.Value) == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		p.fail(key, fmt.Errorf("target: %w", err))
		return nil
	}
	p.lintTarget(functions, key.Value)
	return p.functions(functions, rule{scopes: []Scope{Minions}, target: t})
}

// special reads @runner, @wheel, or @ and the name of a module, which covers the runners and
// the wheel functions of that module.
func (p *parser) special(key at, functions at) []rule {
	base := rule{}
	switch marked := key.Value[1:]; marked {
	case "runner", "runners":
		base.scopes = []Scope{Runner}
	case "wheel", "wheels":
		base.scopes = []Scope{Wheel}
	default:
		if _, err := salt.ParseFunction(marked + ".x"); err != nil {
			p.fail(key, salt.WithHint(fmt.Errorf("%q is neither @runner nor @wheel nor the name of a module", key.Value),
				"single functions are listed below: {'@runner': [jobs.list_jobs]}"))
			return nil
		}
		base.scopes, base.module = []Scope{Runner, Wheel}, marked
		p.lintModule(key, marked)
	}
	if functions.Node == nil {
		base.text, base.where = key.key()+": "+key.Value, key.where()
		p.lintKnown(key, &base)
		return []rule{base}
	}
	return p.functions(functions, base)
}

// runnerGrants reads the rules of peer_run: functions of runners and, below @wheel, wheel
// functions, which no other rule grants to a minion.
func (p *parser) runnerGrants(a at) []rule {
	return p.each(a, func(item at) []rule {
		if item.isText() && strings.HasPrefix(item.Value, "@") {
			p.fail(item, salt.WithHint(fmt.Errorf("%s alone grants a minion nothing", item.Value), "name the functions: {'@wheel': [key.list]}"))
			return nil
		}
		if item.Kind == yaml.MappingNode && len(item.Content) == 2 && isWheel(item.Content[0].Value) {
			_, functions, _ := p.single(item)
			return p.functions(functions, rule{scopes: []Scope{Wheel}})
		}
		return p.item(item, rule{scopes: []Scope{Runner}})
	})
}

func isWheel(key string) bool { return key == "@wheel" || key == "@wheels" }

// functions reads a list of functions, each with or without conditions. base has what they
// share.
func (p *parser) functions(a at, base rule) []rule {
	return p.each(a, func(item at) []rule { return p.item(item, base) })
}

// each reads the items of a list of functions.
func (p *parser) each(a at, read func(item at) []rule) []rule {
	var rules []rule
	for item := range p.items(a, "what is allowed") {
		rules = append(rules, read(item)...)
	}
	if len(rules) == 0 && a.Kind == yaml.SequenceNode && len(a.Content) == 0 {
		p.warn(a, true, "the list is empty and allows nothing")
	}
	return rules
}

// item reads one function, with or without conditions.
func (p *parser) item(item at, base rule) []rule {
	switch {
	case item.isText():
		return p.function(item, at{}, base)
	case item.Kind == yaml.MappingNode:
		if key, conditions, ok := p.single(item); ok {
			return p.function(key, conditions, base)
		}
	default:
		p.fail(item, fmt.Errorf("a function is text, or a mapping from it to args and kwargs, but this is %s", item.shape()))
	}
	return nil
}

// function reads one pattern of functions. It returns no rule or one.
func (p *parser) function(f at, conditions at, r rule) []rule {
	re, err := newFunction(f.Value)
	if err != nil {
		p.fail(f, errFunction(f.Value, err))
		return nil
	}
	base := r
	r.function, r.text, r.where = re, f.key()+": "+f.Value, f.where()
	r.literal = literal(r.module, f.Value)
	if !p.lintKnown(f, &r) {
		p.lintFunction(f, base)
	}
	if conditions.Node == nil {
		return []rule{r}
	}
	r.accepted = p.conditions(conditions)
	if r.literal == "" && slices.ContainsFunc(r.accepted, func(c condition) bool { return c.runs }) {
		p.fail(conditions, salt.WithHint(fmt.Errorf("runs: any belongs to a function that is named, and %q is a pattern", f.Value), "give each function a rule: {mine.update: {runs: any}}"))
	}
	texts := make([]string, len(r.accepted))
	for i := range r.accepted {
		texts[i] = r.accepted[i].String()
	}
	r.text += ": " + strings.Join(texts, " or ")
	return []rule{r}
}

func isCondition(a at) bool {
	for i := 0; i+1 < len(a.Content); i += 2 {
		if k := a.Content[i].Value; k != "args" && k != "kwargs" && k != "runs" {
			return false
		}
	}
	return len(a.Content) > 0
}

// conditions reads the value of a function: one condition or a list of alternatives. It returns
// none only after a mistake.
func (p *parser) conditions(a at) []condition {
	if a.Kind == yaml.MappingNode {
		return []condition{p.condition(a)}
	}
	var list []condition
	if a.Kind == yaml.SequenceNode {
		for item := range p.items(a, "") {
			if item.Kind != yaml.MappingNode {
				list = nil
				break
			}
			list = append(list, p.condition(item))
		}
	}
	if len(list) == 0 {
		p.fail(a, salt.WithHint(fmt.Errorf("below a function stands a mapping with args and kwargs, but this is %s", a.shape()),
			"{args: [pattern], kwargs: {name: pattern}}; without conditions, write the function alone"))
	}
	return list
}

func (p *parser) condition(a at) condition {
	c := condition{any: true, kwargs: map[string]*pattern{}}
	for key, v := range p.pairs(a, "a condition") {
		switch key.Value {
		case "args":
			c.any = false
			for item := range p.items(v, "args") {
				c.args = append(c.args, p.value(item))
			}
			if v.Kind == yaml.SequenceNode && len(v.Content) == 0 {
				p.warn(v, false, "the list is empty: no argument is allowed; {} allows all")
			}
		case "kwargs":
			c.any = false
			for name, item := range p.pairs(v, "kwargs") {
				c.kwargs[name.Value] = p.value(item)
			}
		case "runs":
			if c.runs = v.isText() && v.Value == "any"; !c.runs {
				p.fail(v, fmt.Errorf("runs is any, but this is %s", v.shape()))
			}
		default:
			p.fail(key, salt.WithHint(fmt.Errorf("unknown key %q", key.Value), "the keys are args and kwargs, and runs"))
		}
	}
	return c
}

// value reads the pattern of one argument; nil is any value.
func (p *parser) value(a at) *pattern {
	if a.isNull() {
		return nil
	}
	if !a.isText() {
		p.fail(a, errNotText(a))
		return nil
	}
	re, err := newPattern(a.Value)
	if err != nil {
		p.fail(a, err)
		return nil
	}
	return re
}
