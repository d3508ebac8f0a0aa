// Package port chooses ports for the programs that tests start, which must know theirs
// before they listen. A server of the test itself listens on port 0 instead.
package port

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Ports are looked for below those that the kernel gives to outgoing connections and to
// whoever listens on port 0, so that none of these takes one between our look and its use.
const (
	first = 20000
	last  = 31999
)

// held are the ports of this process: of each its namesake of UDP, while the port itself is
// for the program.
var held struct {
	sync.Mutex
	udp map[int]net.PacketConn
}

// Reserve returns a port on which nobody listens. Whoever else reserves one, in this process
// or another, gets another until it is released, or this process ends.
func Reserve() (int, error) {
	held.Lock()
	defer held.Unlock()
	if held.udp == nil {
		held.udp = map[int]net.PacketConn{}
	}
	for range 1000 {
		n := first + rand.N(last-first+1)
		udp, err := net.ListenPacket("udp4", fmt.Sprintf("127.0.0.1:%d", n))
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", n))
		if err != nil {
			udp.Close()
			continue
		}
		l.Close()
		held.udp[n] = udp
		return n, nil
	}
	return 0, fmt.Errorf("no free port between %d and %d", first, last)
}

// Release lets others have a port.
func Release(n int) {
	held.Lock()
	defer held.Unlock()
	if udp := held.udp[n]; udp != nil {
		udp.Close()
		delete(held.udp, n)
	}
}

// Free returns a port that is the test's until its end.
func Free(t testing.TB) int {
	t.Helper()
	n, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Release(n) })
	return n
}
