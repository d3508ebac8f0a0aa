package protocol

import "time"

// Member is a master of a cluster, as minions are told about it.
type Member struct {
	Name    string `json:"name"`
	Address string `json:"address"`           // host:port, for minions
	Key     string `json:"key,omitempty"`     // the fingerprint of the master's key, see pki.PublicKey.SHA256; "" if it is not known
	Running bool   `json:"running,omitempty"` // now
}

// MaxMembers is how many members a minion remembers.
const MaxMembers = 16

// Cluster is what a master of a cluster tells a minion about the cluster.
type Cluster struct {
	Members []Member `json:"members"`
	// Spread is over how long the minions of a lost member distribute their first attempts at
	// another one: so the members that remain can serve each of them.
	Spread time.Duration `json:"spread,omitempty"`
}

// Control is a message of the master on the bus.ControlSubject of a minion's connection.
type Control struct {
	Cluster *Cluster `json:"cluster,omitempty"` // it has changed
	// Leave means that the master stops: the minion connects to another member, and then ends
	// this connection.
	Leave bool `json:"leave,omitempty"`
}
