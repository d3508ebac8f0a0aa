package module

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/function"
)

// zoneDir is the directory of time zone files.
const zoneDir = "/usr/share/zoneinfo"

// timezoneModule manages the time zone.
var timezoneModule = &function.Module{
	Name: "timezone",
	Doc:  "Functions that manage the time zone of the machine: the link /etc/localtime, and /etc/timezone where that is used.",
	Functions: []function.Function{
		{
			Name: "get_hwclock", Doc: "Return whether the hardware clock runs in UTC or in localtime.", Example: `salt '*' timezone.get_hwclock`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				text, err := os.ReadFile(c.Host.Path("/etc/adjtime"))
				if lines := strings.Fields(string(text)); err == nil && slices.Contains(lines, "LOCAL") {
					return "localtime", nil
				}
				return "UTC", nil
			},
		},
		{
			Name: "get_offset", Doc: "Return the offset from UTC, such as +0200.", Example: `salt '*' timezone.get_offset`,
			Run: func(_ context.Context, c *function.Call) (any, error) { return zoneTime(c, "-0700") },
		},
		{
			Name: "get_zone", Doc: "Return the time zone, such as Europe/Berlin.", Example: `salt '*' timezone.get_zone`,
			Run: func(_ context.Context, c *function.Call) (any, error) { return currentZone(c) },
		},
		{
			Name: "get_zonecode", Doc: "Return the short name of the time zone, such as CEST.", Example: `salt '*' timezone.get_zonecode`,
			Run: func(_ context.Context, c *function.Call) (any, error) { return zoneTime(c, "MST") },
		},
		{
			Name: "list", Doc: "Return the time zones that the machine knows.", Example: `salt '*' timezone.list`,
			Run: func(_ context.Context, c *function.Call) (any, error) { return zones(c) },
		},
		{
			Name: "set_zone", Doc: "Set the time zone.", Example: `salt '*' timezone.set_zone Europe/Berlin`,
			Params: []function.Param{{Name: "timezone", Kind: function.String, Required: true}}, Run: setZone,
		},
		{
			Name: "zone_compare", Doc: "Return whether this is the time zone.", Example: `salt '*' timezone.zone_compare Europe/Berlin`,
			Params: []function.Param{{Name: "timezone", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				zone, err := currentZone(c)
				return zone == c.String("timezone"), err
			},
		},
	},
}

// currentZone returns the name of the time zone, UTC if none is set.
func currentZone(c *function.Call) (string, error) {
	link, err := os.Readlink(c.Host.Path("/etc/localtime"))
	if _, name, ok := strings.Cut(link, "/zoneinfo/"); err == nil && ok {
		return name, nil
	}
	text, err := os.ReadFile(c.Host.Path("/etc/timezone"))
	if name := strings.TrimSpace(string(text)); err == nil && name != "" {
		return name, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return "UTC", err
}

// zoneTime returns the current time in the machine's zone. The zone of this process may be
// outdated.
func zoneTime(c *function.Call, layout string) (any, error) {
	name, err := currentZone(c)
	if err != nil {
		return nil, err
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, err
	}
	return time.Now().In(zone).Format(layout), nil
}

func zones(c *function.Call) (any, error) {
	dir := c.Host.Path(zoneDir)
	names := []string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(strings.TrimPrefix(path, dir), "/")
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "posix" || name == "right"):
			return filepath.SkipDir
		case !d.IsDir() && isZone(path):
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

// isZone reports whether a file describes a time zone; there are other files in the directory.
func isZone(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	magic := make([]byte, 4)
	_, err = f.Read(magic)
	return err == nil && string(magic) == "TZif"
}

func setZone(_ context.Context, c *function.Call) (any, error) {
	name := c.String("timezone")
	if !filepath.IsLocal(name) || !isZone(filepath.Join(c.Host.Path(zoneDir), name)) {
		return nil, function.Invalid("there is no time zone %q; timezone.list knows them", name)
	}
	link := c.Host.Path("/etc/localtime")
	next := link + ".tmp"
	if err := errors.Join(os.RemoveAll(next), os.Symlink(filepath.Join(zoneDir, name), next)); err != nil {
		return nil, err
	}
	if err := os.Rename(next, link); err != nil {
		return nil, errors.Join(err, os.Remove(next))
	}
	file := c.Host.Path("/etc/timezone")
	if _, err := os.Stat(file); err != nil {
		return true, nil // not used here
	}
	return true, replaceText(file, name+"\n", 0o644)
}
