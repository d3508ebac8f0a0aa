package module

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/process"
)

// shadowModule manages passwords and their age.
var shadowModule = &function.Module{
	Name: "shadow",
	Doc:  "Functions that manage passwords of users and how long they are valid, in /etc/shadow. None of them shows the hash of a password.",
	Functions: []function.Function{
		{
			Name: "del_password", Doc: "Remove the password of a user, who then may log in without one where the system allows that.", Example: `salt '*' shadow.del_password kim`,
			Params: []function.Param{shadowName}, Run: func(ctx context.Context, c *function.Call) (any, error) { return shadowTool(ctx, c, "passwd", "-d") },
		},
		{
			Name: "info", Doc: "Return how long the password of a user is valid: dates as days since 1970, and numbers of days, -1 where nothing is set. passwd is set, locked, or an empty text for none.", Example: `salt '*' shadow.info root`,
			Params: []function.Param{shadowName}, Run: shadowInfo,
		},
		{
			Name: "list_users", Doc: "Return the users that are in /etc/shadow.", Example: `salt '*' shadow.list_users`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				lines, err := shadowLines(c)
				names := []string{}
				for _, f := range lines {
					names = append(names, f[0])
				}
				slices.Sort(names)
				return names, err
			},
		},
		{
			Name: "lock_password", Doc: "Lock the password of a user; other ways to log in stay.", Example: `salt '*' shadow.lock_password kim`,
			Params: []function.Param{shadowName}, Run: func(ctx context.Context, c *function.Call) (any, error) { return shadowTool(ctx, c, "passwd", "-l") },
		},
		{
			Name: "set_date", Doc: "Set when the password was changed last: a date as 2026-01-31, or days since 1970; 0 asks for a new one at the next login.", Example: `salt '*' shadow.set_date kim 0`,
			Params: []function.Param{shadowName, shadowDate}, Run: func(ctx context.Context, c *function.Call) (any, error) { return shadowAge(ctx, c, "-d", "date") },
		},
		{
			Name: "set_expire", Doc: "Set when the account ends: a date as 2026-01-31, or days since 1970; -1 never.", Example: `salt '*' shadow.set_expire kim 2026-12-31`,
			Params: []function.Param{shadowName, {Name: "expire", Required: true}}, Run: func(ctx context.Context, c *function.Call) (any, error) { return shadowAge(ctx, c, "-E", "expire") },
		},
		{
			Name: "set_inactdays", Doc: "Set for how many days after its end a password may still be changed.", Example: `salt '*' shadow.set_inactdays kim 7`,
			Params: []function.Param{shadowName, {Name: "inactdays", Required: true}}, Run: func(ctx context.Context, c *function.Call) (any, error) { return shadowAge(ctx, c, "-I", "inactdays") },
		},
		{
			Name: "set_maxdays", Doc: "Set for how many days a password is valid.", Example: `salt '*' shadow.set_maxdays kim 90`,
			Params: []function.Param{shadowName, {Name: "maxdays", Required: true}}, Run: func(ctx context.Context, c *function.Call) (any, error) { return shadowAge(ctx, c, "-M", "maxdays") },
		},
		{
			Name: "set_mindays", Doc: "Set after how many days a password may be changed again.", Example: `salt '*' shadow.set_mindays kim 7`,
			Params: []function.Param{shadowName, {Name: "mindays", Required: true}}, Run: func(ctx context.Context, c *function.Call) (any, error) { return shadowAge(ctx, c, "-m", "mindays") },
		},
		{
			Name: "set_password", Doc: "Set the password of a user by its hash, as random.shadow_hash makes one. The hash does not appear in the list of processes.", Example: `salt '*' shadow.set_password kim '$6$salt$...'`,
			Params: []function.Param{shadowName, {Name: "password", Kind: function.String, Required: true}}, Run: shadowSet,
		},
		{
			Name: "set_warndays", Doc: "Set how many days before its end a user is warned.", Example: `salt '*' shadow.set_warndays kim 7`,
			Params: []function.Param{shadowName, {Name: "warndays", Required: true}}, Run: func(ctx context.Context, c *function.Call) (any, error) { return shadowAge(ctx, c, "-W", "warndays") },
		},
		{
			Name: "unlock_password", Doc: "Unlock the password of a user.", Example: `salt '*' shadow.unlock_password kim`,
			Params: []function.Param{shadowName}, Run: func(ctx context.Context, c *function.Call) (any, error) { return shadowTool(ctx, c, "passwd", "-u") },
		},
	},
}

