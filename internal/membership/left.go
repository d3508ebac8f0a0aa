package membership

import (
	"context"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/journal"
)

// ShowLeft shows to listeners of a single master what it has kept of the journals of other masters,
// since it was a member of a cluster. dir is the directory of its journal.
func ShowLeft(ctx context.Context, b *broker.Broker, events *eventbus.Bus, dir string) error {
	list, err := journal.Mirrors(ctx, b.Conn(), b.Store())
	if err != nil || len(list) == 0 {
		return err
	}
	own, err := journal.Name(dir)
	if err == nil {
		showMirrors(events, own, list)
	}
	return err
}

// showMirrors shows mirrors that are left, if there are any, beside the journal with the name own.
func showMirrors(events *eventbus.Bus, own string, list []*journal.Mirror) {
	if len(list) == 0 {
		return
	}
	events.SetMirrors(own, func(string) bool { return false })
	for _, one := range list {
		events.AddMirror(one)
	}
}
