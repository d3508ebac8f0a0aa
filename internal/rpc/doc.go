// Package rpc sends requests to a daemon over its bus, and serves them: connections of clients,
// requests, and answers that are streams of messages, with limits of what each sender may have
// under way. Package bus says which operations exist, and who may use them.
//
// It has both sides, client and server. It never links the NATS server, so that the
// command-line tools start in milliseconds.
package rpc
