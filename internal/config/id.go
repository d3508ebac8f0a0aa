package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/salt"
)

// lookupTimeout limits all questions to the resolver together: salt-call must still work on a
// machine whose name server is down.
const lookupTimeout = 2 * time.Second

// Lookup holds the functions that find the machine's name. A nil function means the system's
// own.
type Lookup struct {
	Hostname  func() (string, error)                                 // the kernel's name of the host
	FQDN      func(ctx context.Context, name string) (string, error) // its full name according to the resolver
	Addresses func() ([]net.Addr, error)                             // of the network interfaces
	ReadFile  func(path string) ([]byte, error)                      // of /etc/hostname and /etc/hosts
}

// withDefaults fills in the system's own functions.
func (l Lookup) withDefaults() Lookup {
	if l.Hostname == nil {
		l.Hostname = os.Hostname
	}
	if l.FQDN == nil {
		l.FQDN = net.DefaultResolver.LookupCNAME
	}
	if l.Addresses == nil {
		l.Addresses = net.InterfaceAddrs
	}
	if l.ReadFile == nil {
		l.ReadFile = os.ReadFile
	}
	return l
}

// resolveID gives m its id: from the configuration, from the cache file beside it, or from the
// host. Only in the last case does it call the functions of o.Lookup and write the cache file.
func (m *Minion) resolveID(o Options) ([]Notice, error) {
	var notices []Notice
	id, cache := string(m.ID), filepath.Join(m.ConfigDir, "minion_id")
	isAddress := false
	m.IDFrom = "id"
	if id == "" && m.MinionIDCaching {
		cached, err := readID(cache, o.CheckOwner)
		if err != nil {
			return nil, err
		}
		id, m.IDFrom = cached, cache
	}
	if id == "" {
		id, isAddress = findID(o.Lookup.withDefaults())
		id, m.IDFrom = m.trim(id, isAddress), "host"
		if m.MinionIDCaching {
			if err := atomicfile.Write(cache, []byte(id+"\n"), 0o644); err != nil {
				notices = append(notices, Notice{File: cache, Text: fmt.Sprintf("the id %q, found out from the host, could not be kept: %v", id, err)})
			}
		}
	}
	if d := strings.TrimPrefix(m.AppendDomain, "."); d != "" && !isAddress && !strings.HasSuffix(id, d) && !strings.HasSuffix(id, ".") {
		id += "." + d
	}
	checked, err := salt.ParseMinionID(id)
	if err != nil {
		return notices, &Error{File: m.ConfigFile, Key: "id", Err: salt.WithHint(err, "set id to a name of letters, digits, dots and hyphens")}
	}
	m.ID = checked
	m.Raw["id"] = id
	return notices, nil
}

// readID returns the id of a cache file, "" if there is no file.
func readID(path string, checkOwner bool) (string, error) {
	text, err := readFile(path, checkOwner)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(strings.TrimPrefix(string(text), "\ufeff"))
	if id == "" {
		return "", nil
	}
	if _, err := salt.ParseMinionID(id); err != nil {
		return "", &Error{File: path, Line: 1, Err: salt.WithHint(err, "remove the file to determine the id again, or set id in the configuration")}
	}
	return id, nil
}

// findID returns the first name of this host that is a valid id and not a name of localhost,
// and whether it is an address. The order is Salt's: the resolver's full name, the kernel's
// name, /etc/hostname, the names that /etc/hosts gives to the loopback addresses, the
// addresses.
func findID(l Lookup) (id string, isAddress bool) {
	host, err := l.Hostname()
	if err == nil && isHostID(host) {
		ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
		defer cancel()
		full, err := l.FQDN(ctx, host)
		if full = strings.TrimSuffix(full, "."); err == nil && isHostID(full) && strings.Contains(full, ".") {
			return full, false
		}
		return host, false
	}
	for _, name := range append(wordsOf(l, "/etc/hostname"), loopbackNames(l)...) {
		if isHostID(name) {
			return name, false
		}
	}
	if address := firstAddress(l); address != "" {
		return address, true
	}
	return "localhost", false
}

// trim applies minion_id_remove_domain and minion_id_lowercase to a name that was determined
// from the host.
func (m *Minion) trim(id string, isAddress bool) string {
	switch {
	case isAddress:
	case m.MinionIDRemoveDomain == anyDomain:
		id, _, _ = strings.Cut(id, ".")
	case m.MinionIDRemoveDomain != "":
		id = strings.TrimSuffix(id, "."+strings.TrimPrefix(m.MinionIDRemoveDomain, "."))
	}
	if m.MinionIDLowercase {
		id = strings.ToLower(id)
	}
	return id
}

// isHostID reports whether name is a valid id and not one of those that every machine has.
func isHostID(name string) bool {
	if _, err := salt.ParseMinionID(name); err != nil {
		return false
	}
	for _, prefix := range []string{"localhost", "ip6-", "ipv6-", "127.", "0.0.0.0", "::1", "fe00::", "fe02::", "1.0.0."} {
		if strings.HasPrefix(strings.ToLower(name), prefix) {
			return false
		}
	}
	return true
}

// wordsOf returns the words of a file without its comments; none on an error.
func wordsOf(l Lookup, path string) []string {
	text, _ := l.ReadFile(path) // a host without the file has no such names
	var words []string
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		words = append(words, strings.Fields(line)...)
	}
	return words
}

// loopbackNames returns the names of loopback addresses in /etc/hosts.
func loopbackNames(l Lookup) []string {
	var names []string
	loopback := false
	for _, word := range wordsOf(l, "/etc/hosts") {
		if ip := net.ParseIP(word); ip != nil {
			loopback = ip.IsLoopback()
		} else if loopback {
			names = append(names, word)
		}
	}
	return names
}

// firstAddress returns an address of this host that others can reach, IPv4 before IPv6; "" for
// none.
func firstAddress(l Lookup) string {
	addresses, _ := l.Addresses() // a host that cannot list its addresses has none
	v6 := ""
	for _, a := range addresses {
		network, ok := a.(*net.IPNet)
		if !ok || !network.IP.IsGlobalUnicast() {
			continue
		}
		if network.IP.To4() != nil {
			return network.IP.String()
		}
		if v6 == "" {
			v6 = network.IP.String()
		}
	}
	return v6
}
