// Package outbox is store-and-forward between a minion and its master: what is for the
// master's journal, returns and events, waits on the minion's disk until the master has
// stored it.
//
// Each message is named by an epoch, new with each start of the minion, and a number.
// The master's end is the [Receiver], which remembers how far each epoch is stored: so a
// kill of either side at any moment loses nothing, and doubles nothing.
//
// It knows no function, no job and no target; what a message becomes in the journal is
// for an [Opener].
package outbox
