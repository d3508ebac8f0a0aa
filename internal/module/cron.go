package module

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/process"
)

var (
	cronUser = function.Param{Name: "user", Kind: function.String, Required: true}
	cronTime = []function.Param{{Name: "minute", Kind: function.String, Default: "*"}, {Name: "hour", Kind: function.String, Default: "*"}, {Name: "daymonth", Kind: function.String, Default: "*"},
		{Name: "month", Kind: function.String, Default: "*"}, {Name: "dayweek", Kind: function.String, Default: "*"}}
	cronID = function.Param{Name: "identifier", Kind: function.String}
)

// cronModule manages crontabs.
var cronModule = &function.Module{
	Name: "cron",
	Doc:  "Functions that manage the cron tables of users by the program crontab. All other lines stay as they are.",
	Functions: []function.Function{
		{
			Name: "get_entry", Doc: "Return the entry with an identifier or a command, False if there is none.", Example: `salt '*' cron.get_entry root identifier=task1`,
			Params: []function.Param{cronUser, cronID, {Name: "cmd", Kind: function.String}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				tab, err := readCron(ctx, c)
				for _, l := range tab {
					if l.isEntry() && (c.Has("identifier") && l.identifier == c.String("identifier") || c.Has("cmd") && l.command == c.String("cmd")) {
						return l.dictionary(), nil
					}
				}
				return false, err
			},
		},
		{
			Name: "list_tab", Doc: "Return the table of a user: its entries (crons), those with a keyword for the time (special) and its variables (env).", Example: `salt '*' cron.list_tab root`,
			Params: []function.Param{cronUser}, Run: cronList,
		},
		{
			Name: "ls", Doc: "Return the table of a user, as cron.list_tab does.", Example: `salt '*' cron.ls root`, Params: []function.Param{cronUser}, Run: cronList,
		},
		{
			Name: "raw_cron", Doc: "Return the table of a user unchanged.", Example: `salt '*' cron.raw_cron root`, Params: []function.Param{cronUser},
			Run: func(ctx context.Context, c *function.Call) (any, error) { return cronText(ctx, c) },
		},
		{
			Name: "rm_env", Doc: "Remove a variable. Returns removed or absent.", Example: `salt '*' cron.rm_env root MAILTO`, Params: []function.Param{cronUser, {Name: "name", Kind: function.String, Required: true}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return removeCron(ctx, c, func(l cronLine) bool { return l.variable == c.String("name") })
			},
		},
		{
			Name: "rm_job", Doc: "Remove the entry with a command or an identifier. Returns removed or absent.", Example: `salt '*' cron.rm_job root /usr/local/bin/task`,
			Params: []function.Param{cronUser, {Name: "cmd", Kind: function.String, Required: true}, cronID},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return removeCron(ctx, c, func(l cronLine) bool { return isJob(c, l) })
			},
		},
		{
			Name: "set_env", Doc: "Set a variable. Returns new, updated or present.", Example: `salt '*' cron.set_env root MAILTO user@example.com`,
			Params: []function.Param{cronUser, {Name: "name", Kind: function.String, Required: true}, {Name: "value", Kind: function.String, Default: ""}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				l := cronLine{variable: c.String("name"), text: c.String("name") + `="` + c.String("value") + `"`}
				if !isCronName(l.variable) || strings.ContainsAny(l.text, "\n\r") {
					return nil, function.Invalid("%q is not a variable of a cron table", l.text)
				}
				return setCron(ctx, c, l, func(o cronLine) bool { return o.variable == l.variable })
			},
		},
		{
			Name: "set_job", Doc: "Set the entry with a command, or with an identifier. Returns new, updated or present.", Example: `salt '*' cron.set_job root '*/5' '*' '*' '*' '*' /usr/local/bin/weekly identifier=task1`,
			Params: slices.Concat([]function.Param{cronUser}, required(cronTime), []function.Param{{Name: "cmd", Kind: function.String, Required: true}, {Name: "commented", Kind: function.Bool, Default: false}, {Name: "comment", Kind: function.String}, cronID}),
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				l := cronLine{command: c.String("cmd"), comment: c.String("comment"), identifier: c.String("identifier"), commented: c.Bool("commented")}
				for _, p := range cronTime {
					l.time = append(l.time, c.String(p.Name))
				}
				return setCronJob(ctx, c, l)
			},
		},
		{
			Name: "set_special", Doc: "Set the entry with a command to a keyword for the time, such as @daily. Returns new, updated or present.", Example: `salt '*' cron.set_special root @hourly 'echo foobar'`,
			Params: []function.Param{cronUser, {Name: "special", Kind: function.String, Required: true}, {Name: "cmd", Kind: function.String, Required: true}, {Name: "commented", Kind: function.Bool, Default: false}, {Name: "comment", Kind: function.String}, cronID},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return setCronJob(ctx, c, cronLine{time: []string{c.String("special")}, command: c.String("cmd"), comment: c.String("comment"), identifier: c.String("identifier"), commented: c.Bool("commented")})
			},
		},
		{
			Name: "write_cron_file", Doc: "Replace the table of a user by a file.", Example: `salt '*' cron.write_cron_file root /tmp/new_cron`, Params: []function.Param{cronUser, {Name: "path", Kind: function.Path, Required: true}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return toolDone(ctx, append(crontab(c), "--", c.String("path"))...)
			},
		},
	},
}

