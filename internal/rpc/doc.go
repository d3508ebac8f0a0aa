// Package rpc is how one asks a daemon over its bus: connections of clients, requests,
// and answers that are streams of messages, with bounds on what each who asks may have
// under way. Which operations there are, and who may ask for them, is for package bus.
//
// It has both halves, of who asks and who answers. It never links the NATS server, so that
// the command line tools start in milliseconds.
package rpc
