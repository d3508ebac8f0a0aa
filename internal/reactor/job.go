package reactor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/value"
)

// Job is a job file: a job that an event starts.
//
//	target: {event: .data.id}   # or a target as of salt, with tgt_type
//	function: test.echo
//	args:
//	  - a text, whatever is in it: {{7*7}} stays as it is
//	  - event: .data.message    # a value of the event, by a jq expression
//	  - jinja: 'hello {{ from }}'   # a text that a template makes of it
//	kwargs:
//	  key: 1
//	timeout: 10
//	queue: 2h                   # how long it waits for minions that are away
type Job struct {
	File string

	target   any // a text; or dynamic, with minion ids as values
	kind     string
	function salt.Function
	args     []any
	kwargs   map[string]any
	timeout  time.Duration
	queue    time.Duration
	source   any // content of the file, for comparison
}

func (j *Job) same(other *Job) bool {
	return j.File == other.File && reflect.DeepEqual(j.source, other.source)
}

// readJob reads a job file. Its errors name file and line.
func readJob(path string) (*Job, error) {
	text, err := config.ReadRules(path)
	if err != nil {
		return nil, err
	}
	j := &Job{File: path, kind: "glob", source: text.Value()}
	if !text.Present() {
		return nil, fmt.Errorf("%s: it is empty", path)
	}
	for i := 0; i+1 < len(text.Node.Content); i += 2 {
		key, n := text.Node.Content[i], text.Node.Content[i+1]
		if err := j.option(key.Value, n, text); err != nil {
			return nil, located(text, n, key.Value, err)
		}
	}
	if err := j.check(); err != nil {
		return nil, located(text, text.Node, "", err)
	}
	return j, nil
}

func located(text config.Located, n *yaml.Node, key string, err error) error {
	if key != "" {
		key += ": "
	}
	return fmt.Errorf("%s: %s%w", text.Where(n), key, err)
}

func (j *Job) option(key string, n *yaml.Node, text config.Located) (err error) {
	switch key {
	case "target":
		j.target, err = pattern(n, text)
	case "tgt_type":
		j.kind = n.Value
	case "function":
		j.function, err = salt.ParseFunction(n.Value)
	case "args":
		var v any
		if v, err = pattern(n, text); err == nil {
			var ok bool
			if j.args, ok = v.([]any); !ok {
				err = errors.New("a list is wanted here")
			}
		}
	case "kwargs":
		var v any
		if v, err = pattern(n, text); err == nil {
			var ok bool
			if j.kwargs, ok = v.(map[string]any); !ok {
				err = errors.New("a map is wanted here")
			}
		}
	case "timeout":
		j.timeout, err = span(n, time.Second)
	case "queue":
		j.queue, err = span(n, time.Second)
	default:
		err = errors.New("there is no such setting: there are target, tgt_type, function, args, kwargs, timeout, queue")
	}
	return err
}

func (j *Job) check() error {
	if j.function == "" {
		return errors.New("function is missing")
	}
	switch t := j.target.(type) {
	case nil:
		return errors.New("target is missing")
	case dynamic:
		if j.kind != "glob" {
			return errors.New("a target from the event is the id of a minion, or a list of them: tgt_type is not for it")
		}
	case string:
		kind, err := target.ParseKind(j.kind)
		if err == nil {
			// Names of node groups are looked up when the job starts.
			if kind != target.Nodegroup && kind != target.Compound {
				_, err = target.Parse(t, kind, target.Options{})
			}
		}
		if err != nil {
			return fmt.Errorf("target: %w", err)
		}
	default:
		return errors.New("target: a text is wanted here, or {event: EXPRESSION} or {jinja: TEMPLATE}")
	}
	return j.checkCommand()
}

// checkCommand keeps data of events out of command lines, and out of what decides how they are run.
// It names what data may be, so that nothing is forgotten that a function of cmd may get one day.
func (j *Job) checkCommand() error {
	if j.function.Module() != "cmd" {
		return nil
	}
	param, position := "cmd", 0
	switch j.function {
	case "cmd.run_chroot":
		position = 1
	case "cmd.script", "cmd.script_retcode":
		param, position = "args", 1
	case "cmd.exec_code", "cmd.exec_code_all":
		param, position = "args", 2
	case "cmd.tty":
		param, position = "echo", 1
	}
	literal := true
	for i, v := range j.args {
		literal = literal && (!isDynamic(v) || i == position && j.takesData(param, param, v, i+1))
	}
	for name, v := range j.kwargs {
		literal = literal && (!isDynamic(v) || j.takesData(name, param, v, 0))
	}
	if !literal {
		return salt.WithHint(fmt.Errorf("what %s runs, and how, must not come from an event", j.function),
			"write the command as a list whose first word is fixed, and all other arguments by name; or hand the value over in stdin or env")
	}
	return nil
}

