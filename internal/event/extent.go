package event

import "time"

// Extent says what a store of events holds.
type Extent struct {
	First   uint64    `json:"first"` // the sequence of the oldest event
	Last    uint64    `json:"last"`  // and of the newest; First is Last+1 in an empty store
	Count   uint64    `json:"count"` // messages: a long event takes several
	Bytes   uint64    `json:"bytes"`
	Oldest  time.Time `json:"oldest,omitzero"`
	Newest  time.Time `json:"newest,omitzero"`
	Limit   int64     `json:"limit"`   // bytes; 0 is no limit
	Dropped uint64    `json:"dropped"` // messages that went by size, since the daemon began
	MaxAge  float64   `json:"max_age"` // seconds; 0 is no limit
	Readers int       `json:"readers"`
}
