// Package lease decides which member of a cluster does what only one of them may do at a time.
// Each member renews its entry in a shared table. Locks are entries of the same table, and hold as
// long as the member that has taken them renews. A member that cannot renew stops by itself,
// before another one may take its locks.
//
// It does not know what the locks are for, and stores nothing about it.
package lease
