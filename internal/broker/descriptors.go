package broker

import (
	"log/slog"

	"github.com/brinebus/brine/internal/posix"
)

// descriptors is what the operating system's limit on open files leaves for the network. The
// rest is reserved for the daemon: the files of the journal, keys, local tools, programs that
// it runs.
type descriptors struct {
	limit       int
	connections int // of the network
	halfOpen    int // of those, not authenticated yet
	unaccepted  int // of those, waiting for their key to be accepted
	local       int // connections of ordinary users of this machine, of what is reserved
	apart       int // connections of accounts of this machine that log others in, beside what is reserved
}

const (
	// minReserve is what the daemon needs itself: some 60 for the journal, 20 for the bus and
	// its watches, twice that while it is opened again, and a hundred tools.
	minReserve = 256
	// maxReserve is always enough: ordinary local users have half of it at most.
	maxReserve = 4096
	// maxConnections is where memory becomes the limit, on a machine without a limit on files.
	maxConnections = 1 << 20
)

// share divides what a limit allows; apart is how many connections are for accounts of this machine that log
// others in.
func share(limit, apart int) descriptors {
	reserve := min(max(limit/4, minReserve), maxReserve)
	d := descriptors{limit: limit, connections: min(max(limit-reserve-apart, limit/4), maxConnections), local: reserve / 2, apart: apart}
	d.halfOpen = max(8, min(maxHalfOpen, d.connections/4))
	d.unaccepted = max(8, min(maxUnaccepted, d.connections/2))
	return d
}

// openFiles raises the limit on open files as far as the process may, and divides it.
func openFiles(log *slog.Logger, apart int) descriptors {
	limit, failed, err := posix.OpenFiles()
	if err != nil {
		log.Warn("the limit on open files is not known", "err", err)
		return share(1024, apart)
	}
	if failed != nil {
		log.Warn("the limit on open files is not raised", "limit", limit, "err", failed)
	}
	d := share(int(min(limit, 1<<30)), apart)
	log.Info("open files", "limit", d.limit, "connections", d.connections, "unaccepted", d.unaccepted, "half_open", d.halfOpen)
	if d.limit < 4*minReserve {
		log.Warn("the limit on open files is low: raise LimitNOFILE", "limit", d.limit)
	}
	return d
}