var (
	shadowName = function.Param{Name: "name", Kind: function.String, Required: true}
	shadowDate = function.Param{Name: "date", Required: true}
)

// shadowLines returns the fields of the lines of /etc/shadow.
func shadowLines(c *function.Call) ([][]string, error) {
	text, err := os.ReadFile(c.Host.Path("/etc/shadow"))
	var all [][]string
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) == 9 {
			all = append(all, f)
		}
	}
	return all, err
}

func shadowInfo(_ context.Context, c *function.Call) (any, error) {
	lines, err := shadowLines(c)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(lines, func(f []string) bool { return f[0] == c.String("name") })
	if i < 0 {
		return nil, fmt.Errorf("user %q is not in /etc/shadow", c.String("name"))
	}
	f, days := lines[i], map[string]any{"name": lines[i][0], "passwd": passwordState(lines[i][1])}
	for n, key := range map[int]string{2: "lstchg", 3: "min", 4: "max", 5: "warn", 6: "inact", 7: "expire"} {
		v, err := strconv.ParseInt(f[n], 10, 64)
		if err != nil {
			v = -1
		}
		days[key] = v
	}
	return days, nil
}

// passwordState returns the part of a hash that is not secret.
func passwordState(hash string) string {
	switch {
	case hash == "":
		return ""
	case hash[0] == '!' || hash[0] == '*':
		return "locked"
	}
	return "set"
}

// knownUser returns the argument name if that user exists.
func knownUser(ctx context.Context, c *function.Call) (string, error) {
	a, err := findAccount(ctx, c.String("name"))
	if err != nil {
		return "", err
	}
	return a.name, nil
}

func shadowTool(ctx context.Context, c *function.Call, args ...string) (any, error) {
	name, err := knownUser(ctx, c)
	if err != nil {
		return nil, err
	}
	_, err = output(ctx, append(args, "--", name)...)
	return done(err)
}

// shadowAge sets one number with chage.
func shadowAge(ctx context.Context, c *function.Call, option, param string) (any, error) {
	text, err := function.ToString(c.Any(param))
	if err != nil || text == "" || strings.Trim(text, "-0123456789") != "" {
		return nil, function.Invalid("%s is a date as 2026-01-31 or a number of days, not %s", param, repr(c.Any(param)))
	}
	return shadowTool(ctx, c, "chage", option, text)
}

// shadowSet passes the hash to chpasswd through its standard input.
func shadowSet(ctx context.Context, c *function.Call) (any, error) {
	hash := c.String("password")
	if strings.ContainsAny(hash, ":\r\n") || hash != "" && !strings.HasPrefix(strings.TrimLeft(hash, "!"), "$") && hash != "*" && hash != "!" {
		return nil, function.Invalid("password is the hash of one, as random.shadow_hash makes it")
	}
	name, err := knownUser(ctx, c)
	if err != nil {
		return nil, err
	}
	if which("chpasswd") == nil {
		return nil, function.Unavailable("program chpasswd")
	}
	stdin := name + ":" + hash + "\n"
	p := process.Program{Args: []string{"chpasswd", "-e"}, Stdin: &stdin, Env: process.Environ(true), Timeout: toolTimeout}
	e, err := p.Run(ctx)
	if err == nil && e.Code != 0 {
		err = e.Failure("chpasswd")
	}
	return done(err)
}
