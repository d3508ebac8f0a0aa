package daemon

import (
	"os"
	"os/signal"
	"syscall"
)

// Hangups returns a channel that gets each SIGHUP. Until stop is called, SIGHUP no longer ends the
// process.
func Hangups() (c <-chan os.Signal, stop func()) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGHUP)
	return ch, func() { signal.Stop(ch) }
}
