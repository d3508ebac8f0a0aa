package module

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/function"
)

// addressParams select addresses of the minion.
var addressParams = []function.Param{
	{Name: "interface", Kind: function.String},
	{Name: "include_loopback", Kind: function.Bool, Default: false},
	{Name: "cidr", Kind: function.String},
}

// networkModule shows interfaces and addresses.
var networkModule = &function.Module{
	Name: "network",
	Doc:  "Functions that show network interfaces and addresses, and test connections.",
	Functions: []function.Function{
		{
			Name:    "active_tcp",
			Doc:     "Return the open TCP connections: both addresses and ports of each.",
			Example: `salt '*' network.active_tcp`,
			Run:     activeTCP,
		},
		{
			Name:    "calc_net",
			Doc:     "Return the network that an address and its netmask belong to.",
			Example: "salt '*' network.calc_net 172.17.0.5 255.255.255.240\nsalt '*' network.calc_net 2a02:f6e:a000:80:84d8::/80",
			Params:  []function.Param{{Name: "ip_addr", Kind: function.String, Required: true}, {Name: "netmask", Kind: function.String}},
			Run:     networkCalc,
		},
		{
			Name:    "connect",
			Doc:     "Try a TCP connection. Returns whether it was established, and a sentence about it.",
			Example: `salt '*' network.connect google-public-dns-a.google.com 53 timeout=3`,
			Params: []function.Param{
				{Name: "host", Kind: function.String, Required: true},
				{Name: "port", Kind: function.Int, Required: true},
				{Name: "timeout", Kind: function.Float, Default: 5.0},
			},
			Run: networkConnect,
		},
		{
			Name:    "default_route",
			Doc:     "Return the default routes.",
			Example: `salt '*' network.default_route`,
			Run: func(context.Context, *function.Call) (any, error) {
				all, err := routes()
				return slices.DeleteFunc(all, func(r any) bool { return r.(map[string]any)["destination"] != "0.0.0.0" }), err
			},
		},
		{
			Name:    "dig",
			Doc:     "Look a name up by the system's dig, and return what it wrote.",
			Example: `salt '*' network.dig archlinux.org`,
			Params:  []function.Param{{Name: "host", Kind: function.String, Required: true}},
			Run:     networkDig,
		},
		{
			Name:    "get_fqdn",
			Doc:     "Return the full name of the machine.",
			Example: `salt '*' network.get_fqdn`,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				if name, ok := c.Host.Facts()["fqdn"].(string); ok && name != "" {
					return name, nil
				}
				return os.Hostname()
			},
		},
		{
			Name:    "get_hostname",
			Doc:     "Return the name of the machine.",
			Example: `salt '*' network.get_hostname`,
			Run:     func(context.Context, *function.Call) (any, error) { return os.Hostname() },
		},
		{
			Name:    "hw_addr",
			Doc:     "Return the hardware address of an interface.",
			Example: `salt '*' network.hw_addr eth0`,
			Params:  []function.Param{{Name: "iface", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				i, err := interfaceNamed(c.String("iface"))
				return i.hardware, err
			},
		},
		{
			Name:    "in_subnet",
			Doc:     "Return whether the minion has an address within the network.",
			Example: `salt '*' network.in_subnet 10.0.0.0/16`,
			Params:  []function.Param{{Name: "cidr", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				network, err := parsePrefix(c.String("cidr"))
				if err != nil {
					return nil, err
				}
				all, err := interfaces()
				return slices.ContainsFunc(all, func(i iface) bool {
					return slices.ContainsFunc(i.addresses, func(a netip.Prefix) bool { return network.Contains(a.Addr()) })
				}), err
			},
		},
		{
			Name:    "interface",
			Doc:     "Return the IPv4 addresses of an interface.",
			Example: `salt '*' network.interface eth0`,
			Params:  []function.Param{{Name: "iface", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				i, err := interfaceNamed(c.String("iface"))
				return i.inet(), err
			},
		},
		{
			Name:    "interface_ip",
			Doc:     "Return the first IPv4 address of an interface, an empty text if it has none.",
			Example: `salt '*' network.interface_ip eth0`,
			Params:  []function.Param{{Name: "iface", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				i, err := interfaceNamed(c.String("iface"))
				for _, a := range i.addresses {
					if a.Addr().Is4() {
						return a.Addr().String(), nil
					}
				}
				return "", err
			},
		},
		{
			Name:    "interfaces",
			Doc:     "Return all interfaces with their addresses.",
			Example: `salt '*' network.interfaces`,
			Run:     networkInterfaces,
		},
		{
			Name:    "ip_addrs",
			Doc:     "Return the IPv4 addresses of the minion: of all interfaces or of one, all or those within a network. Type public or private selects by that.",
			Example: "salt '*' network.ip_addrs\nsalt '*' network.ip_addrs cidr=10.0.0.0/8\nsalt '*' network.ip_addrs type=public",
			Params:  slices.Concat(addressParams, []function.Param{{Name: "type", Kind: function.String}}),
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return givenAddresses(c, netip.Addr.Is4, c.String("type"))
			},
		},
		{
			Name:    "ip_addrs6",
			Doc:     "Return the IPv6 addresses of the minion: of all interfaces or of one, all or those within a network.",
			Example: "salt '*' network.ip_addrs6\nsalt '*' network.ip_addrs6 cidr=2000::/3",
			Params:  addressParams,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return givenAddresses(c, netip.Addr.Is6, "")
			},
		},
		{
			Name:    "ip_in_subnet",
			Doc:     "Return whether an address is within a network.",
			Example: `salt '*' network.ip_in_subnet 172.17.0.4 172.16.0.0/12`,
			Params:  []function.Param{{Name: "ip_addr", Kind: function.String, Required: true}, {Name: "cidr", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				address, err := parseAddress(c.String("ip_addr"))
				if err != nil {
					return nil, err
				}
				network, err := parsePrefix(c.String("cidr"))
				return network.Contains(address), err
			},
		},
		{
			Name:    "is_loopback",
			Doc:     "Return whether an address is a loopback address.",
			Example: `salt '*' network.is_loopback 127.0.0.1`,
			Params:  []function.Param{{Name: "ip_addr", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				address, err := parseAddress(c.String("ip_addr"))
				return address.IsLoopback(), err
			},
		},
		{
			Name:    "is_private",
			Doc:     "Return whether an address is a private one.",
			Example: `salt '*' network.is_private 10.0.0.3`,
			Params:  []function.Param{{Name: "ip_addr", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				address, err := parseAddress(c.String("ip_addr"))
				return err == nil && isPrivateAddress(address), err
			},
		},
		{
			Name:    "netstat",
			Doc:     "Return the sockets of TCP and UDP: protocol, both addresses with their ports, state, the number of the user and of the inode.",
			Example: `salt '*' network.netstat`,
			Run:     netstat,
		},
		{
			Name:    "ping",
			Doc:     "Ping a host by the system's ping, four times, and return what it wrote; with return_boolean, whether it answered. The timeout is in seconds.",
			Example: "salt '*' network.ping archlinux.org\nsalt '*' network.ping archlinux.org return_boolean=True timeout=3",
			Params: []function.Param{
				{Name: "host", Kind: function.String, Required: true},
				{Name: "timeout", Kind: function.Int},
				{Name: "return_boolean", Kind: function.Bool, Default: false},
			},
			Run: networkPing,
		},
		{
			Name:    "reverse_ip",
			Doc:     "Return the name under which an address is looked up in the DNS.",
			Example: `salt '*' network.reverse_ip 127.0.0.1`,
			Params:  []function.Param{{Name: "ip_addr", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				address, err := parseAddress(c.String("ip_addr"))
				if err != nil {
					return nil, err
				}
				return reverseName(address), nil
			},
		},
		{
			Name:    "routes",
			Doc:     "Return the IPv4 routes.",
			Example: `salt '*' network.routes`,
			Run:     func(context.Context, *function.Call) (any, error) { return routes() },
		},
		{
			Name:    "subnets",
			Doc:     "Return the IPv4 networks that the minion belongs to.",
			Example: `salt '*' network.subnets`,
			Params:  []function.Param{{Name: "interfaces", Kind: function.Words}},
			Run:     func(_ context.Context, c *function.Call) (any, error) { return subnets(c, netip.Addr.Is4) },
		},
		{
			Name:    "subnets6",
			Doc:     "Return the IPv6 networks that the minion belongs to.",
			Example: `salt '*' network.subnets6`,
			Params:  []function.Param{{Name: "interfaces", Kind: function.Words}},
			Run:     func(_ context.Context, c *function.Call) (any, error) { return subnets(c, netip.Addr.Is6) },
		},
		{
			Name:    "traceroute",
			Doc:     "Trace the route to a host by the system's traceroute, and return the hops: number, name, address and times in milliseconds.",
			Example: `salt '*' network.traceroute archlinux.org`,
			Params:  []function.Param{{Name: "host", Kind: function.String, Required: true}},
			Run:     networkTraceroute,
		},
	},
}

// iface is a network interface.
type iface struct {
	name, hardware string
	up             bool
	addresses      []netip.Prefix
}

// interfaces reads the interfaces of the machine.
func interfaces() ([]iface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []iface
	for _, i := range all {
		entry := iface{name: i.Name, hardware: cmp.Or(i.HardwareAddr.String(), "00:00:00:00:00:00"), up: i.Flags&net.FlagUp != 0}
		addresses, err := i.Addrs()
		if err != nil {
			continue // it was removed meanwhile
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				entry.addresses = append(entry.addresses, p)
			}
		}
		list = append(list, entry)
	}
	return list, nil
}

func interfaceNamed(name string) (iface, error) {
	all, err := interfaces()
	if err != nil {
		return iface{}, err
	}
	for _, i := range all {
		if i.name == name {
			return i, nil
		}
	}
	return iface{}, function.Invalid("there is no interface %q", name)
}

// inet describes the IPv4 addresses.
func (i iface) inet() []any {
	list := []any{}
	for _, a := range i.addresses {
		if a.Addr().Is4() {
			list = append(list, map[string]any{
				"address": a.Addr().String(), "netmask": netmask(a), "broadcast": broadcast(a), "label": i.name,
			})
		}
	}
	return list
}

// inet6 describes the IPv6 addresses.
func (i iface) inet6() []any {
	list := []any{}
	for _, a := range i.addresses {
		if a.Addr().Is6() {
			list = append(list, map[string]any{"address": a.Addr().String(), "prefixlen": strconv.Itoa(a.Bits()), "scope": scope(a.Addr())})
		}
	}
	return list
}

func scope(a netip.Addr) string {
	switch {
	case a.IsLoopback():
		return "host"
	case a.IsLinkLocalUnicast():
		return "link"
	}
	return "global"
}

func netmask(p netip.Prefix) string { return net.IP(net.CIDRMask(p.Bits(), 32)).String() }

// broadcast returns the last address of an IPv4 network.
func broadcast(p netip.Prefix) string {
	octets := p.Addr().As4()
	for i, m := range net.CIDRMask(p.Bits(), 32) {
		octets[i] |= ^m
	}
	return netip.AddrFrom4(octets).String()
}

func networkInterfaces(context.Context, *function.Call) (any, error) {
	all, err := interfaces()
	found := map[string]any{}
	for _, i := range all {
		entry := map[string]any{"up": i.up, "hwaddr": i.hardware}
		if v4 := i.inet(); len(v4) > 0 {
			entry["inet"] = v4
		}
		if v6 := i.inet6(); len(v6) > 0 {
			entry["inet6"] = v6
		}
		found[i.name] = entry
	}
	return found, err
}

// givenAddresses returns the addresses selected by addressParams and by kind, which is "public",
// "private" or "", sorted.
func givenAddresses(c *function.Call, family func(netip.Addr) bool, kind string) (any, error) {
	within, err := givenNetwork(c)
	if err != nil {
		return nil, err
	}
	if kind != "" && kind != "public" && kind != "private" {
		return nil, function.Invalid("the type of an address is public or private, not %q", kind)
	}
	if c.Has("interface") {
		if _, err := interfaceNamed(c.String("interface")); err != nil {
			return nil, err
		}
	}
	all, err := interfaces()
	var found []netip.Addr
	for _, i := range all {
		for _, p := range i.addresses {
			a := p.Addr()
			switch {
			case !family(a), c.Has("interface") && i.name != c.String("interface"):
			case a.IsLoopback() && !c.Bool("include_loopback"), within.IsValid() && !within.Contains(a):
			case kind == "public" && isPrivateAddress(a), kind == "private" && !isPrivateAddress(a):
			default:
				found = append(found, a)
			}
		}
	}
	slices.SortFunc(found, netip.Addr.Compare)
	texts := []string{}
	for _, a := range slices.Compact(found) {
		texts = append(texts, a.String())
	}
	return texts, err
}

// givenNetwork returns the argument cidr, the zero prefix if there is none.
func givenNetwork(c *function.Call) (netip.Prefix, error) {
	if !c.Has("cidr") {
		return netip.Prefix{}, nil
	}
	return parsePrefix(c.String("cidr"))
}

func isPrivateAddress(a netip.Addr) bool {
	return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast()
}

func subnets(c *function.Call, family func(netip.Addr) bool) (any, error) {
	all, err := interfaces()
	networks := []string{}
	for _, i := range all {
		if c.Has("interfaces") && !slices.Contains(c.Words("interfaces"), i.name) {
			continue
		}
		for _, a := range i.addresses {
			if family(a.Addr()) && !a.Addr().IsLoopback() {
				networks = append(networks, a.Masked().String())
			}
		}
	}
	slices.Sort(networks)
	return slices.Compact(networks), err
}

func parseAddress(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, function.Invalid("%q is not an IP address", s)
	}
	return a.Unmap(), nil
}

// parsePrefix parses a network, in which host bits may be set.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, function.Invalid("%q is not a network, for example 10.0.0.0/8", s)
	}
	return p.Masked(), nil
}

func networkCalc(_ context.Context, c *function.Call) (any, error) {
	text := c.String("ip_addr")
	if c.Has("netmask") {
		bits, err := maskBits(c.String("netmask"))
		if err != nil {
			return nil, err
		}
		text += "/" + strconv.Itoa(bits)
	} else if !strings.Contains(text, "/") {
		text += "/32"
	}
	p, err := parsePrefix(text)
	return p.String(), err
}

// maskBits parses 255.255.255.240, or 28.
func maskBits(s string) (int, error) {
	if n, err := strconv.Atoi(s); err == nil {
		return n, nil
	}
	ip := net.ParseIP(s).To4()
	ones, size := net.IPMask(ip).Size()
	if ip == nil || size == 0 {
		return 0, function.Invalid("%q is not a netmask", s)
	}
	return ones, nil
}

func networkConnect(ctx context.Context, c *function.Call) (any, error) {
	address := net.JoinHostPort(c.String("host"), strconv.Itoa(c.Int("port")))
	d := net.Dialer{Timeout: seconds(c.Float("timeout"))}
	conn, err := d.DialContext(ctx, "tcp", address)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return map[string]any{"result": false, "comment": fmt.Sprintf("Unable to connect to %s: %v", address, err)}, nil
	}
	err = conn.Close()
	return map[string]any{"result": true, "comment": "Successfully connected to " + address}, err
}

