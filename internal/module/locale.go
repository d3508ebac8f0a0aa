package module

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/function"
)

// localeModule shows and sets the locale of the machine.
var localeModule = &function.Module{
	Name: "locale",
	Doc:  "Functions that show and set the locale of the machine.",
	Functions: []function.Function{
		{
			Name: "avail", Doc: "Return whether the machine has a locale, however its character set is written.", Example: `salt '*' locale.avail de_DE.UTF-8`,
			Params: []function.Param{localeName},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				all, err := locales(ctx)
				return slices.ContainsFunc(all, func(l string) bool { return sameLocale(l, c.String("locale")) }), err
			},
		},
		{
			Name: "get_locale", Doc: "Return the locale of the machine, an empty text where none is set.", Example: `salt '*' locale.get_locale`,
			Run: func(_ context.Context, c *function.Call) (any, error) { return machineLocale(c), nil },
		},
		{
			Name: "list_avail", Doc: "Return the locales that the machine has.", Example: `salt '*' locale.list_avail`,
			Run: func(ctx context.Context, _ *function.Call) (any, error) { return locales(ctx) },
		},
		{
			Name: "set_locale", Doc: "Set the locale of the machine, which must be there.", Example: `salt '*' locale.set_locale de_DE.UTF-8`,
			Params: []function.Param{localeName}, Run: setLocale,
		},
	},
}

var localeName = function.Param{Name: "locale", Kind: function.String, Required: true}

func locales(ctx context.Context) ([]string, error) {
	text, err := output(ctx, "locale", "-a")
	return strings.Fields(text), err
}

// sameLocale reports whether two names mean the same locale, such as de_DE.UTF-8 and de_DE.utf8.
func sameLocale(a, b string) bool {
	plain := func(s string) string {
		language, charset, _ := strings.Cut(s, ".")
		return language + "." + strings.ReplaceAll(strings.ToLower(charset), "-", "")
	}
	return plain(a) == plain(b)
}

// localeFiles are the files in which systems store the locale.
var localeFiles = []string{"/etc/locale.conf", "/etc/default/locale"}

func machineLocale(c *function.Call) string {
	for _, file := range localeFiles {
		text, _ := os.ReadFile(c.Host.Path(file)) // a missing one sets none
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), "LANG="); ok {
				return strings.Trim(value, `"'`)
			}
		}
	}
	return ""
}

func setLocale(ctx context.Context, c *function.Call) (any, error) {
	all, err := locales(ctx)
	if err != nil {
		return nil, err
	}
	name := c.String("locale")
	if !slices.ContainsFunc(all, func(l string) bool { return sameLocale(l, name) }) {
		return nil, function.Invalid("there is no locale %q: locale.list_avail lists those that there are", name)
	}
	if which("update-locale") != nil { // Debian, also without systemd
		_, err = output(ctx, "update-locale", "LANG="+name)
	} else {
		_, err = output(ctx, "localectl", "set-locale", "LANG="+name)
	}
	return done(err)
}
