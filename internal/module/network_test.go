package module

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/test/port"
)

func TestNetworkAddresses(t *testing.T) {
	for _, tt := range []struct {
		function string
		args     []any
		want     any
	}{
		{"network.calc_net", []any{"172.17.0.5", "255.255.255.240"}, "172.17.0.0/28"},
		{"network.calc_net", []any{"172.17.0.5/16"}, "172.17.0.0/16"},
		{"network.calc_net", []any{"2a02:f6e:a000:80:84d8::5/80"}, "2a02:f6e:a000:80:84d8::/80"},
		{"network.calc_net", []any{"10.0.0.1", int64(8)}, "10.0.0.0/8"},
		{"network.ip_in_subnet", []any{"172.17.0.4", "172.16.0.0/12"}, true},
		{"network.ip_in_subnet", []any{"172.32.0.4", "172.16.0.0/12"}, false},
		{"network.ip_in_subnet", []any{"::1", "172.16.0.0/12"}, false},
		{"network.is_loopback", []any{"127.0.0.5"}, true},
		{"network.is_loopback", []any{"10.0.0.5"}, false},
		{"network.is_private", []any{"10.0.0.5"}, true},
		{"network.is_private", []any{"9.9.9.9"}, false},
		{"network.is_private", []any{"fd00::1"}, true},
		{"network.reverse_ip", []any{"127.0.0.1"}, "1.0.0.127.in-addr.arpa"},
		{"network.reverse_ip", []any{"2001:db8::1"}, "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"},
		{"network.in_subnet", []any{"127.0.0.0/8"}, true},
		{"network.in_subnet", []any{"240.0.0.0/8"}, false},
		{"network.interface_ip", []any{"lo"}, "127.0.0.1"},
		{"network.hw_addr", []any{"lo"}, "00:00:00:00:00:00"},
		{"network.ip_addrs", []any{"lo"}, []any{}},
		{"network.ip_addrs", []any{"lo", true, "127.0.0.0/8"}, []any{"127.0.0.1"}},
		{"network.ip_addrs", []any{"lo", true, nil, "public"}, []any{}},
		{"network.subnets", []any{"lo"}, []any{}},
		{"network.subnets6", []any{"lo"}, []any{}},
	} {
		same(t, tt.function+repr(tt.args), good(t, nil, tt.function, nil, tt.args...), tt.want)
	}
	for function, args := range map[string][]any{
		"network.calc_net":     {"10.0.0.0", "255.0.255.0"},
		"network.ip_in_subnet": {"10.0.0.0", "x"},
		"network.is_private":   {"localhost"},
		"network.reverse_ip":   {"1.2.3"},
		"network.in_subnet":    {"10.0.0.0"},
	} {
		bad(t, nil, function, "is not a", nil, args...)
	}
	bad(t, nil, "network.interface", `there is no interface "nosuch"`, nil, "nosuch")
	bad(t, nil, "network.ip_addrs", `there is no interface "nosuch"`, nil, "nosuch")
	bad(t, nil, "network.ip_addrs", "public or private", map[string]any{"type": "x"})
}

func TestNetworkInterfaces(t *testing.T) {
	lo, ok := good(t, nil, "network.interfaces", nil).(map[string]any)["lo"].(map[string]any)
	if !ok || lo["up"] != true {
		t.Fatalf("lo = %v", lo)
	}
	v4 := lo["inet"].([]any)
	same(t, "address of lo", v4[0], map[string]any{"address": "127.0.0.1", "netmask": "255.0.0.0", "broadcast": "127.255.255.255", "label": "lo"})
	same(t, "interface", good(t, nil, "network.interface", nil, "lo"), v4)
	good(t, nil, "network.ip_addrs6", nil)
	if all := good(t, nil, "network.routes", nil).([]any); len(all) < len(good(t, nil, "network.default_route", nil).([]any)) {
		t.Errorf("routes = %v", all)
	}
}

func TestNetworkConnects(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	open := netip.MustParseAddrPort(l.Addr().String()).Port()
	if got := good(t, nil, "network.connect", nil, "127.0.0.1", int64(open)).(map[string]any); got["result"] != true {
		t.Errorf("connect = %v", got)
	}
	l.Close()
	r := run(t, nil, "network.connect", nil, "127.0.0.1", strconv.Itoa(port.Free(t)))
	if r.Return.(map[string]any)["result"] != false || r.Retcode != 1 || r.Err != nil {
		t.Errorf("connect to nothing = %+v", r)
	}
}

func TestNetworkPing(t *testing.T) {
	fakeProgram(t, "ping", "echo '4 packets transmitted'; exit ${PING_CODE:-0}")
	same(t, "ping", good(t, nil, "network.ping", map[string]any{"timeout": 3}, "-evil"), "4 packets transmitted")
	wantCalls(t, "ping", "<ping><-c><4><-W><3><--><-evil>")
	t.Setenv("PING_CODE", "1")
	same(t, "ping boolean", good(t, nil, "network.ping", map[string]any{"return_boolean": true}, "web1"), false)
	if r := run(t, nil, "network.ping", nil, "web1"); r.Retcode != 1 {
		t.Errorf("ping = %+v", r)
	}
}

func TestNetworkNames(t *testing.T) {
	host := &function.Host{Data: minionData{grains: map[string]any{"fqdn": "web1.example.com"}}}
	same(t, "get_fqdn", good(t, host, "network.get_fqdn", nil), "web1.example.com")
	if name := good(t, nil, "network.get_hostname", nil); name != good(t, nil, "network.get_fqdn", nil) || name == "" {
		t.Errorf("get_hostname = %q", name)
	}
}

func TestRouteFields(t *testing.T) {
	if got := hexAddress("0100007F"); got != "127.0.0.1" {
		t.Errorf("hexAddress = %q", got)
	}
	if got := hexAddress("Gateway"); got != "" {
		t.Errorf("hexAddress of the header = %q", got)
	}
	if got := routeFlags(3); got != "UG" {
		t.Errorf("routeFlags(3) = %q", got)
	}
	if got := []string{scope(netip.MustParseAddr("::1")), scope(netip.MustParseAddr("fe80::1")), scope(netip.MustParseAddr("2001:db8::1"))}; !slices.Equal(got, []string{"host", "link", "global"}) {
		t.Errorf("scopes = %v", got)
	}
}
