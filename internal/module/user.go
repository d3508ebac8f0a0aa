package module

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/function"
)

var userName = []function.Param{{Name: "name", Kind: function.String, Required: true}}

// userModule manages the users of the system.
var userModule = &function.Module{
	Name: "user",
	Doc:  "Functions that manage the users of the system by its programs useradd, usermod and userdel. Lists are of /etc/passwd; a single user is also looked for in the system's directories.",
	Functions: []function.Function{
		{
			Name:    "add",
			Doc:     "Add a user.",
			Example: `salt '*' user.add fred uid=1500 groups=sudo,adm shell=/bin/bash`,
			Params: slices.Concat(userName, []function.Param{
				{Name: "uid", Kind: function.Int}, {Name: "gid", Kind: function.String}, {Name: "groups", Kind: function.Words}, {Name: "home", Kind: function.Path},
				{Name: "shell", Kind: function.Path}, {Name: "fullname", Kind: function.String}, {Name: "createhome", Kind: function.Bool, Default: true},
				{Name: "system", Kind: function.Bool, Default: false},
			}),
			Run: userAdd,
		},
		{
			Name:    "chgid",
			Doc:     "Change the primary group of a user.",
			Example: `salt '*' user.chgid fred 4376`,
			Params:  slices.Concat(userName, []function.Param{{Name: "gid", Kind: function.String, Required: true}}),
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return usermod(ctx, c, "-g", c.String("gid"))
			},
		},
		{
			Name:    "chgroups",
			Doc:     "Set the further groups of a user; with append, add them.",
			Example: `salt '*' user.chgroups fred wheel,root append=True`,
			Params:  slices.Concat(userName, []function.Param{{Name: "groups", Kind: function.Words, Required: true}, {Name: "append", Kind: function.Bool, Default: false}}),
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				args := []string{"-G", strings.Join(c.Words("groups"), ",")}
				if c.Bool("append") {
					args = append([]string{"-a"}, args...)
				}
				return usermod(ctx, c, args...)
			},
		},
		{
			Name:    "chhome",
			Doc:     "Change the home of a user; with persist, move what it holds.",
			Example: `salt '*' user.chhome fred /home/users/fred persist=True`,
			Params:  slices.Concat(userName, []function.Param{{Name: "home", Kind: function.Path, Required: true}, {Name: "persist", Kind: function.Bool, Default: false}}),
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				args := []string{"-d", c.String("home")}
				if c.Bool("persist") {
					args = append(args, "-m")
				}
				return usermod(ctx, c, args...)
			},
		},
		{
			Name:    "chshell",
			Doc:     "Change the login shell of a user.",
			Example: `salt '*' user.chshell fred /bin/zsh`,
			Params:  slices.Concat(userName, []function.Param{{Name: "shell", Kind: function.Path, Required: true}}),
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return usermod(ctx, c, "-s", c.String("shell"))
			},
		},
		{
			Name:    "chuid",
			Doc:     "Change the number of a user.",
			Example: `salt '*' user.chuid fred 4376`,
			Params:  slices.Concat(userName, []function.Param{{Name: "uid", Kind: function.Int, Required: true}}),
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return usermod(ctx, c, "-u", strconv.Itoa(c.Int("uid")))
			},
		},
		{
			Name:    "delete",
			Doc:     "Delete a user; with remove, also the home.",
			Example: `salt '*' user.delete fred remove=True`,
			Params:  slices.Concat(userName, []function.Param{{Name: "remove", Kind: function.Bool, Default: false}, {Name: "force", Kind: function.Bool, Default: false}}),
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				args := []string{"userdel"}
				if c.Bool("remove") {
					args = append(args, "-r")
				}
				if c.Bool("force") {
					args = append(args, "-f")
				}
				return accountTool(ctx, c, args...)
			},
		},
		{
			Name:    "getent",
			Doc:     "Return all users of the system.",
			Example: `salt '*' user.getent`,
			Run: func(ctx context.Context, _ *function.Call) (any, error) {
				all, err := localAccounts()
				list := []any{}
				for i := range all {
					info, err := all[i].describe(ctx)
					if err != nil {
						return nil, err
					}
					list = append(list, info)
				}
				return list, err
			},
		},
		{
			Name:    "info",
			Doc:     "Return what is known of a user, an empty dictionary if there is none.",
			Example: `salt '*' user.info root`,
			Params:  userName,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				a, err := findAccount(ctx, c.String("name"))
				if err != nil {
					return map[string]any{}, ctx.Err()
				}
				return a.describe(ctx)
			},
		},
		{
			Name:    "list_groups",
			Doc:     "Return the groups of a user.",
			Example: `salt '*' user.list_groups fred`,
			Params:  userName,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				a, err := findAccount(ctx, c.String("name"))
				if err != nil {
					return nil, err
				}
				return a.groupNames(ctx)
			},
		},
		{
			Name:    "list_users",
			Doc:     "Return the names of all users.",
			Example: `salt '*' user.list_users`,
			Run: func(context.Context, *function.Call) (any, error) {
				all, err := localAccounts()
				names := []string{}
				for _, a := range all {
					names = append(names, a.name)
				}
				slices.Sort(names)
				return names, err
			},
		},
	},
}

// groupNames returns the names of the user's groups, sorted.
func (a *account) groupNames(ctx context.Context) ([]string, error) {
	groups, err := a.groups(ctx)
	names := []string{}
	for _, g := range groups {
		names = append(names, g.name)
	}
	slices.Sort(names)
	return names, err
}

// describe returns the user in Salt's format. The comment field has up to four parts.
func (a *account) describe(ctx context.Context) (map[string]any, error) {
	groups, err := a.groupNames(ctx)
	gecos := append(strings.SplitN(a.comment, ",", 5), "", "", "", "", "")
	return map[string]any{
		"name": a.name, "uid": a.uid, "gid": a.gid, "home": a.home, "shell": a.shell, "passwd": "x", "groups": groups,
		"fullname": gecos[0], "roomnumber": gecos[1], "workphone": gecos[2], "homephone": gecos[3], "other": gecos[4],
	}, err
}

func userAdd(ctx context.Context, c *function.Call) (any, error) {
	args := []string{"useradd"}
	for _, option := range []struct{ param, flag string }{{"gid", "-g"}, {"home", "-d"}, {"shell", "-s"}, {"fullname", "-c"}} {
		if c.Has(option.param) {
			args = append(args, option.flag, c.String(option.param))
		}
	}
	if c.Has("uid") {
		args = append(args, "-u", strconv.Itoa(c.Int("uid")))
	}
	if c.Has("groups") {
		args = append(args, "-G", strings.Join(c.Words("groups"), ","))
	}
	if c.Bool("system") {
		args = append(args, "-r")
	}
	if c.Bool("createhome") {
		args = append(args, "-m")
	} else {
		args = append(args, "-M")
	}
	return accountTool(ctx, c, args...)
}

func usermod(ctx context.Context, c *function.Call, args ...string) (any, error) {
	return accountTool(ctx, c, append([]string{"usermod"}, args...)...)
}

// accountTool runs a program for the user or group of the argument name.
func accountTool(ctx context.Context, c *function.Call, args ...string) (any, error) {
	_, err := output(ctx, append(args, "--", c.String("name"))...)
	return done(err)
}
