package netapi

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/argument"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// clients are the values of client in a chunk, as in Salt. There is no ssh.
var clients = []string{"local", "local_async", "local_batch", "local_subset", "runner", "runner_async", "ssh", "wheel", "wheel_async"}

// chunk is one checked entry of a request: a job, a runner or a wheel function.
type chunk struct {
	client  string
	job     *job
	run     *run
	full    bool   // full_return
	unknown string // a text that is not a function name: no minion has it
	login   login
}

// job is one for minions.
type job struct {
	target   client.Target
	commands []client.Command
	several  bool // given as a list: each return is a map by function
	opts     client.RunOptions
}

// run is a runner or a wheel function.
type run struct {
	command      client.Command
	wheel, async bool
}

// lowstates makes a list of the body, which may also be a single chunk.
func lowstates(body any) ([]map[string]any, error) {
	if m, ok := body.(map[string]any); ok && len(m) > 0 {
		return []map[string]any{m}, nil
	}
	list, ok := body.([]any)
	if !ok {
		return nil, problem(http.StatusBadRequest, "Lowstates must be a list")
	}
	if len(list) > maxChunks {
		return nil, problem(http.StatusBadRequest, "There are more than %d chunks.", maxChunks)
	}
	var out []map[string]any
	for _, v := range list {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, problem(http.StatusBadRequest, "Lowstates must be a list of maps")
		}
		out = append(out, m)
	}
	return out, nil
}

// maxChunks limits the chunks of one request.
const maxChunks = 100

// chunk checks one chunk. form is true if it comes from a form, whose values are all text.
func (s *Server) chunk(m map[string]any, form bool) (chunk, error) {
	c := chunk{login: login{token: textOf(m["token"]), backend: textOf(m["eauth"]), user: textOf(m["username"]), password: textOf(m["password"])}}
	name, ok := m["client"].(string)
	if !ok || !slices.Contains(clients, name) {
		return c, problem(http.StatusBadRequest, "Invalid client specified: %s", quoted(m["client"]))
	}
	if !slices.Contains(s.opts.Clients, name) {
		return c, problem(http.StatusBadRequest, "Client disabled: '%s'. Add to 'netapi_enable_clients' master config option to enable.", name)
	}
	c.client, c.full = name, truth(m["full_return"])
	switch {
	case name == "ssh":
		if truth(m["raw_shell"]) {
			return c, problem(http.StatusUnauthorized, "Raw shell option not allowed.")
		}
		return c, nil
	case strings.HasPrefix(name, "local"):
		return c, c.readJob(m, form)
	}
	return c, c.readRun(m, form)
}

// quoted shows a value of the caller, or None, as Python does.
func quoted(v any) string {
	if v == nil {
		return "'None'"
	}
	return "'" + shorten(value.Str(v)) + "'"
}

func shorten(s string) string {
	const most = 60
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

func textOf(v any) string {
	s, _ := v.(string)
	return s
}

func truth(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case string:
		return strings.EqualFold(v, "true") || v == "1"
	}
	return false
}

// readJob reads a chunk for minions.
func (c *chunk) readJob(m map[string]any, form bool) (err error) {
	q := &job{target: client.Target{Type: "glob"}, opts: client.RunOptions{Detach: c.client == "local_async"}}
	c.job = q
	if _, ok := m["tgt"]; !ok {
		return problem(http.StatusBadRequest, "A chunk of the client '%s' needs tgt.", c.client)
	}
	if t, ok := m["tgt_type"].(string); ok {
		q.target.Type = t
	}
	listed := false
	if q.target.Expr, listed, err = targetOf(m["tgt"]); err != nil {
		return err
	}
	if listed && q.target.Type != "list" {
		q.target.Expr = "" // only a list is a list target
	}
	if text, ok := m["ret"].(string); ok {
		q.opts.Returners = text
	}
	if meta, ok := m["metadata"].(map[string]any); ok {
		q.opts.Metadata = meta
	}
	if err := c.readNumbers(m); err != nil {
		return err
	}
	q.commands, q.several, err = c.commands(m, form)
	for _, cmd := range q.commands {
		argument.JobIDsAsText(cmd.Args, cmd.Kwargs)
	}
	return err
}

// targetOf reads tgt, which is a text or a list.
func targetOf(v any) (text string, listed bool, err error) {
	switch v := v.(type) {
	case string:
		return v, false, nil
	case []any:
		words := make([]string, len(v))
		for i, one := range v {
			words[i] = value.Str(one)
		}
		return strings.Join(words, ","), true, nil
	}
	return "", false, problem(http.StatusBadRequest, "tgt is neither a text nor a list.")
}

// readNumbers reads timeout, batch and subset.
func (c *chunk) readNumbers(m map[string]any) error {
	q := &c.job.opts
	seconds, err := number(m, "timeout")
	if err != nil {
		return err
	}
	q.Timeout = span(seconds)
	switch v := m["batch"].(type) {
	case nil:
	case string:
		q.Batch = v
	case int64:
		q.Batch = strconv.FormatInt(v, 10)
	default:
		return problem(http.StatusBadRequest, "batch is not a number.")
	}
	if c.client == "local_batch" && q.Batch == "" {
		q.Batch = "100%"
	}
	if c.client != "local_subset" {
		return nil
	}
	const usual = 3 // as Salt
	subset, err := number(m, "subset")
	if q.Subset = int(subset); q.Subset <= 0 {
		q.Subset = usual
	}
	return err
}

