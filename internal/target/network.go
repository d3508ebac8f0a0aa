package target

import (
	"errors"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// network is a network, compared with the grain ipv4 or ipv6, depending on its family. An IPv4
// address in IPv6 form counts as IPv6.
type network struct{ prefix netip.Prefix }

// address is one address, compared in the same way. A zone is part of it: fe80::1%eth0 is not
// fe80::1.
type address struct{ netip.Addr }

// parseNetwork parses an address, address/length or, for IPv4, address/mask with a net mask or a
// host mask.
func parseNetwork(expr string) (tester, error) {
	if a, err := netip.ParseAddr(expr); err == nil {
		return address{a}, nil
	}
	p, err := netip.ParsePrefix(expr)
	if err != nil {
		var ok bool
		if p, ok = parseMask(expr); !ok {
			return nil, errors.New("it is neither an address nor a network")
		}
	}
	if p != p.Masked() {
		err := errors.New("the address has bits set beyond the mask")
		return nil, salt.WithHint(err, "the network is "+p.Masked().String())
	}
	return network{p}, nil
}

// parseMask parses 10.0.0.0/255.255.255.0 and 10.0.0.0/0.0.0.255.
func parseMask(expr string) (netip.Prefix, bool) {
	left, right, _ := strings.Cut(expr, "/")
	a, err := netip.ParseAddr(left)
	m, errMask := netip.ParseAddr(right)
	if err != nil || errMask != nil || !a.Is4() || !m.Is4() {
		return netip.Prefix{}, false
	}
	b := m.As4()
	mask := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	if b[0] == 0 && mask != 0 {
		mask = ^mask
	}
	ones := bits.LeadingZeros32(^mask)
	if mask<<ones != 0 {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, ones), true
}

func (n network) match(f Facts) (bool, error) {
	return anyAddress(f, n.prefix.Addr(), func(a netip.Addr) bool { return n.prefix.Contains(a.WithZone("")) }), nil
}

func (a address) match(f Facts) (bool, error) {
	return anyAddress(f, a.Addr, func(b netip.Addr) bool { return a.Addr == b }), nil
}

// anyAddress reports whether meant is true for an address of the minion in the same family.
func anyAddress(f Facts, family netip.Addr, meant func(netip.Addr) bool) bool {
	key := "ipv6"
	if family.Is4() {
		key = "ipv4"
	}
	is := func(v any) bool {
		s, _ := v.(string)
		a, err := netip.ParseAddr(s)
		return err == nil && meant(a)
	}
	list, ok := f.Grains[key].([]any)
	if !ok {
		return is(f.Grains[key])
	}
	return slices.ContainsFunc(list, is)
}
