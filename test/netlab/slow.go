package netlab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Slow delays all packets of the host on the cable to its switch in these directions, until Unslow. No packet
// overtakes another one, so of many most take as long as the slowest of those before them; those that are too many
// are dropped, and so are those that wait when Unslow is called. It is an error where the kernel has no TAP devices.
//
// This is done by a relay of this process, on all kernels in the same way: netem, which many lack, is not used.
func (h *Host) Slow(d Delay, directions ...string) error {
	return h.detour(d, directions, func([]byte) bool { return true })
}

// SlowPeer delays only the IP packets that come from an address, or go to it.
func (h *Host) SlowPeer(address string, d Delay, directions ...string) error {
	peer, err := netip.ParseAddr(address)
	if err != nil {
		return err
	}
	return h.detour(d, directions, func(frame []byte) bool { return concerns(frame, peer) })
}

// Unslow undoes Slow and SlowPeer, if there was one.
func (h *Host) Unslow() {
	h.lab.tb.Helper()
	h.lab.must(h.direct())
}

// detour leads the cable through a relay: at the switch its end moves to a bridge of its own, and the relay carries
// frames between that and the bridge of the switch.
func (h *Host) detour(d Delay, directions []string, concerns func([]byte) bool) error {
	if h.cable == "" || h.relay != nil {
		return fmt.Errorf("%s has no cable to a switch, or it is slow already", h.name)
	}
	near, far, aside := "near-"+h.cable, "far-"+h.cable, "aside-"+h.cable
	ends, err := h.plugged.taps(near, far)
	if err != nil {
		return err
	}
	how := func(direction string) delays {
		chosen := slices.Contains(directions, direction)
		return func(frame []byte) (time.Duration, bool) { return d.draw(), chosen && concerns(frame) }
	}
	r := newRelay(ends)
	h.relay = r
	for _, words := range []string{
		"ip link add " + aside + " type bridge",
		"ip link set " + aside + " up",
		"ip link set " + near + " up master " + aside,
		"ip link set " + far + " up master " + bridge,
	} {
		if err := h.plugged.try(words); err != nil {
			return errors.Join(err, h.direct())
		}
	}
	r.start(how(Outgoing), how(Incoming)) // not before both are up: a device that is down takes no frames
	if err := h.plugged.try("ip link set " + h.cable + " master " + aside); err != nil {
		return errors.Join(err, h.direct())
	}
	return nil
}

// taps adds two TAP devices.
func (h *Host) taps(names ...string) (ends [2]io.ReadWriteCloser, err error) {
	for i, name := range names {
		if ends[i], err = h.tap(name); err != nil {
			for _, end := range ends[:i] {
				_ = end.Close() // nobody has used it
			}
			return ends, err
		}
	}
	return ends, nil
}

// direct puts the cable back.
func (h *Host) direct() error {
	if h.relay == nil {
		return nil
	}
	r := h.relay
	h.relay = nil
	return errors.Join(h.plugged.try("ip link set "+h.cable+" master "+bridge), r.close(), h.plugged.try("ip link del aside-"+h.cable))
}

func (h *Host) try(words string) error {
	return run(append([]string{"ip", "netns", "exec", h.name}, strings.Fields(words)...)...)
}

// concerns says whether an Ethernet frame has an IP packet of an address or for it.
func concerns(frame []byte, peer netip.Addr) bool {
	const header = 14
	if len(frame) < header {
		return false
	}
	var at, size int // where the two addresses are, and how long each
	switch binary.BigEndian.Uint16(frame[header-2:]) {
	case 0x0800:
		at, size = header+12, 4
	case 0x86dd:
		at, size = header+8, 16
	}
	if size == 0 || len(frame) < at+2*size {
		return false
	}
	for _, b := range [][]byte{frame[at : at+size], frame[at+size : at+2*size]} {
		if a, _ := netip.AddrFromSlice(b); a == peer {
			return true
		}
	}
	return false
}
