// Package pki holds the identities of masters and minions: their key pairs as
// PEM files, fingerprints, signatures, the TLS certificates made from them, and
// the master's store of minion keys with its states pending, accepted, rejected
// and denied.
//
// A daemon is its key. Certificates are only the form in which TLS wants to see
// a key: they are made in memory, and nothing in them but the key decides
// anything. The package knows nothing of connections, and who may do what with
// an accepted key is decided elsewhere.
//
// # The key store
//
// The layout is Salt's: below pki_dir the directories minions, minions_pre,
// minions_rejected and minions_denied hold one PEM public key a file, named by
// the minion id. An id has at most one accepted and one pending key. Keys that
// are refused may be several, since anybody can show up with one more: the first
// is stored as ID, the next ones as ID#2, ID#3 and so on to ID#8. An id cannot
// hold "#", so these names never meet another minion's.
//
// Files move between the directories by rename, under a lock that all processes
// share, so the daemon and salt-key may work at once and a reader finds each key
// in the old state or in the new one.
package pki
