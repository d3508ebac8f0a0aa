// Package broker is the embedded NATS server of both daemons: its listener, its limits, which
// peers are accepted in which role, and the local socket for command-line tools.
//
// It is the only importer of the NATS server. It decides nothing about keys or users: the
// daemon that starts it says who a peer is (Admit), and package bus says what each role may do.
package broker
