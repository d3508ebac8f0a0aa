package module

import (
	"context"
	"encoding/hex"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/function"
)

// socketLine is one socket of /proc/net.
type socketLine struct {
	proto         string
	local, remote string
	localPort     int64
	remotePort    int64
	state         string
	uid           string
	inode         string
}

// tcpStates are those of the kernel, by number.
var tcpStates = []string{"", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING"}

// openSockets returns the sockets of these protocols: tcp, tcp6, udp or udp6.
func openSockets(c *function.Call, protocols ...string) (all []socketLine) {
	for _, proto := range protocols {
		text, _ := os.ReadFile(c.Host.Path("/proc/net/" + proto)) // a machine without IPv6 has no such file
		for line := range strings.Lines(string(text)) {
			if s, ok := parseSocket(proto, line); ok {
				all = append(all, s)
			}
		}
	}
	return all
}

func parseSocket(proto, line string) (s socketLine, ok bool) {
	f := strings.Fields(line)
	if len(f) < 10 || !strings.HasSuffix(f[0], ":") {
		return s, false
	}
	s.proto, s.uid, s.inode = proto, f[7], f[9]
	var okLocal, okRemote bool
	s.local, s.localPort, okLocal = parseEnd(f[1])
	s.remote, s.remotePort, okRemote = parseEnd(f[2])
	n, err := strconv.ParseUint(f[3], 16, 8)
	if strings.HasPrefix(proto, "tcp") && err == nil && int(n) < len(tcpStates) {
		s.state = tcpStates[n]
	}
	return s, okLocal && okRemote && err == nil
}

// parseEnd parses an address and a port as the kernel writes them: words of four bytes in the byte
// order of the machine, which is little-endian on all supported ones.
func parseEnd(text string) (addr string, port int64, ok bool) {
	host, number, found := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	port, errPort := strconv.ParseInt(number, 16, 32)
	if !found || err != nil || errPort != nil || len(raw) != 4 && len(raw) != 16 {
		return "", 0, false
	}
	for i := 0; i < len(raw); i += 4 {
		slices.Reverse(raw[i : i+4])
	}
	return net.IP(raw).String(), port, true
}

// activeTCP returns the established TCP connections, numbered as in Salt.
func activeTCP(_ context.Context, c *function.Call) (any, error) {
	all := map[string]any{}
	for _, s := range openSockets(c, "tcp", "tcp6") {
		if s.state == "ESTABLISHED" {
			all[strconv.Itoa(len(all))] = map[string]any{"local_addr": s.local, "local_port": s.localPort, "remote_addr": s.remote, "remote_port": s.remotePort}
		}
	}
	return all, nil
}

func netstat(_ context.Context, c *function.Call) (any, error) {
	list := []any{}
	for _, s := range openSockets(c, "tcp", "tcp6", "udp", "udp6") {
		one := map[string]any{"proto": s.proto, "user": s.uid, "inode": s.inode,
			"local-address": net.JoinHostPort(s.local, strconv.FormatInt(s.localPort, 10)), "remote-address": net.JoinHostPort(s.remote, strconv.FormatInt(s.remotePort, 10))}
		if s.state != "" {
			one["state"] = s.state
		}
		list = append(list, one)
	}
	return list, nil
}

// hostArgument returns the argument host, which must not look like an option.
func hostArgument(c *function.Call) (string, error) {
	host := c.String("host")
	if !regexp.MustCompile(`^[0-9A-Za-z_:][0-9A-Za-z_.:%-]*$`).MatchString(host) {
		return "", function.Invalid("%q is neither a name nor an address", host)
	}
	return host, nil
}

func networkDig(ctx context.Context, c *function.Call) (any, error) {
	host, err := hostArgument(c)
	if err != nil {
		return nil, err
	}
	return output(ctx, "dig", host)
}

func networkTraceroute(ctx context.Context, c *function.Call) (any, error) {
	host, err := hostArgument(c)
	if err != nil {
		return nil, err
	}
	text, err := output(ctx, "traceroute", host)
	if err != nil {
		return nil, err
	}
	return parseHops(text), nil
}

// parseHops parses the output of traceroute: number, name, address, and up to three times.
func parseHops(text string) []any {
	hops := []any{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || strings.Trim(f[0], "0123456789") != "" {
			continue
		}
		hop := map[string]any{"count": f[0], "hostname": f[1], "ip": nil}
		if len(f) > 2 && strings.HasPrefix(f[2], "(") {
			hop["ip"] = strings.Trim(f[2], "()")
		}
		n := 0
		for i, word := range f {
			if i > 0 && word == "ms" && n < 3 {
				n++
				hop["ms"+strconv.Itoa(n)] = f[i-1]
			}
		}
		hops = append(hops, hop)
	}
	return hops
}
