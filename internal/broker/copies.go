package broker

import "github.com/nats-io/nats-server/v2/server"

// Copies returns how many copies each stream that this member leads is to have by its own settings.
func (c *Cluster) Copies() map[string]int {
	list := map[string]int{}
	info, err := c.b.server.Jsz(&server.JSzOptions{Account: account, Streams: true, Config: true})
	if err != nil {
		return nil // it is stopping
	}
	for _, a := range info.AccountDetails {
		for _, s := range a.Streams {
			if s.Cluster != nil && s.Config != nil && s.Cluster.Leader == c.r.opts.Rule.Card.Name {
				list[s.Name] = s.Config.Replicas
			}
		}
	}
	return list
}
