package broker

import (
	"slices"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/brinebus/brine/internal/bus"
)

// routePermissions are those of the routes between the members of a cluster. They limit which
// interest is told to the other members (Import) and which interest of theirs is taken (Export):
// without interest the server sends nothing over a route. So a flood of requests at one member
// costs the others nothing, and a member cannot subscribe to what goes on at another one, even
// if its own server has no such limits.
//
// The server does not check the subjects of messages that come in over a route: what a member
// with a server of its own making sends there must be judged by whoever reads it. Requests are,
// by the private inbox of the sender, which no other member learns.
func routePermissions() *server.RoutePermissions {
	return &server.RoutePermissions{
		Import: &server.SubjectPermission{Allow: slices.Clone(bus.RouteSubjects)},
		Export: &server.SubjectPermission{Allow: slices.Clone(bus.RouteSubjects)},
	}
}
