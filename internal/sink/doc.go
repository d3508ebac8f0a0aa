// Package sink collects events into files, databases and other services. Each
// rule says which events go where, and has a position of its own in the journal,
// which moves on only when the destination has what came before: a destination
// that is away stops its own rule and no other, and misses nothing.
//
// Where a destination can hold a unique key nothing is there twice either, see
// Event.Digest.
//
// It does not know the bus: its events come from a Source.
package sink
