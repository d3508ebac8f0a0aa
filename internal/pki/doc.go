// Package pki holds the identities of masters and minions: their key pairs as
// PEM files, fingerprints, signatures, the TLS certificates made from them, and
// the master's store of minion keys with its states pending, accepted, rejected
// and denied.
//
// A daemon is its key. A certificate is only the form in which TLS needs a key: it is made in
// memory, and only the key in it counts. The package knows nothing about connections, and other
// packages decide who may do what with an accepted key.
//
// # The key store
//
// The layout is Salt's: below pki_dir the directories minions, minions_pre, minions_rejected
// and minions_denied hold one PEM public key a file, named by the minion id. An id has at most
// one accepted and one pending key. It may have several refused keys, since anybody can connect
// with one more: the first is stored as ID, the next ones as ID#2, ID#3 and so on to ID#8. An
// id cannot contain "#", so these names never collide with another minion's.
//
// Files move between the directories by rename, under a lock that all processes share, so the
// daemon and salt-key may work at the same time, and a reader finds each key in the old state
// or in the new one.
package pki
