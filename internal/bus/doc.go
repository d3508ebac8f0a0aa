// Package bus is the map of a daemon's embedded server: the subjects, the roles of connections,
// which role may use which subject, and the one table of requests. Package rpc sends and
// answers requests; package broker is the server.
package bus
