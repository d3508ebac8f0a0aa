package port

import (
	"fmt"
	"net"
	"testing"
)

// TestNoPortTwice: what is reserved is nobody else's, and a program can listen there.
func TestNoPortTwice(t *testing.T) {
	mine := map[int]bool{}
	for range 200 {
		n := Free(t)
		if mine[n] {
			t.Fatalf("port %d is given twice", n)
		}
		mine[n] = true
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", n))
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if _, err := net.ListenPacket("udp4", fmt.Sprintf("127.0.0.1:%d", n)); err == nil {
			t.Fatalf("another process could reserve port %d", n)
		}
	}
}

// TestReleasedPortsReturn: whoever has released a port leaves it to others.
func TestReleasedPortsReturn(t *testing.T) {
	n, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	Release(n)
	udp, err := net.ListenPacket("udp4", fmt.Sprintf("127.0.0.1:%d", n))
	if err != nil {
		t.Fatal("it is reserved still:", err)
	}
	udp.Close()
}
