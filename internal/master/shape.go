package master

import (
	"encoding/json"

	"brine/internal/bus"
	"brine/internal/protocol"
	"brine/internal/salt"
)

// shape gives a minion's events the forms that Salt's master gives them. A single
// one is wrapped together with the id of its sender; those of a list stand as
// they are, and with a pretag each is fired under its own tag and under the
// pretag's.
func shape(id salt.MinionID, f protocol.Fire) (protocol.Fire, error) {
	if f.Form == protocol.FormSingle {
		for i, e := range f.Events {
			b, err := json.Marshal(map[string]any{
				"id": id, "cmd": "_minion_event", "pretag": f.Pretag, "data": orNull(e.Data), "tag": e.Tag,
			})
			if err != nil {
				return f, bus.Errorf(bus.Usage, "event %q: %v", e.Tag, err)
			}
			f.Events[i].Data = b
		}
		return f, nil
	}
	if f.Pretag == nil || *f.Pretag == "" {
		return f, nil
	}
	var both []protocol.FireEvent
	for _, e := range f.Events {
		both = append(both, e, protocol.FireEvent{Tag: *f.Pretag + "/" + e.Tag, Data: e.Data})
	}
	f.Events = both
	return f, nil
}

func orNull(data json.RawMessage) json.RawMessage {
	if len(data) == 0 {
		return json.RawMessage("null")
	}
	return data
}
