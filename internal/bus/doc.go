// Package bus is the way to talk over a daemon's embedded server: the subjects,
// who may use which (the one permission table, Table), connections of clients,
// and requests whose answers are streams.
//
// It is the client's half. It never links the NATS server, so that the command
// line tools start in milliseconds; the server is package broker.
package bus
