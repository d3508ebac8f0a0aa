package runner

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
)

// networkModule wakes machines through the network.
func networkModule(h *Host) *function.Module {
	n := network{h}
	where := []function.Param{{Name: "bcast", Kind: function.String, Default: "255.255.255.255"}, {Name: "destport", Kind: function.Int, Default: 9}}
	return &function.Module{Name: "network", Doc: "Wake-on-LAN from the machine of the master.", Functions: []function.Function{
		{Name: "wol", Class: function.Changes, Doc: "Send a magic packet that wakes the machine with a hardware address.", Example: "salt-run network.wol 08-00-27-13-69-77\nsalt-run network.wol 080027136977 255.255.255.255 7",
			Params: append([]function.Param{{Name: "mac", Kind: function.String, Required: true}}, where...),
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return true, wake(ctx, c.String("mac"), c.String("bcast"), c.Int("destport"))
			}},
		{Name: "wollist", Class: function.Secret, Doc: "Wake all machines whose hardware addresses are the lines of a file.", Example: "salt-run network.wollist /etc/salt/macs",
			Params: append([]function.Param{{Name: "maclist", Kind: function.Path, Required: true}}, where...), Run: wakeList},
		{Name: "wolmatch", Class: function.Changes, Doc: "Wake the minions that a target matches, by the hardware addresses in their grains. Return the addresses.", Example: "salt-run network.wolmatch 'web*'",
			Params: append([]function.Param{{Name: "tgt", Kind: function.String, Required: true}, {Name: "tgt_type", Kind: function.String, Default: "glob"}}, where...), Run: n.wakeMatching},
	}}
}

type network struct{ *Host }

// parseMAC parses an Ethernet address as Salt's users write it: with colons, dashes or dots, or its
// 12 digits alone.
func parseMAC(text string) (net.HardwareAddr, error) {
	bare := strings.NewReplacer(":", "", "-", "", ".", "").Replace(text)
	mac, err := hex.DecodeString(bare)
	if err != nil || len(mac) != 6 {
		return nil, salt.WithHint(fmt.Errorf("%q is not a hardware address", text), "for example 08:00:27:13:69:77")
	}
	return mac, nil
}

// magicPacket is the packet that wakes a network card: six bytes of ones, and its address sixteen
// times.
func magicPacket(mac net.HardwareAddr) []byte {
	return append(bytes.Repeat([]byte{0xff}, 6), bytes.Repeat(mac, 16)...)
}

func wake(ctx context.Context, text, address string, port int) error {
	mac, err := parseMAC(text)
	if err != nil {
		return err
	}
	if port < 1 || port > 65535 {
		return fmt.Errorf("%d is not a port", port)
	}
	// Go's sockets may broadcast by default.
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("wake %s: %w", mac, err)
	}
	defer conn.Close()
	if _, err := conn.Write(magicPacket(mac)); err != nil {
		return fmt.Errorf("wake %s: %w", mac, err)
	}
	return nil
}

func wakeList(ctx context.Context, c *function.Call) (any, error) {
	text, err := os.ReadFile(c.String("maclist"))
	if err != nil {
		return nil, err
	}
	out := []any{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := wake(ctx, line, c.String("bcast"), c.Int("destport")); err != nil {
			return nil, err
		}
		out = append(out, line)
	}
	return out, nil
}

// wakeMatching trusts the grains only for the address: the packet sent there contains nothing else.
func (n network) wakeMatching(ctx context.Context, c *function.Call) (any, error) {
	ids, err := n.Resolve(c.String("tgt"), c.String("tgt_type"))
	if err != nil {
		return nil, err
	}
	woken := map[string]any{}
	for _, id := range ids {
		list := []any{}
		for _, mac := range hardwareAddresses(n.Grains(id)) {
			if err := wake(ctx, mac, c.String("bcast"), c.Int("destport")); err != nil {
				return nil, fmt.Errorf("%s: %w", id, err)
			}
			list = append(list, mac)
		}
		woken[string(id)] = list
	}
	return woken, nil
}

// hardwareAddresses returns the Ethernet addresses in a minion's grains, without that of the
// loopback interface.
func hardwareAddresses(grains map[string]any) []string {
	var list []string
	interfaces, _ := grains["hwaddr_interfaces"].(map[string]any)
	for _, v := range interfaces {
		text, _ := v.(string)
		if mac, err := parseMAC(text); err == nil && !bytes.Equal(mac, make([]byte, 6)) {
			list = append(list, text)
		}
	}
	return list
}
