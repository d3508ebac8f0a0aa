package peer

import (
	"context"
	"errors"
	"io"

	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/value"
)

// ChangeMine implements module.Mine.
func (c Client) ChangeMine(ctx context.Context, change module.MineChange) error {
	q := protocol.MineChange{Clear: change.Clear, Delete: change.Delete}
	for name, e := range change.Put {
		if q.Put == nil {
			q.Put = map[string]protocol.MineEntry{}
		}
		q.Put[name] = protocol.MineEntry{Data: value.Value{V: e.Data}, Allow: e.Allow, AllowType: e.AllowType}
	}
	stream, err := c.call("", protocol.OpMine, q)
	if err != nil {
		return err
	}
	defer stream.Close()
	if _, err := stream.Next(ctx); !errors.Is(err, io.EOF) {
		return meaning(err)
	}
	return nil
}

// ReadMine implements module.Mine.
func (c Client) ReadMine(ctx context.Context, q module.MineQuery) ([]module.MineItem, error) {
	stream, err := c.call("", protocol.OpMineGet, protocol.MineGet{Target: q.Target, TargetType: q.TargetType, Names: q.Names})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var items []module.MineItem
	for {
		var i protocol.MineItem
		err := stream.Decode(ctx, &i)
		if errors.Is(err, io.EOF) {
			return items, nil
		}
		if err != nil {
			return nil, meaning(err)
		}
		items = append(items, module.MineItem{ID: i.ID, Name: i.Name, Data: i.Data.V})
	}
}
