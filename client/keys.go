package client

import "context"

// Keys are the ids of the minions whose keys the master has, by the state of the key.
type Keys struct {
	Accepted, Pending, Rejected, Denied []string
}

// Keys lists the keys of minions. It needs the permission for the wheel function key.list_all.
func (c *Conn) Keys(ctx context.Context) (Keys, error) {
	v, err := c.Wheel(ctx, Call("key.list_all"))
	if err != nil {
		return Keys{}, err
	}
	m, _ := v.(map[string]any)
	return Keys{Accepted: ids(m["minions"]), Pending: ids(m["minions_pre"]), Rejected: ids(m["minions_rejected"]), Denied: ids(m["minions_denied"])}, nil
}

// AcceptKey accepts the pending keys whose ids match a shell pattern, and returns their ids.
func (c *Conn) AcceptKey(ctx context.Context, match string) ([]string, error) {
	return c.key(ctx, "key.accept", "minions", match)
}

// RejectKey rejects the pending keys whose ids match.
func (c *Conn) RejectKey(ctx context.Context, match string) ([]string, error) {
	return c.key(ctx, "key.reject", "minions_rejected", match)
}

// DeleteKey deletes the keys whose ids match, whatever their state, and ends their connections.
func (c *Conn) DeleteKey(ctx context.Context, match string) error {
	_, err := c.Wheel(ctx, Call("key.delete", match))
	return err
}

func (c *Conn) key(ctx context.Context, function, list, match string) ([]string, error) {
	v, err := c.Wheel(ctx, Call(function, match))
	m, _ := v.(map[string]any)
	return ids(m[list]), err
}

func ids(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, id := range list {
		if text, ok := id.(string); ok {
			out = append(out, text)
		}
	}
	return out
}
