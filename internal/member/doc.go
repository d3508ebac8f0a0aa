// Package member says which masters are one system: who is a member, and how two of
// them come to know that of each other before either sends anything.
//
// A member is a master key that the shared signing key (master_sign) has signed, shown
// by whoever holds it in the handshake of a link. Nothing else is asked for, and nothing
// else helps: a minion's key, a master's key without a signature, and one that another
// system's signing key has signed are refused, and so is a key whose fingerprint is in
// the list of those that were removed. Both ends of a link judge by the same Rule.
//
// It knows neither what goes over a link nor who is connected.
package member
