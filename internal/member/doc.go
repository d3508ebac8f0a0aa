// Package member decides which masters are one system: who is a member, and how two of them
// verify that before either sends anything.
//
// A member is a master key that the shared signing key (master_sign) has signed, proved by its
// holder in the handshake of a link. Nothing else counts: a minion's key, a master's key
// without a signature, and one signed by another system's signing key are refused, and so is a
// key whose fingerprint is in the list of removed ones. Both ends of a link use the same Rule.
//
// It does not know what is sent over a link, or who is connected.
package member
