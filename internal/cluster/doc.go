// Package cluster is what the masters of a cluster tell each other: which of them is there, which
// minions are connected to which, and requests from one to another. It does not know what the
// requests are about, and keeps nothing on disk.
//
// Messages go over the routes between the servers of the members, on subjects that no client may
// use (bus.MemberRoot). Whoever has a route is trusted as a member: which member has sent a
// message is what the message says.
package cluster
