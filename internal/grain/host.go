package grain

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/posix"
)

// kernel collects kernel, kernelrelease, kernelversion, kernelparams, cpuarch, nodename.
func (m *machine) kernel() (map[string]any, error) {
	u := posix.Uname()
	g := map[string]any{
		"kernel":        u.Sysname,
		"nodename":      u.Nodename,
		"kernelrelease": u.Release,
		"kernelversion": u.Version,
		"cpuarch":       u.Machine,
		"ps":            "ps -efHww",
	}
	var params []any
	for word := range strings.FieldsSeq(m.read("/proc/cmdline")) {
		if key, v, ok := strings.Cut(word, "="); ok {
			params = append(params, []any{key, v})
		} else {
			params = append(params, []any{word, nil})
		}
	}
	if params != nil {
		g["kernelparams"] = params
	}
	return g, nil
}

// minion collects what the minion knows about itself: id, master, the version, and server_id, a
// number computed from the id.
func (m *machine) minion() (map[string]any, error) {
	var version []any
	for part := range strings.SplitSeq(m.Version, ".") {
		if n, err := strconv.ParseInt(part, 10, 64); err == nil {
			version = append(version, n)
		}
	}
	sum := sha256.Sum256([]byte(m.ID))
	g := map[string]any{
		"id":              string(m.ID),
		"master":          m.Master,
		"saltversion":     m.Version,
		"saltversioninfo": version,
		"server_id":       int64(binary.BigEndian.Uint32(sum[28:]) & 0x7fffffff),
	}
	if exe, err := os.Executable(); err == nil {
		g["saltpath"] = filepath.Dir(exe)
	}
	return g, nil
}

// host collects fqdn, host, domain, localhost, fqdn_ip4 and fqdn_ip6.
func (m *machine) host() (map[string]any, error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	hosts := parseHosts(m.read("/etc/hosts"))
	fqdn, addrs := m.fullName(name, hosts)
	host, domain, _ := strings.Cut(fqdn, ".")
	ip4, ip6 := byFamily(addrs)
	return map[string]any{
		"localhost": name,
		"fqdn":      fqdn,
		"host":      host,
		"domain":    domain,
		"fqdn_ip4":  ip4,
		"fqdn_ip6":  ip6,
	}, nil
}

// hostLine is a line of /etc/hosts.
type hostLine struct {
	addr  netip.Addr
	names []string // the first is the canonical one
}

func parseHosts(text string) []hostLine {
	var out []hostLine
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		if a, err := netip.ParseAddr(words[0]); err == nil {
			out = append(out, hostLine{a, words[1:]})
		}
	}
	return out
}

// fullName finds the full name of the host and its addresses: the given name, otherwise from
// /etc/hosts, otherwise, if allowed, from the name service, otherwise the short name.
func (m *machine) fullName(name string, hosts []hostLine) (string, []netip.Addr) {
	fqdn := m.FQDN
	if fqdn == "" {
		fqdn = canonical(name, hosts)
	}
	var addrs []netip.Addr
	for _, l := range hosts {
		if slices.Contains(l.names, fqdn) {
			addrs = append(addrs, l.addr)
		}
	}
	if m.Resolve && (len(addrs) == 0 || m.FQDN == "" && !strings.Contains(fqdn, ".")) {
		return resolve(m.ctx, fqdn, addrs)
	}
	return fqdn, addrs
}

// canonical returns the name with a dot that /etc/hosts has for the host, otherwise the name
// itself. Installers also put the name on the line of localhost, so names that begin with that word
// are skipped.
func canonical(name string, hosts []hostLine) string {
	for _, l := range hosts {
		if !slices.Contains(l.names, name) {
			continue
		}
		for _, n := range l.names {
			if strings.Contains(n, ".") && !strings.HasPrefix(n, "localhost") {
				return n
			}
		}
	}
	return name
}

// resolve asks the name service for the addresses of a host and for its full name. Without an
// answer within a second it returns its arguments.
func resolve(ctx context.Context, fqdn string, addrs []netip.Addr) (string, []netip.Addr) {
	ctx, cancel := context.WithTimeout(ctx, patience*9/10) // leaves time for the answer
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", fqdn)
	if err != nil {
		return fqdn, addrs
	}
	for i, a := range found {
		found[i] = a.Unmap()
	}
	if strings.Contains(fqdn, ".") || len(found) == 0 {
		return fqdn, found
	}
	names, err := net.DefaultResolver.LookupAddr(ctx, found[0].String())
	if err == nil {
		for _, n := range names {
			if n = strings.TrimSuffix(n, "."); strings.HasPrefix(n, fqdn+".") {
				return n, found
			}
		}
	}
	return fqdn, found
}

// byFamily sorts addresses and returns them as two lists.
func byFamily(addrs []netip.Addr) (ip4, ip6 []any) {
	ip4, ip6 = []any{}, []any{}
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, a := range slices.Compact(addrs) {
		if a.Is4() {
			ip4 = append(ip4, a.String())
		} else {
			ip6 = append(ip6, a.String())
		}
	}
	return ip4, ip6
}

// locale collects locale_info and timezone.
func (m *machine) locale() (map[string]any, error) {
	var spec string
	for _, key := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if spec = os.Getenv(key); spec != "" {
			break
		}
	}
	language, encoding, _ := strings.Cut(spec, ".")
	zone, _ := time.Now().Zone()
	info := map[string]any{"defaultlanguage": nil, "defaultencoding": nil, "detectedencoding": "utf-8", "timezone": zone}
	if language != "" && language != "C" && language != "POSIX" {
		info["defaultlanguage"] = language
	}
	if encoding != "" {
		info["defaultencoding"] = encoding
	}
	return map[string]any{"locale_info": info}, nil
}

// process collects pid, uid, gid, their names, and the environment of the daemon: path, systempath,
// shell, cwd.
func (m *machine) process() (map[string]any, error) {
	path := strings.TrimSpace(os.Getenv("PATH"))
	g := map[string]any{
		"pid":        int64(os.Getpid()),
		"uid":        int64(os.Geteuid()),
		"gid":        int64(os.Getegid()),
		"path":       path,
		"systempath": list(filepath.SplitList(path)),
		"shell":      "/bin/sh",
	}
	if shell := os.Getenv("SHELL"); shell != "" {
		g["shell"] = shell
	}
	if dir, err := os.Getwd(); err == nil {
		g["cwd"] = dir
	}
	if name := m.accountName("/etc/passwd", os.Geteuid()); name != "" {
		g["username"] = name
	}
	if name := m.accountName("/etc/group", os.Getegid()); name != "" {
		g["groupname"] = name
	}
	return g, nil
}

// accountName finds the name for a number in passwd or group: in both, the name is the first field
// and the number the third.
func (m *machine) accountName(file string, id int) string {
	want := strconv.Itoa(id)
	for line := range strings.Lines(m.read(file)) {
		if f := strings.Split(line, ":"); len(f) > 2 && f[2] == want {
			return f[0]
		}
	}
	return ""
}
