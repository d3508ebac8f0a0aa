// Package cluster carries the messages between the masters of a cluster: which members are
// running, which minions are connected to which member, and requests from one member to
// another. It does not know what the requests are about, and stores nothing on disk.
//
// Messages go over the routes between the servers of the members, on subjects that no client
// may use (bus.MemberRoot). Every server with a route is trusted as a member: the sender of a
// message is the member that the message names.
package cluster
