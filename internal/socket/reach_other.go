//go:build !linux

package socket

import (
	"fmt"

	"github.com/brinebus/brine/internal/salt"
)

// reach returns path if it fits into a socket address.
func reach(path string) (address string, done func(), err error) {
	if len(path) > maxPath {
		return "", nil, salt.WithHint(fmt.Errorf("the path of the socket %s is too long: this system takes %d bytes", path, maxPath), "set sock_dir to a shorter one")
	}
	return path, func() {}, nil
}
