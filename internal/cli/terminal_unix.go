//go:build unix

package cli

import "golang.org/x/sys/unix"

// hideTyping stops the echo of a terminal until show is called. It does not use
// term.ReadPassword, which blocks while the echo is off: a read that has just begun could undo
// what Ctrl-C restores.
func hideTyping(fd int) (show func(), err error) {
	shown, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nil, err
	}
	hidden := *shown
	hidden.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(fd, setTermios, &hidden); err != nil {
		return nil, err
	}
	return func() { unix.IoctlSetTermios(fd, setTermios, shown) }, nil
}
