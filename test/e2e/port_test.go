package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// ports are the loopback ports that scripts have been given.
var ports struct {
	sync.Mutex
	taken map[int]bool
}

// Ports are looked for below those that the kernel gives to outgoing
// connections, so that none of these takes one between our look and its use.
const (
	firstPort = 20000
	lastPort  = 31999
)

// freePort returns a port on which nobody listens, never the same one twice.
func freePort() (int, error) {
	ports.Lock()
	defer ports.Unlock()
	if ports.taken == nil {
		ports.taken = map[int]bool{}
	}
	for range 1000 {
		n := firstPort + rand.N(lastPort-firstPort+1)
		if ports.taken[n] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", n))
		if err != nil {
			continue
		}
		l.Close()
		ports.taken[n] = true
		return n, nil
	}
	return 0, fmt.Errorf("no free port between %d and %d", firstPort, lastPort)
}
