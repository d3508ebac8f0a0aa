// Package sink copies events into files, databases and other services. Each rule selects events and
// a destination, and has its own position in the journal. The position moves only after the
// destination has stored the events before it: an unreachable destination stops only its own rule,
// and misses no event.
//
// If a destination supports a unique key, it also stores no event twice, see Event.Digest.
//
// The package does not know the bus: it reads events from a Source.
package sink
