package broker

import "github.com/brinebus/brine/internal/bus"

// Figures are the metrics at one moment.
type Figures struct {
	Connections   map[bus.Role]int
	SlowConsumers int64 // that were cut since the start
	Stalled       int64 // times that the server has made a sender wait for a reader
	Failed        bool  // the store cannot be written
}

// Figures returns the metrics. Roles without a connection are left out.
func (b *Broker) Figures() Figures {
	f := Figures{Connections: map[bus.Role]int{}, SlowConsumers: b.server.NumSlowConsumers(), Stalled: b.server.NumStalledClients(), Failed: b.health.Err() != nil}
	for _, i := range b.auth.all(nil) {
		f.Connections[i.Role]++
	}
	return f
}