// span converts seconds.
func span(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// number reads a number that may be written as text, 0 if it is missing.
func number(m map[string]any, key string) (float64, error) {
	f := 0.0
	switch v := m[key].(type) {
	case nil:
		return 0, nil
	case int64:
		f = float64(v)
	case float64:
		f = v
	case string:
		var err error
		if f, err = strconv.ParseFloat(strings.TrimSpace(v), 64); err != nil {
			return 0, problem(http.StatusBadRequest, "%s is not a number.", key)
		}
	default:
		return 0, problem(http.StatusBadRequest, "%s is not a number.", key)
	}
	if math.IsNaN(f) || f < 0 || f > 1e9 {
		return 0, problem(http.StatusBadRequest, "%s is not a number above zero.", key)
	}
	return f, nil
}

// commands reads the function and its arguments, or several functions with a list of arguments
// for each.
func (c *chunk) commands(m map[string]any, form bool) ([]client.Command, bool, error) {
	funs, several := m["fun"].([]any)
	if !several {
		funs = []any{m["fun"]}
	}
	var list []client.Command
	for i, v := range funs {
		arg := m["arg"]
		if several {
			arg = nth(arg, i)
		}
		name, _ := v.(string)
		if name == "" {
			return nil, false, problem(http.StatusBadRequest, "A chunk of the client '%s' needs fun.", c.client)
		}
		f, err := salt.ParseFunction(name)
		if err != nil {
			c.unknown = shorten(name)
			return nil, false, nil
		}
		_, has := m["arg"]
		cmd := client.Call(string(f))
		if cmd.Args, cmd.Kwargs, err = arguments(arg, has, form); err != nil {
			return nil, false, err
		}
		if kwargs, ok := m["kwarg"].(map[string]any); ok && !several {
			for k, v := range kwargs {
				cmd.Kwargs[k] = v
			}
		}
		list = append(list, cmd)
	}
	return list, several, nil
}

func nth(v any, i int) any {
	if list, ok := v.([]any); ok && i < len(list) {
		return list[i]
	}
	return []any{}
}

// arguments reads arg, a list or one value. A text of the form name=value is a keyword
// argument. Other values keep their type; in a form all are text.
func arguments(arg any, has, form bool) (args []any, kwargs map[string]any, err error) {
	list, ok := arg.([]any)
	if !ok && has {
		list = []any{arg}
	}
	given, kwargs := argument.Split(list)
	args = []any{}
	for _, v := range given {
		text, isText := v.(string)
		name, rest, isKeyword := argument.Keyword(text)
		switch {
		case !isText:
			args = append(args, v)
		case isKeyword:
			if kwargs[name], err = argument.Word(rest); err != nil {
				return nil, nil, problem(http.StatusBadRequest, "%s", err)
			}
		case form && text == "":
		case form:
			word, err := argument.Word(text)
			if err != nil {
				return nil, nil, problem(http.StatusBadRequest, "%s", err)
			}
			args = append(args, word)
		default:
			args = append(args, text)
		}
	}
	return args, kwargs, nil
}

// ofChunk are the keys of a chunk that are not keyword arguments of a runner.
var ofChunk = []string{"client", "fun", "arg", "kwarg", "token", "eauth", "username", "password", "user", "key", "print_event"}

// readRun reads a chunk for the master.
func (c *chunk) readRun(m map[string]any, form bool) (err error) {
	q := &run{wheel: strings.HasPrefix(c.client, "wheel"), async: strings.HasSuffix(c.client, "_async")}
	c.run = q
	kind := "runner"
	if q.wheel {
		kind = "wheel"
	}
	name, ok := m["fun"].(string)
	if !ok {
		return problem(http.StatusBadRequest, "%s takes at least 1 argument (0 given)", kind)
	}
	f, err := salt.ParseFunction(name)
	if err != nil {
		return problem(http.StatusBadRequest, "%s", err)
	}
	_, has := m["arg"]
	q.command.Function = string(f)
	if q.command.Args, q.command.Kwargs, err = arguments(m["arg"], has && m["arg"] != nil, form); err != nil {
		return err
	}
	kwargs := q.command.Kwargs
	for k, v := range m {
		own := slices.Contains(ofChunk, k) || k == "full_return" || k == "timeout" && !q.wheel
		if _, given := kwargs[k]; !own && !given {
			kwargs[k] = v
		}
	}
	if more, ok := m["kwarg"].(map[string]any); ok {
		for k, v := range more {
			kwargs[k] = v
		}
	}
	return nil
}

// shown returns the arguments of a command as Salt's events show them.
func shown(c client.Command) []any {
	list := append([]any{}, c.Args...)
	if len(c.Kwargs) > 0 {
		list = append(list, c.Kwargs)
	}
	return list
}
