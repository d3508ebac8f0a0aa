package peer

import (
	"context"
	"errors"
	"io"

	"github.com/brinebus/brine/internal/mine"
	"github.com/brinebus/brine/internal/protocol"
)

// ChangeMine implements module.Mine.
func (c Client) ChangeMine(ctx context.Context, change mine.Change) error {
	stream, err := c.call("", protocol.OpMine, change)
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
func (c Client) ReadMine(ctx context.Context, q mine.Query) ([]mine.Item, error) {
	stream, err := c.call("", protocol.OpMineGet, q)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var items []mine.Item
	for {
		var i mine.Item
		err := stream.Decode(ctx, &i)
		if errors.Is(err, io.EOF) {
			return items, nil
		}
		if err != nil {
			return nil, meaning(err)
		}
		items = append(items, i)
	}
}
