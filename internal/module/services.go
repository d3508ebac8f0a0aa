package module

import (
	"context"
	"fmt"
	"io"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/function"
)

// Services are what functions need from their minion besides facts and paths: a Host has a
// *Services. Each type is declared where it is used. A service may be nil, for example in a call
// without a daemon; a function that needs it then fails with ErrUnavailable.
type Services struct {
	Beacons   Beacons
	Events    EventBus
	Facts     Refresher
	Files     *fileserver.Cache // of the file server
	Jobs      JobTable
	Keys      Keys
	Master    MasterConnection
	Mine      Mine
	Scheduler Scheduler

	Returners   func() []string // names of the returners, sorted
	BeaconKinds func() []string // what beacons can watch, sorted
	// Push sends a file to the master, which stores it under name, a relative path.
	Push   func(ctx context.Context, name string, content io.Reader) error
	Revoke func(context.Context) error // asks the master to delete this minion's key
}

// services returns those of the minion; all are nil if it has none.
func services(h *function.Host) *Services {
	if s, ok := h.Services.(*Services); ok {
		return s
	}
	return &Services{}
}

func eventBus(h *function.Host) (EventBus, error) {
	if s := services(h); s.Events != nil {
		return s.Events, nil
	}
	return nil, function.Unavailable("event bus")
}

func runningJobs(h *function.Host) (JobTable, error) {
	if s := services(h); s.Jobs != nil {
		return s.Jobs, nil
	}
	return nil, function.Unavailable("job table")
}

func masterConnection(h *function.Host) (MasterConnection, error) {
	if s := services(h); s.Master != nil {
		return s.Master, nil
	}
	return nil, function.Unavailable("connection to a master")
}

func fileServer(h *function.Host) (*fileserver.Cache, error) {
	if s := services(h); s.Files != nil {
		return s.Files, nil
	}
	return nil, function.Unavailable("file server")
}

func mineOf(h *function.Host) (Mine, error) {
	if s := services(h); s.Mine != nil {
		return s.Mine, nil
	}
	return nil, fmt.Errorf("the mine is with the master, and there is no connection to one: %w", function.ErrUnavailable)
}

func scheduleOf(h *function.Host) (Scheduler, error) {
	if s := services(h); s.Scheduler != nil {
		return s.Scheduler, nil
	}
	return nil, function.Unavailable("schedule")
}

// returnerNames returns the names of the returners.
func returnerNames(h *function.Host) []string {
	if s := services(h); s.Returners != nil {
		return s.Returners()
	}
	return nil
}
