package module

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/function"
)

var (
	hostIP    = function.Param{Name: "ip", Kind: function.String, Required: true}
	hostAlias = function.Param{Name: "alias", Kind: function.Words, Required: true}
)

// hostsModule edits /etc/hosts.
var hostsModule = &function.Module{
	Name: "hosts",
	Doc:  "Functions that read and edit the hosts file: /etc/hosts, or what hosts.file in the minion's configuration names. Comments and all other lines stay as they are.",
	Functions: []function.Function{
		{
			Name:    "add_host",
			Doc:     "Add names to an address.",
			Example: `salt '*' hosts.add_host 192.0.2.1 web1.example.com`,
			Params:  []function.Param{hostIP, hostAlias},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return editHosts(c, func(names []string) []string {
					for _, name := range c.Words("alias") {
						if !slices.Contains(names, name) {
							names = append(names, name)
						}
					}
					return names
				})
			},
		},
		{
			Name:    "get_alias",
			Doc:     "Return the names of an address.",
			Example: `salt '*' hosts.get_alias 127.0.0.1`,
			Params:  []function.Param{hostIP},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				lines, err := readHosts(c)
				names := []string{}
				for _, l := range lines {
					if l.ip == c.String("ip") {
						names = append(names, l.names...)
					}
				}
				return names, err
			},
		},
		{
			Name:    "get_ip",
			Doc:     "Return the first address of a name, an empty text if it has none.",
			Example: `salt '*' hosts.get_ip localhost`,
			Params:  []function.Param{{Name: "host", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				lines, err := readHosts(c)
				for _, l := range lines {
					if slices.Contains(l.names, c.String("host")) {
						return l.ip, nil
					}
				}
				return "", err
			},
		},
		{
			Name:    "has_pair",
			Doc:     "Return whether an address has all of these names.",
			Example: `salt '*' hosts.has_pair 127.0.0.1 localhost`,
			Params:  []function.Param{hostIP, hostAlias},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				lines, err := readHosts(c)
				var names []string
				for _, l := range lines {
					if l.ip == c.String("ip") {
						names = append(names, l.names...)
					}
				}
				missing := func(name string) bool { return !slices.Contains(names, name) }
				return !slices.ContainsFunc(c.Words("alias"), missing), err
			},
		},
		{
			Name:    "list_hosts",
			Doc:     "Return all addresses with their names.",
			Example: `salt '*' hosts.list_hosts`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				lines, err := readHosts(c)
				all := map[string]any{}
				for _, l := range lines {
					if l.ip == "" {
						continue
					}
					one, ok := all[l.ip].(map[string]any)
					if !ok {
						one = map[string]any{"aliases": []string{}}
						all[l.ip] = one
					}
					one["aliases"] = append(one["aliases"].([]string), l.names...)
				}
				return all, err
			},
		},
		{
			Name:    "rm_host",
			Doc:     "Remove names from an address. An address that has none left is removed.",
			Example: `salt '*' hosts.rm_host 192.0.2.1 web1.example.com`,
			Params:  []function.Param{hostIP, hostAlias},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return editHosts(c, func(names []string) []string {
					return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(c.Words("alias"), name) })
				})
			},
		},
		{
			Name:    "set_host",
			Doc:     "Give an address these names and no others; without names, remove it.",
			Example: `salt '*' hosts.set_host 192.0.2.1 web1.example.com,web1`,
			Params:  []function.Param{hostIP, hostAlias},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return editHosts(c, func([]string) []string { return slices.Clone(c.Words("alias")) })
			},
		},
	},
}

// hostLine is a line of the hosts file: an address with names, or, if the address is empty,
// anything else.
type hostLine struct {
	text  string // the unchanged line
	ip    string
	names []string
	note  string // the comment after the names
}

func (l hostLine) String() string {
	if l.text != "" || l.ip == "" {
		return l.text
	}
	text := l.ip + "\t" + strings.Join(l.names, " ")
	if l.note != "" {
		text += "\t#" + l.note
	}
	return text
}

func parseHostLine(text string) hostLine {
	l := hostLine{text: text}
	entry, note, _ := strings.Cut(text, "#")
	if words := strings.Fields(entry); len(words) > 1 {
		l.ip, l.names, l.note = words[0], words[1:], note
	}
	return l
}

func hostsFile(c *function.Call) string {
	if file, ok := configOption(c, "hosts.file").(string); ok && file != "" {
		return file
	}
	return "/etc/hosts"
}

func readHosts(c *function.Call) ([]hostLine, error) {
	text, err := readText(hostsFile(c))
	if errors.Is(err, fs.ErrNotExist) || err == nil && text == "" {
		return nil, nil
	}
	var lines []hostLine
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		lines = append(lines, parseHostLine(line))
	}
	return lines, err
}

// hostsLock serialises edits.
var hostsLock sync.Mutex

// editHosts changes the names for the argument ip: all its lines are merged into one.
func editHosts(c *function.Call, change func([]string) []string) (any, error) {
	if _, err := netip.ParseAddr(c.String("ip")); err != nil {
		return nil, function.Invalid("%q is not an address", c.String("ip"))
	}
	for _, name := range c.Words("alias") {
		if strings.ContainsAny(name, "# \t\r\n") {
			return nil, function.Invalid("%q is not the name of a host", name)
		}
	}
	hostsLock.Lock()
	defer hostsLock.Unlock()
	lines, err := readHosts(c)
	if err != nil {
		return nil, err
	}
	return true, writeHosts(c, changeNames(lines, c.String("ip"), change))
}

func changeNames(lines []hostLine, ip string, change func([]string) []string) []hostLine {
	entry := hostLine{ip: ip}
	place := -1
	var kept []hostLine
	for _, l := range lines {
		if l.ip != ip {
			kept = append(kept, l)
			continue
		}
		if place < 0 {
			place, entry.note = len(kept), l.note
		}
		entry.names = append(entry.names, l.names...)
	}
	if entry.names = change(entry.names); len(entry.names) == 0 {
		return kept
	}
	if place < 0 {
		place = len(kept)
	}
	return slices.Insert(kept, place, entry)
}

func writeHosts(c *function.Call, lines []hostLine) error {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.String() + "\n")
	}
	return replaceText(hostsFile(c), b.String(), 0o644)
}

// replaceText replaces a system file atomically; its mode stays. If it cannot be renamed, for
// example a file mounted into a container, it is written in place.
func replaceText(path, text string, mode fs.FileMode) error {
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	target := destination(path)
	if err := atomicfile.Write(target, []byte(text), mode); err == nil {
		return nil
	}
	return os.WriteFile(target, []byte(text), mode)
}
