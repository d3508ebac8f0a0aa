package broker

import (
	"slices"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/brinebus/brine/internal/bus"
)

// routePermissions are the permissions of the routes between the members of a cluster. They
// limit which subscriptions are sent to the other members (Import) and which of theirs are
// accepted (Export): without a subscription the server sends nothing over a route. So a flood
// of requests at one member costs the others nothing, and a member cannot subscribe to the
// messages at another one, even if its own server has no such limits.
//
// The server does not check the subjects of messages that arrive over a route: what a member
// with a modified server sends there must be checked by its reader. Requests are checked by the
// private inbox of the sender, which no other member learns.
func routePermissions() *server.RoutePermissions {
	return &server.RoutePermissions{
		Import: &server.SubjectPermission{Allow: slices.Clone(bus.RouteSubjects)},
		Export: &server.SubjectPermission{Allow: slices.Clone(bus.RouteSubjects)},
	}
}
