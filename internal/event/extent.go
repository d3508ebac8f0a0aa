package event

import "time"

// Extent describes the content of an event store.
type Extent struct {
	First   uint64    `json:"first"` // the sequence of the oldest event
	Last    uint64    `json:"last"`  // the sequence of the newest event; First is Last+1 in an empty store
	Count   uint64    `json:"count"` // messages: a long event takes several
	Bytes   uint64    `json:"bytes"`
	Oldest  time.Time `json:"oldest,omitzero"`
	Newest  time.Time `json:"newest,omitzero"`
	Limit   int64     `json:"limit"`   // bytes; 0 means no limit
	Dropped uint64    `json:"dropped"` // messages removed because of the size limit since the daemon started
	MaxAge  float64   `json:"max_age"` // seconds; 0 means no limit
	Readers int       `json:"readers"`
}
