// Package reactor is how a master reacts to events: the setting reactor, which maps tags to
// programs and to job files, the job files themselves, and the handlers that run them. Data of
// an event becomes an argument, never a pattern, an option or a part of a command line.
//
// It starts no job by itself: the master decides whether a handler may.
package reactor

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/yamlfile/scalar"
)

// Rule is one handler of events.
type Rule struct {
	Name    string   // of its position and its dead letters; unique
	Tag     string   // a shell pattern for the whole tag
	From    []string // shell patterns for the sender; none matches all
	Program []string // and its arguments; or
	Job     *Job

	Parallel int
	Limit    time.Duration // time limit of one run of the program
	Retries  int
	Backoff  time.Duration

	tags, senders *event.Matcher
}

// Limits of rules.
const (
	maxRules    = 200 // each has a reader of the journal
	maxParallel = 256
	maxName     = 200
)

// Matches reports whether the rule applies to an event.
func (r *Rule) Matches(h event.Head) bool {
	tag, err := r.tags.Match(h.Tag)
	if !tag || err != nil {
		return false
	}
	from, err := r.senders.Match(h.From)
	return from && err == nil
}

// Command is what the rule runs, for people.
func (r *Rule) Command() []string {
	if r.Job != nil {
		return []string{r.Job.File}
	}
	return r.Program
}

// Same reports whether two rules with one name do the same.
func (r *Rule) Same(other *Rule) bool {
	a, b := *r, *other
	if (a.Job == nil) != (b.Job == nil) || a.Job != nil && !a.Job.same(b.Job) {
		return false
	}
	return a.Tag == b.Tag && slices.Equal(a.From, b.From) && slices.Equal(a.Program, b.Program) &&
		a.Parallel == b.Parallel && a.Limit == b.Limit && a.Retries == b.Retries && a.Backoff == b.Backoff
}

// Parse parses the setting. Errors, in it or in a file that it names, have their position.
// Relative paths are below root.
func Parse(setting config.Located, root string) ([]*Rule, error) {
	p := &parser{setting: setting, root: root, names: map[string]*yaml.Node{}}
	if !setting.Present() {
		return nil, nil
	}
	if err := p.rules(setting.Node); err != nil {
		return nil, err
	}
	if len(p.list) > maxRules {
		return nil, setting.At(nil, fmt.Errorf("there are %d handlers: the limit is %d", len(p.list), maxRules))
	}
	return p.list, nil
}

type parser struct {
	setting config.Located
	root    string
	names   map[string]*yaml.Node
	list    []*Rule
}

func (p *parser) errorf(n *yaml.Node, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	for _, a := range args {
		if inner, ok := a.(error); ok && salt.Hint(inner) != "" {
			return salt.WithHint(p.setting.At(n, err), salt.Hint(inner))
		}
	}
	return p.setting.At(n, err)
}

// rules parses Salt's form, a list of maps from a tag to what to run, or a single map.
func (p *parser) rules(n *yaml.Node) error {
	maps := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		maps = n.Content
	}
	var errs []error
	for _, m := range maps {
		if m.Kind != yaml.MappingNode {
			errs = append(errs, p.errorf(m, "a map from a tag to a list of handlers is wanted here, as in - 'salt/auth': [/srv/reactor/auth]"))
			continue
		}
		for i := 0; i+1 < len(m.Content); i += 2 {
			errs = append(errs, p.tag(m.Content[i], m.Content[i+1]))
		}
	}
	return errors.Join(errs...)
}

