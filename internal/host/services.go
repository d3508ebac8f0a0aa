package host

import (
	"context"
	"fmt"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/forwarder"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
)

// keys implements module.Keys: the minion's own, and that of the master of the uplink, or of
// the first connected one for nil.
type keys struct {
	h *Host
	u *upstream.Uplink
}

// Fingerprint implements module.Keys.
func (k keys) Fingerprint() string { return k.h.Key }

// MasterFingerprint implements module.Keys.
func (k keys) MasterFingerprint() string {
	s := k.h.Masters.Session()
	if k.u != nil {
		if own := k.u.Session(); own != nil {
			s = own
		}
	}
	if s == nil {
		return ""
	}
	return s.Master.SHA256()
}

// events implements module.EventBus.
type events struct{ to *forwarder.Forwarder }

// Fire implements module.EventBus.
func (e events) Fire(ctx context.Context, tag string, data any) error {
	raw, err := value.Encode(data)
	if err != nil {
		return fmt.Errorf("event %q: %w", tag, err)
	}
	_, err = e.to.Fire(ctx, protocol.Fire{Events: []event.Item{{Tag: tag, Data: raw}}}, forwarder.Source{Check: event.CheckTag})
	return refusedByMaster(err)
}

// FireMaster implements module.EventBus.
func (e events) FireMaster(ctx context.Context, list ...module.Event) (module.Outcomes, error) {
	outcomes := module.Outcomes{}
	for _, one := range list {
		f, err := single(one)
		if err != nil {
			return nil, err
		}
		fired, err := e.to.FireMaster(ctx, f, "")
		if err != nil {
			return nil, refusedByMaster(err)
		}
		for _, m := range fired.Masters {
			outcomes.Add(m.Master, m.Outcome == protocol.Stored)
		}
	}
	return outcomes, nil
}

// refusedByMaster marks a refusal for package function, which does not know the bus.
func refusedByMaster(err error) error {
	if rpc.CodeOf(err) == rpc.Denied {
		return fmt.Errorf("%w: %w", function.ErrRefused, err)
	}
	return err
}

// single is one event in Salt's single form.
func single(e module.Event) (protocol.Fire, error) {
	data, err := value.Encode(e.Data)
	if err != nil {
		return protocol.Fire{}, fmt.Errorf("event %q: %w", e.Tag, err)
	}
	f := protocol.Fire{Form: protocol.FormSingle, Events: []event.Item{{Tag: e.Tag, Data: data}}}
	if e.Pretag != "" {
		f.Pretag = &e.Pretag
	}
	return f, nil
}

// masterConnection implements module.MasterConnection.
type masterConnection struct{ masters *upstream.Uplinks }

// Masters implements module.MasterConnection.
func (l masterConnection) Masters() []string {
	var names []string
	for _, u := range l.masters.All() {
		if s := u.Session(); s != nil {
			names = append(names, s.Name)
		}
	}
	return names
}

// Ping implements module.MasterConnection.
func (l masterConnection) Ping(ctx context.Context, master string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, u := range l.masters.All() {
		if s := u.Session(); s != nil && (master == "" || s.Name == master) {
			return s.NC.FlushWithContext(ctx)
		}
	}
	return upstream.ErrNoMaster
}