// required returns the same parameters without defaults.
func required(params []function.Param) []function.Param {
	list := slices.Clone(params)
	for i := range list {
		list[i].Required, list[i].Default = true, nil
	}
	return list
}

// The markers of entries made by Salt, so that both can work on one crontab.
const (
	cronHead       = "# Lines below here are managed by Salt, do not edit"
	cronIdentifier = "SALT_CRON_IDENTIFIER:"
	cronDisabled   = "#DISABLED#"
)

// isCronName reports whether s is a valid name for a variable in a crontab.
func isCronName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func cronWord() *regexp.Regexp {
	return regexp.MustCompile(`^@(reboot|yearly|annually|monthly|weekly|daily|midnight|hourly)$`)
}
func cronField() *regexp.Regexp { return regexp.MustCompile(`^[0-9A-Za-z*/,~-]+$`) }

// cronLine is a line of a crontab: an entry, a variable, or anything else.
type cronLine struct {
	text       string
	time       []string // five fields, or one word that begins with @
	command    string
	comment    string
	identifier string
	commented  bool   // disabled by a comment mark
	variable   string // the name
}

func (l cronLine) isEntry() bool { return l.time != nil }

// lines returns the entry with the comment before it.
func (l cronLine) lines() []string {
	if !l.isEntry() {
		return []string{l.text}
	}
	var lines []string
	if note := strings.TrimSpace(strings.ReplaceAll(l.comment, "\n", " ")); note != "" || l.identifier != "" {
		if l.identifier != "" {
			note = strings.TrimSpace(note + " " + cronIdentifier + l.identifier)
		}
		lines = append(lines, "# "+note)
	}
	entry := strings.Join(append(slices.Clone(l.time), l.command), " ")
	if l.commented {
		entry = cronDisabled + entry
	}
	return append(lines, entry)
}

func (l cronLine) dictionary() map[string]any {
	d := map[string]any{"cmd": l.command, "comment": l.comment, "commented": l.commented, "identifier": nil}
	if l.identifier != "" {
		d["identifier"] = l.identifier
	}
	if len(l.time) == 1 {
		d["spec"] = l.time[0]
		return d
	}
	for i, p := range cronTime {
		d[p.Name] = l.time[i]
	}
	return d
}

// parseCron parses a crontab. A comment belongs to the next entry if it has an identifier, or
// follows the line that Salt writes.
func parseCron(text string) []cronLine {
	var tab []cronLine
	managed := false
	for line := range strings.Lines(text) {
		l := parseCronLine(strings.TrimRight(line, "\r\n"))
		managed = managed || l.text == cronHead
		if n := len(tab) - 1; l.isEntry() && n >= 0 && strings.HasPrefix(tab[n].text, "# ") && tab[n].text != cronHead {
			note := strings.TrimPrefix(tab[n].text, "# ")
			if comment, id, ok := strings.Cut(note, cronIdentifier); ok || managed {
				l.comment, l.identifier = strings.TrimSpace(comment), strings.TrimSpace(id)
				tab = tab[:n]
			}
		}
		tab = append(tab, l)
	}
	return tab
}

func parseCronLine(text string) cronLine {
	l := cronLine{text: text}
	entry, commented := strings.CutPrefix(text, cronDisabled)
	if strings.HasPrefix(entry, "#") {
		return l
	}
	if name, _, ok := strings.Cut(entry, "="); ok && isCronName(strings.TrimSpace(name)) {
		l.variable = strings.TrimSpace(name)
		return l
	}
	rest, n := strings.TrimSpace(entry), 5
	if strings.HasPrefix(rest, "@") {
		n = 1
	}
	var fields []string
	for range n {
		i := strings.IndexAny(rest, " \t")
		if i < 0 {
			return l
		}
		fields, rest = append(fields, rest[:i]), strings.TrimLeft(rest[i:], " \t")
	}
	l.time, l.command, l.commented = fields, rest, commented
	return l
}

