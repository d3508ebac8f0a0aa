package netlab

import (
	"testing"
)

// reaches pings once.
func reaches(h *Host, address string) bool {
	return h.Command("ip", "route", "get", address).Run() == nil &&
		h.Command("sh", "-c", "timeout 1 bash -c 'exec 3<>/dev/tcp/"+address+"/7' 2>&1 | grep -q refused").Run() == nil
}

func TestLab(t *testing.T) {
	t.Parallel()
	l := New(t)
	a, b := l.Host("a"), l.Host("b")
	l.Connect(a, b, []string{"10.77.1.1/24", "fd77:1::1/64"}, []string{"10.77.1.2/24", "fd77:1::2/64"})
	if !reaches(a, "10.77.1.2") || !reaches(b, "10.77.1.1") {
		t.Fatal("a cable, and no connection")
	}
	for _, d := range [][]string{{Incoming}, {Outgoing}, {Incoming, Outgoing}} {
		b.Cut(d...)
		if reaches(a, "10.77.1.2") || reaches(b, "10.77.1.1") {
			t.Errorf("%v is cut, and there is a connection", d)
		}
		b.Mend()
		if !reaches(a, "10.77.1.2") {
			t.Errorf("%v is mended, and there is no connection", d)
		}
	}
	b.SetNames("10.77.1.1 someone\n")
	if b.Command("getent", "hosts", "someone").Run() != nil || a.Command("getent", "hosts", "someone").Run() == nil {
		t.Error("a name is that of one host")
	}
}

func TestSwitch(t *testing.T) {
	t.Parallel()
	l := New(t)
	middle, a, b, c := l.Switch("s"), l.Host("a"), l.Host("b"), l.Host("c")
	l.Plug(a, middle, "10.77.2.1/24")
	l.Plug(b, middle, "10.77.2.2/24")
	l.Plug(c, middle, "10.77.2.3/24")
	if !reaches(a, "10.77.2.2") || !reaches(b, "10.77.2.3") {
		t.Fatal("hosts of one switch do not reach each other")
	}
	for _, d := range []string{Incoming, Outgoing} {
		a.CutPeer("10.77.2.2", d)
		if reaches(a, "10.77.2.2") || reaches(b, "10.77.2.1") {
			t.Errorf("%s is cut for one peer, and there is a connection", d)
		}
		if !reaches(a, "10.77.2.3") {
			t.Errorf("%s is cut for one peer, and there is no connection to the other one", d)
		}
		a.Mend()
	}
	b.Lose(99)
	if reaches(a, "10.77.2.2") {
		t.Error("nearly all packets are lost, and there is a connection")
	}
	b.Mend()
	if err := a.Queue("tbf rate 8kbit burst 2k latency 1s"); err != nil {
		t.Skipf("no queues here: %v", err)
	}
	a.Unqueue()
	if !reaches(a, "10.77.2.2") {
		t.Error("nothing is cut, and there is no connection")
	}
}