func networkPing(ctx context.Context, c *function.Call) (any, error) {
	args := []string{"ping", "-c", "4"}
	if c.Has("timeout") {
		args = append(args, "-W", strconv.Itoa(c.Int("timeout")))
	}
	e, err := tool(ctx, append(args, "--", c.String("host"))...)
	if err != nil {
		return nil, err
	}
	if c.Bool("return_boolean") {
		return e.Code == 0, nil
	}
	c.SetRetcode(e.Code)
	return strings.TrimSpace(e.Stdout + e.Stderr), nil
}

// reverseName returns the address's name below in-addr.arpa or ip6.arpa.
func reverseName(a netip.Addr) string {
	const digits = "0123456789abcdef"
	var labels []string
	for _, b := range slices.Backward(a.AsSlice()) {
		if a.Is4() {
			labels = append(labels, strconv.Itoa(int(b)))
		} else {
			labels = append(labels, digits[b&15:b&15+1], digits[b>>4:b>>4+1])
		}
	}
	if a.Is4() {
		return strings.Join(labels, ".") + ".in-addr.arpa"
	}
	return strings.Join(labels, ".") + ".ip6.arpa"
}

// routes reads the kernel's IPv4 routes.
func routes() ([]any, error) {
	list := []any{}
	err := eachRow("/proc/net/route", 8, func(f []string) {
		flags, err := strconv.ParseUint(f[3], 16, 32)
		destination, gateway, mask := hexAddress(f[1]), hexAddress(f[2]), hexAddress(f[7])
		if err != nil || destination == "" {
			return // the header
		}
		list = append(list, map[string]any{
			"addr_family": "inet", "destination": destination, "gateway": gateway, "netmask": mask,
			"flags": routeFlags(flags), "interface": f[0],
		})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil // a machine without a network
	}
	return list, err
}

// hexAddress parses an address as the kernel prints it: one little-endian number.
func hexAddress(s string) string {
	n, err := strconv.ParseUint(s, 16, 32)
	if err != nil {
		return ""
	}
	return netip.AddrFrom4([4]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}).String()
}

// routeFlags returns the letters of netstat for the RTF_ flags of Linux.
func routeFlags(flags uint64) string {
	text := ""
	for _, f := range []struct {
		bit    uint64
		letter string
	}{{0x1, "U"}, {0x2, "G"}, {0x4, "H"}, {0x200, "!"}} {
		if flags&f.bit != 0 {
			text += f.letter
		}
	}
	return text
}
