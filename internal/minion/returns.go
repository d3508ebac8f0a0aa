package minion

import (
	"context"
	"fmt"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/returner"
	"github.com/brinebus/brine/internal/value"
)

// returners makes ready what takes the returns of a job beside the master: those of
// the configuration and those of its caller.
func (m *Minion) returners(names string, o returner.Options) (returner.Set, error) {
	return returner.Open(append(append([]string{}, m.cfg.Return...), names), o, &returner.Host{
		ID: m.id, Config: m.inForce(), Fire: m.fireReturn, Log: m.log, Custom: m.custom, ConfigDir: m.cfg.ConfigDir,
	})
}

// options are what the caller of a job says about its returners.
func options(e *job.Envelope) returner.Options {
	settings, _ := e.ReturnKwargs.V.(map[string]any)
	return returner.Options{Tag: e.ReturnTag, Config: e.ReturnConfig, Settings: settings}
}

// fireReturn puts an event for the master's bus into the outbox.
func (m *Minion) fireReturn(ctx context.Context, tag string, data any) error {
	raw, err := value.Encode(data)
	if err != nil {
		return fmt.Errorf("event %q: %w", tag, err)
	}
	f := protocol.Fire{Events: []protocol.FireEvent{{Tag: tag, Data: raw}}}
	if err := m.checkOutgoing(f); err != nil {
		return err
	}
	return m.boxes.Put(ctx, outbox.Outgoing{Op: protocol.OpFire, Body: f, Events: 1})
}

// giveBack hands the return to the master and to the returners. The job's own end
// is no reason to lose it. Delivered is closed when no master is waited for.
func (m *Minion) giveBack(e *job.Envelope, r job.Report, back returner.Set) (delivered <-chan struct{}) {
	ctx := context.WithoutCancel(m.ctx)
	ret := m.asReturn(e, r)
	back.Early(ctx, ret)
	delivered = m.finish(e, r)
	back.Late(ctx, ret)
	return delivered
}

func (m *Minion) asReturn(e *job.Envelope, r job.Report) returner.Return {
	return returner.Return{
		ID: m.id, JID: e.JID, Fun: e.Fun(), Args: e.Arguments(), Return: r.Return.V, Retcode: r.Retcode.V, Success: r.Success.V,
	}
}