// takesData reports whether a parameter of a function of cmd may get v, a value with data of an
// event. param is the one that has words of the function's own, and positional the number of
// arguments without names that belong before a shell could be chosen.
func (j *Job) takesData(name, param string, v any, positional int) bool {
	switch name {
	case "stdin":
		return true
	case "env":
		_, named := v.(map[string]any) // a name from the event could be LD_PRELOAD
		return named
	case "args", "echo":
		return name == param
	case "cmd":
		// A list is not parsed, unless it is joined for a shell or rendered as a template.
		list, ok := v.([]any)
		fixed := ok && len(list) > 0 && !isDynamic(list[0])
		shell := j.function == "cmd.shell" || j.kwargs["python_shell"] != nil && j.kwargs["python_shell"] != false
		return name == param && fixed && !shell && j.kwargs["template"] == nil && len(j.args) == positional
	}
	return false
}

// Publish returns the job for an event; line is its text.
func (j *Job) Publish(ctx context.Context, line []byte) (protocol.Publish, error) {
	e, err := decode(line)
	if err != nil {
		return protocol.Publish{}, err
	}
	q := protocol.Publish{TargetType: j.kind, Timeout: job.Seconds(j.timeout.Seconds()), Queue: job.Seconds(j.queue.Seconds()), Async: true}
	if q.Target, err = j.aim(ctx, e); err != nil {
		return protocol.Publish{}, fmt.Errorf("target: %w", err)
	}
	if isDynamic(j.target) {
		q.TargetType = string(target.List)
	}
	c := job.Command{Function: j.function}
	for i, a := range j.args {
		v, err := fill(ctx, a, e)
		if err != nil {
			return protocol.Publish{}, fmt.Errorf("argument %d: %w", i+1, err)
		}
		c.Args = append(c.Args, v)
	}
	for name, a := range j.kwargs {
		v, err := fill(ctx, a, e)
		if err != nil {
			return protocol.Publish{}, fmt.Errorf("argument %s: %w", name, err)
		}
		if c.Kwargs == nil {
			c.Kwargs = map[string]any{}
		}
		c.Kwargs[name] = v
	}
	q.Commands = []job.Command{c}
	return q, nil
}

// maxTargets is how many minions an event may name.
const maxTargets = 10_000

// aim returns the target. One from an event is a list of ids, so that a * in it matches no
// minion.
func (j *Job) aim(ctx context.Context, e any) (string, error) {
	if text, ok := j.target.(string); ok {
		return text, nil
	}
	v, err := fill(ctx, j.target, e)
	if err != nil {
		return "", err
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	if len(list) == 0 || len(list) > maxTargets {
		return "", fmt.Errorf("the event names %d minions: 1 to %d are possible", len(list), maxTargets)
	}
	ids := make([]string, len(list))
	for i, one := range list {
		text, ok := one.(string)
		if !ok {
			return "", fmt.Errorf("the event says %s where the id of a minion is wanted", logging.Shorten(fmt.Sprint(one)))
		}
		id, err := salt.ParseMinionID(text)
		if err != nil {
			return "", err
		}
		ids[i] = string(id)
	}
	slices.Sort(ids)
	return strings.Join(slices.Compact(ids), ","), nil
}

// pattern reads a value in which {event: EXPRESSION} stands for a value of the event, and
// {jinja: TEMPLATE} for a text made of it. Everything else is literal.
func pattern(n *yaml.Node, text config.Located) (any, error) {
	switch n.Kind {
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, one := range n.Content {
			v, err := pattern(one, text)
			if err != nil {
				return nil, err
			}
			list[i] = v
		}
		return list, nil
	case yaml.MappingNode:
		if len(n.Content) == 2 && n.Content[0].Value == "event" {
			return newQuery(n.Content[1])
		}
		if len(n.Content) == 2 && n.Content[0].Value == "jinja" {
			return newJinja(n.Content[1])
		}
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			v, err := pattern(n.Content[i+1], text)
			if err != nil {
				return nil, err
			}
			m[n.Content[i].Value] = v
		}
		return m, nil
	}
	return config.Located{Node: n}.Value(), nil
}

// isDynamic reports whether some part of a template comes from the event.
func isDynamic(v any) bool {
	switch v := v.(type) {
	case dynamic:
		return true
	case []any:
		return slices.ContainsFunc(v, isDynamic)
	case map[string]any:
		for _, one := range v {
			if isDynamic(one) {
				return true
			}
		}
	}
	return false
}

// fill puts the values of the event into a template. Text stays text: it is not parsed.
func fill(ctx context.Context, v, e any) (any, error) {
	switch v := v.(type) {
	case dynamic:
		return v.of(ctx, e)
	case []any:
		list := make([]any, len(v))
		for i, one := range v {
			got, err := fill(ctx, one, e)
			if err != nil {
				return nil, err
			}
			list[i] = got
		}
		return list, nil
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, one := range v {
			got, err := fill(ctx, one, e)
			if err != nil {
				return nil, err
			}
			m[k] = got
		}
		return m, nil
	}
	return v, nil
}

// plain converts a result of jq to the types of arguments.
func plain(v any) (any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out value.Value
	err = json.Unmarshal(b, &out)
	return out.V, err
}
