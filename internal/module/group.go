package module

import (
	"context"
	"slices"
	"strconv"

	"github.com/brinebus/brine/internal/function"
)

// groupModule manages the groups of the system.
var groupModule = &function.Module{
	Name: "group",
	Doc:  "Functions that manage the groups of the system by its programs groupadd, groupmod, groupdel and gpasswd.",
	Functions: []function.Function{
		{
			Name:    "add",
			Doc:     "Add a group.",
			Example: `salt '*' group.add staff gid=3456`,
			Params:  slices.Concat(userName, []function.Param{{Name: "gid", Kind: function.Int}, {Name: "system", Kind: function.Bool, Default: false}}),
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				args := []string{"groupadd"}
				if c.Has("gid") {
					args = append(args, "-g", strconv.Itoa(c.Int("gid")))
				}
				if c.Bool("system") {
					args = append(args, "-r")
				}
				return accountTool(ctx, c, args...)
			},
		},
		{
			Name:    "adduser",
			Doc:     "Add a user to a group.",
			Example: `salt '*' group.adduser staff fred`,
			Params:  slices.Concat(userName, []function.Param{{Name: "username", Kind: function.String, Required: true}}),
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return accountTool(ctx, c, "gpasswd", "--add="+c.String("username"))
			},
		},
		{
			Name:    "chgid",
			Doc:     "Change the number of a group.",
			Example: `salt '*' group.chgid staff 4376`,
			Params:  slices.Concat(userName, []function.Param{{Name: "gid", Kind: function.Int, Required: true}}),
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return accountTool(ctx, c, "groupmod", "-g", strconv.Itoa(c.Int("gid")))
			},
		},
		{
			Name:    "delete",
			Doc:     "Delete a group.",
			Example: `salt '*' group.delete staff`,
			Params:  userName,
			Run:     func(ctx context.Context, c *function.Call) (any, error) { return accountTool(ctx, c, "groupdel") },
		},
		{
			Name:    "deluser",
			Doc:     "Take a user out of a group.",
			Example: `salt '*' group.deluser staff fred`,
			Params:  slices.Concat(userName, []function.Param{{Name: "username", Kind: function.String, Required: true}}),
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return accountTool(ctx, c, "gpasswd", "--delete="+c.String("username"))
			},
		},
		{
			Name:    "getent",
			Doc:     "Return all groups of the system.",
			Example: `salt '*' group.getent`,
			Run: func(context.Context, *function.Call) (any, error) {
				all, err := localGroups()
				list := []any{}
				for _, g := range all {
					list = append(list, g.describe())
				}
				return list, err
			},
		},
		{
			Name:    "info",
			Doc:     "Return what is known of a group, an empty dictionary if there is none.",
			Example: `salt '*' group.info staff`,
			Params:  userName,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				g, err := findGroup(ctx, c.String("name"))
				if err != nil {
					return map[string]any{}, ctx.Err()
				}
				return g.describe(), nil
			},
		},
		{
			Name:    "members",
			Doc:     "Set the members of a group.",
			Example: `salt '*' group.members staff fred,barney`,
			Params:  slices.Concat(userName, []function.Param{{Name: "members_list", Kind: function.String, Required: true}}),
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return accountTool(ctx, c, "gpasswd", "--members="+c.String("members_list"))
			},
		},
	},
}

func (g group) describe() map[string]any {
	return map[string]any{"name": g.name, "passwd": "x", "gid": g.gid, "members": g.members}
}
