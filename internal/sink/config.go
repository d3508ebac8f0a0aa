package sink

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/yamlfile"
)

// Limits of a configuration.
const (
	maxRules = 64      // each is a connection to the daemon, which takes 128 requests of a user at a time
	maxBatch = 10_000  // events
	maxText  = 4 << 20 // bytes of a batch, unless one event is larger
)

// Config is the content of a configuration file.
type Config struct {
	Name   string // of this sink, the first part of the names of its positions
	Origin string // identifies this bus in tables that several buses write to
	Rules  []Rule
}

// Rule defines which events go to which destination.
type Rule struct {
	Name     string
	Position string // the name under which the daemon stores the position of the rule
	Tags     []string
	Match    event.MatchType
	Senders  []string
	Since    Since

	filter  *query // nil lets every event pass
	batch   int
	wait    time.Duration // how long a batch waits for more events after its first one
	timeout time.Duration // of one attempt to write
	to      target
}

// String names the destination, without anything secret.
func (r Rule) String() string { return r.to.String() }

// Since is the start of a rule that has no position yet. The zero value means now.
type Since struct {
	All  bool          // from the oldest stored event
	Back time.Duration // from this long ago
}

// Load reads a configuration. An error names the file and the line.
func Load(file string) (*Config, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	r := &reader{file: file}
	c := &Config{}
	if n := r.readNode(); n != nil {
		c.read(r.section(n, ""))
	}
	if r.err != nil {
		return nil, r.err
	}
	return c, nil
}

func (c *Config) read(s *section) {
	c.Name = s.text("name", "sink")
	if event.CheckTag(c.Name) != nil || strings.Contains(c.Name, "/") {
		s.wrong("name", "%q is not a name: it has no slashes and no control characters", c.Name)
	}
	host, err := os.Hostname()
	if c.Origin = s.text("origin", host); c.Origin == "" {
		s.wrong("origin", "it is needed: this machine does not tell its name: %w", err)
	}
	if len(c.Origin) > maxOrigin {
		s.wrong("origin", "it has %d bytes: the limit is %d", len(c.Origin), maxOrigin)
	}
	rules := s.sub("rules")
	s.done()
	if rules == nil {
		s.wrong("", `"rules" is needed`)
		return
	}
	for _, name := range rules.keys {
		c.Rules = append(c.Rules, c.rule(name, rules.sub(name), rules))
	}
	if n := len(c.Rules); n == 0 || n > maxRules {
		s.wrong("rules", "there are %d: 1 to %d are possible", n, maxRules)
	}
	c.checkFiles(rules)
}

// rule reads one rule; s is nil if the rule has no settings.
func (c *Config) rule(name string, s, all *section) Rule {
	if s == nil {
		all.wrong(name, `a map with "to" and more is wanted here`)
		return Rule{}
	}
	r := Rule{Name: name, Position: c.Name + "/" + name}
	if event.CheckTag(name) != nil || len(r.Position) > 200 {
		s.wrong("", "that is not a name for a rule: it is short and has no control characters")
	}
	r.Tags, r.Senders = s.list("tag"), s.list("from")
	r.Match = event.MatchType(s.text("match", string(event.StartsWith)))
	if _, err := event.NewMatcher(r.Match, r.Tags); err != nil {
		s.wrong("match", "%w", err)
	}
	r.filter = s.query("filter")
	r.Since = s.since()
	r.batch = s.number("batch", 500, 1, maxBatch)
	r.wait = s.duration("wait", time.Second, 0, time.Hour)
	r.timeout = s.duration("timeout", 30*time.Second, 100*time.Millisecond, time.Hour)
	r.to = readTarget(s.sub("to"), s, c.Origin)
	s.done()
	return r
}

func (s *section) since() (since Since) {
	switch text := s.text("since", "now"); text {
	case "now":
	case "all":
		since.All = true
	default:
		var err error
		if since.Back, err = salt.ParseDuration(yamlfile.Plain(text), time.Second); err != nil || since.Back < 0 {
			s.wrong("since", "%q is not one of now, all, or a time as in 1h or 2d", text)
		}
	}
	return since
}

// query reads a jq expression; it returns nil if the key is missing.
func (s *section) query(key string) *query {
	text, ok := s.scalar(key)
	if !ok {
		return nil
	}
	q, err := newQuery(text)
	if err != nil {
		s.wrong(key, "%w", err)
	}
	return q
}

// kind is a kind of destination; read reads its settings.
type kind struct {
	name string
	read func(s *section, origin string) target
}

// kinds lists all kinds of destinations, sorted by name.
var kinds = []kind{
	{"file", readFile},
	{"graphite", readGraphite},
	{"influxdb", readInflux},
	{"mysql", readMySQL},
	{"postgresql", readPostgreSQL},
	{"sqlite", readSQLite},
	{"webhook", readWebhook},
}

func kindNames() string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

// readTarget reads the destination of a rule: a map with one kind and its settings.
func readTarget(s, rule *section, origin string) target {
	if s == nil || len(s.keys) != 1 {
		rule.wrong("to", "one destination is needed: %s", kindNames())
		return nil
	}
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == s.keys[0] })
	if i < 0 {
		s.wrong(s.keys[0], "there is no such destination; there are: %s", kindNames())
		return nil
	}
	settings := s.sub(s.keys[0])
	if settings == nil {
		s.wrong(s.keys[0], "its settings are needed")
		return nil
	}
	t := kinds[i].read(settings, origin)
	settings.done()
	return t
}

// checkFiles refuses two rules that write the same file: each rule would assume that all lines in
// it are its own.
func (c *Config) checkFiles(rules *section) {
	owner := map[string]string{}
	for _, r := range c.Rules {
		f, ok := r.to.(*fileTarget)
		if !ok {
			continue
		}
		if first := owner[f.path]; first != "" {
			rules.wrong(r.Name, "the rule %q writes to %s already", first, f.path)
		}
		owner[f.path] = r.Name
	}
}

// Warnings lists settings that are allowed but dangerous.
func (c *Config) Warnings() []string {
	var list []string
	for _, r := range c.Rules {
		if t, ok := r.to.(interface{ insecure() bool }); ok && t.insecure() {
			list = append(list, fmt.Sprintf("rule %q: nobody checks who %s is: insecure is set", r.Name, r.to))
		}
	}
	return list
}