func crontab(c *function.Call, args ...string) []string {
	return append([]string{"crontab", "-u", c.String("user")}, args...)
}

// cronText returns the crontab of the argument user, "" if there is none.
func cronText(ctx context.Context, c *function.Call) (string, error) {
	if strings.HasPrefix(c.String("user"), "-") {
		return "", function.Invalid("%q is not a user", c.String("user"))
	}
	e, err := tool(ctx, crontab(c, "-l")...)
	if err != nil {
		return "", err
	}
	if e.Code != 0 && !strings.Contains(e.Stderr, "no crontab for") {
		return "", e.Failure("crontab")
	}
	return e.Stdout, nil
}

func readCron(ctx context.Context, c *function.Call) ([]cronLine, error) {
	text, err := cronText(ctx, c)
	return parseCron(text), err
}

func writeCron(ctx context.Context, c *function.Call, tab []cronLine) error {
	var b strings.Builder
	for _, l := range tab {
		for _, line := range l.lines() {
			b.WriteString(line + "\n")
		}
	}
	text := b.String()
	p := process.Program{Args: crontab(c, "-"), Env: process.Environ(true), Stdin: &text, Timeout: toolTimeout}
	e, err := p.Run(ctx)
	if err == nil && e.Code != 0 {
		err = e.Failure("crontab")
	}
	return err
}

func cronList(ctx context.Context, c *function.Call) (any, error) {
	tab, err := readCron(ctx, c)
	crons, special, env, other := []any{}, []any{}, []any{}, []any{}
	for _, l := range tab {
		switch {
		case len(l.time) == 1:
			special = append(special, l.dictionary())
		case l.isEntry():
			crons = append(crons, l.dictionary())
		case l.variable != "":
			_, v, _ := strings.Cut(l.text, "=")
			env = append(env, map[string]any{"name": l.variable, "value": strings.Trim(strings.TrimSpace(v), `"'`)})
		case l.text != cronHead:
			other = append(other, l.text)
		}
	}
	return map[string]any{"crons": crons, "special": special, "env": env, "pre": other}, err
}

// isJob reports whether l is the entry that the arguments identifier and cmd select.
func isJob(c *function.Call, l cronLine) bool {
	if c.Has("identifier") && l.identifier != "" {
		return l.identifier == c.String("identifier")
	}
	return l.isEntry() && l.command == c.String("cmd")
}

func setCronJob(ctx context.Context, c *function.Call, l cronLine) (any, error) {
	field := cronField()
	if len(l.time) == 1 {
		field = cronWord()
	}
	for _, f := range l.time {
		if !field.MatchString(f) {
			return nil, function.Invalid("%q is not a time of a cron table", f)
		}
	}
	if strings.ContainsAny(l.command+l.identifier, "\n\r\x00") || strings.TrimSpace(l.command) == "" {
		return nil, function.Invalid("a command of a cron table is one line")
	}
	return setCron(ctx, c, l, func(other cronLine) bool { return isJob(c, other) })
}

// cronLock serialises changes.
var cronLock sync.Mutex

// setCron replaces the first line for which meant is true, or appends a line.
func setCron(ctx context.Context, c *function.Call, l cronLine, meant func(cronLine) bool) (any, error) {
	cronLock.Lock()
	defer cronLock.Unlock()
	tab, err := readCron(ctx, c)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(tab, meant)
	if i >= 0 {
		if slices.Equal(tab[i].lines(), l.lines()) {
			return "present", nil
		}
		tab[i] = l
		return "updated", writeCron(ctx, c, tab)
	}
	if l.isEntry() && !slices.ContainsFunc(tab, func(o cronLine) bool { return o.text == cronHead }) {
		tab = append(tab, cronLine{text: cronHead})
	}
	if l.variable != "" {
		return "new", writeCron(ctx, c, slices.Insert(tab, 0, l))
	}
	return "new", writeCron(ctx, c, append(tab, l))
}

func removeCron(ctx context.Context, c *function.Call, meant func(cronLine) bool) (any, error) {
	cronLock.Lock()
	defer cronLock.Unlock()
	tab, err := readCron(ctx, c)
	if err != nil {
		return nil, err
	}
	kept := slices.DeleteFunc(slices.Clone(tab), meant)
	if len(kept) == len(tab) {
		return "absent", nil
	}
	return "removed", writeCron(ctx, c, kept)
}
