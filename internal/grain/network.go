package grain

import (
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"
)

// interfaces collects ipv4, ipv6, and ip_, ip4_, ip6_ and hwaddr_interfaces.
func (m *machine) interfaces() (map[string]any, error) {
	nics, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	both, v4, v6, hw := map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}
	var all []netip.Addr
	for _, nic := range nics {
		addrs := nicAddrs(nic)
		all = append(all, addrs...)
		ip4, ip6 := byFamily(addrs)
		v4[nic.Name], v6[nic.Name] = ip4, ip6
		both[nic.Name] = append(append([]any{}, ip4...), ip6...)
		switch {
		case len(nic.HardwareAddr) > 0:
			hw[nic.Name] = nic.HardwareAddr.String()
		case nic.Flags&net.FlagLoopback != 0:
			hw[nic.Name] = "00:00:00:00:00:00"
		}
	}
	ip4, ip6 := byFamily(all)
	return map[string]any{
		"ipv4": ip4, "ipv6": ip6,
		"ip_interfaces": both, "ip4_interfaces": v4, "ip6_interfaces": v6, "hwaddr_interfaces": hw,
	}, nil
}

// nicAddrs returns the addresses of an interface; none if it has just been removed.
func nicAddrs(nic net.Interface) []netip.Addr {
	addrs, err := nic.Addrs()
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, ip.Unmap())
			}
		}
	}
	return out
}

// gateway collects ip4_gw and ip6_gw, the address of the default gateway or false, and ip_gw,
// whether there is any.
func (m *machine) gateway() (map[string]any, error) {
	ip4, ok4 := gateway4(m.read("/proc/net/route"))
	ip6, ok6 := gateway6(m.read("/proc/net/ipv6_route"))
	g := map[string]any{"ip4_gw": false, "ip6_gw": false, "ip_gw": ok4 || ok6}
	if ok4 {
		g["ip4_gw"] = ip4
	}
	if ok6 {
		g["ip6_gw"] = ip6
	}
	return g, nil
}

// gateway4 finds the default route in /proc/net/route: the third field is the gateway as a number
// in the machine's byte order, which is little-endian on all supported architectures.
func gateway4(text string) (string, bool) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 || f[1] != "00000000" || f[7] != "00000000" {
			continue
		}
		if b, err := hex.DecodeString(f[2]); err == nil && len(b) == 4 {
			a := netip.AddrFrom4([4]byte(binary.LittleEndian.AppendUint32(nil, binary.BigEndian.Uint32(b))))
			if !a.IsUnspecified() {
				return a.String(), true
			}
		}
	}
	return "", false
}

// gateway6 finds the default route in /proc/net/ipv6_route: the fifth field is the gateway.
func gateway6(text string) (string, bool) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 10 || f[0] != strings.Repeat("0", 32) || f[1] != "00" {
			continue
		}
		if b, err := hex.DecodeString(f[4]); err == nil && len(b) == 16 {
			if a := netip.AddrFrom16([16]byte(b)); !a.IsUnspecified() {
				return a.String(), true
			}
		}
	}
	return "", false
}

// dns collects the grain dns from the file of the resolver.
func (m *machine) dns() (map[string]any, error) {
	text := m.read("/run/systemd/resolve/resolv.conf")
	if text == "" {
		text = m.read("/etc/resolv.conf")
	}
	if text == "" {
		return nil, nil
	}
	return map[string]any{"dns": parseResolv(text)}, nil
}

func parseResolv(text string) map[string]any {
	var servers []string
	search, options, sortlist, domain := []any{}, []any{}, []any{}, ""
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || strings.ContainsAny(words[0][:1], "#;") {
			continue
		}
		switch words[0] {
		case "nameserver":
			servers = append(servers, words[1])
		case "domain":
			domain = words[1]
		case "search":
			search = list(words[1:])
		case "sortlist":
			sortlist = list(words[1:])
		case "options":
			options = list(words[1:])
		}
	}
	v4, v6 := []any{}, []any{}
	for _, s := range servers {
		if strings.Contains(s, ":") {
			v6 = append(v6, s)
		} else {
			v4 = append(v4, s)
		}
	}
	return map[string]any{
		"nameservers": list(servers), "ip4_nameservers": v4, "ip6_nameservers": v6,
		"domain": domain, "search": search, "sortlist": sortlist, "options": options,
	}
}