func (p *parser) tag(tag, handlers *yaml.Node) error {
	if err := event.CheckTag(tag.Value); err != nil {
		return p.errorf(tag, "%w", err)
	}
	list := []*yaml.Node{handlers}
	if handlers.Kind == yaml.SequenceNode {
		list = handlers.Content
	}
	if len(list) == 0 {
		return p.errorf(handlers, "%q has no handler", tag.Value)
	}
	for _, n := range list {
		r := &Rule{Tag: tag.Value, Parallel: runtime.NumCPU(), Limit: time.Minute, Retries: 3, Backoff: time.Second}
		if err := p.handler(r, n); err != nil {
			return err
		}
		if err := p.add(r, n); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) add(r *Rule, n *yaml.Node) (err error) {
	if r.Name == "" {
		r.Name = r.Tag + ":" + filepath.Base(r.what())
	}
	if first := p.names[r.Name]; first != nil {
		return salt.WithHint(p.errorf(n, "there is a handler with the name %q already, in %s", r.Name, p.setting.Where(first)), "give one of them another name: {run: FILE, name: NAME}")
	}
	if event.CheckTag(r.Name) != nil || len(r.Name) > maxName {
		return p.errorf(n, "%q is not the name of a handler: it has 1 to %d bytes and no control characters", r.Name, maxName)
	}
	p.names[r.Name] = n
	if r.tags, err = event.NewMatcher(event.Fnmatch, []string{r.Tag}); err != nil {
		return p.errorf(n, "tag: %w", err)
	}
	if r.senders, err = event.NewMatcher(event.Fnmatch, r.From); err != nil {
		return p.errorf(n, "from: %w", err)
	}
	p.list = append(p.list, r)
	return nil
}

// what is the file that the rule runs.
func (r *Rule) what() string {
	if r.Job != nil {
		return r.Job.File
	}
	return r.Program[0]
}

// handler parses one: a path, or a map of settings.
func (p *parser) handler(r *Rule, n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return p.run(r, n)
	}
	if n.Kind != yaml.MappingNode {
		return p.errorf(n, "a path, or a map with run and more, is wanted here")
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if err := p.option(r, n.Content[i], n.Content[i+1]); err != nil {
			return err
		}
	}
	if r.Job == nil && r.Program == nil {
		return p.errorf(n, "run is missing: the program, or the job file")
	}
	return nil
}

func (p *parser) option(r *Rule, key, n *yaml.Node) (err error) {
	switch key.Value {
	case "run":
		return p.run(r, n)
	case "name":
		r.Name = n.Value
	case "from":
		r.From, err = words(n)
	case "parallel":
		r.Parallel, err = number(n, 1, maxParallel)
	case "retries":
		r.Retries, err = number(n, 0, 1000)
	case "time_limit":
		r.Limit, err = span(n, time.Millisecond)
	case "backoff":
		r.Backoff, err = span(n, 0)
	default:
		return p.errorf(key, "there is no setting %q: there are run, name, from, parallel, retries, time_limit, backoff", key.Value)
	}
	if err != nil {
		return p.errorf(n, "%s: %w", key.Value, err)
	}
	return nil
}

// run parses what is run: a program with its arguments, or a job file.
func (p *parser) run(r *Rule, n *yaml.Node) error {
	line, err := words(n)
	if err != nil || len(line) == 0 || line[0] == "" {
		return p.errorf(n, "a path, or a list of a path and arguments, is wanted here")
	}
	if strings.Contains(line[0], "://") {
		return p.errorf(n, "%q: files of the file server are not run; name a path", line[0])
	}
	if !filepath.IsAbs(line[0]) {
		line[0] = filepath.Join(p.root, line[0])
	}
	switch filepath.Ext(line[0]) {
	case ".sls":
		return salt.WithHint(p.errorf(n, "%s: state files are not run", line[0]), "write a job file (.yaml) or a program instead; doc/reactor.md shows both")
	case ".yaml", ".yml":
		if len(line) > 1 {
			return p.errorf(n, "a job file has no arguments")
		}
		if r.Job, err = readJob(line[0]); err != nil {
			return p.errorf(n, "%w", err)
		}
		return nil
	}
	if err := config.CheckProgram(line[0]); err != nil {
		return p.errorf(n, "%w", err)
	}
	r.Program = line
	return nil
}

// words parses a word or a list of words.
func words(n *yaml.Node) ([]string, error) {
	if n.Kind == yaml.ScalarNode && n.Tag != "!!null" {
		return []string{n.Value}, nil
	}
	if n.Kind != yaml.SequenceNode {
		return nil, errors.New("a word or a list of words is wanted here")
	}
	list := make([]string, len(n.Content))
	for i, one := range n.Content {
		if one.Kind != yaml.ScalarNode || one.Tag == "!!null" {
			return nil, errors.New("a word or a list of words is wanted here")
		}
		list[i] = one.Value
	}
	return list, nil
}

func number(n *yaml.Node, low, high int) (int, error) {
	v, ok := scalar.Value(n.Value).(int64)
	if n.Kind != yaml.ScalarNode || !ok || v < int64(low) || v > int64(high) {
		return 0, fmt.Errorf("%q is not a number from %d to %d", n.Value, low, high)
	}
	return int(v), nil
}

// span parses a time: a number of seconds, or one with a unit.
func span(n *yaml.Node, low time.Duration) (time.Duration, error) {
	d, err := salt.ParseDuration(scalar.Plain(n.Value), time.Second)
	if n.Kind != yaml.ScalarNode || err != nil || d < low || d > 24*time.Hour {
		return 0, fmt.Errorf("%q is not a time up to a day: write it as 90 or 1m30s", n.Value)
	}
	return d, nil
}
