// Package bus is the map of a daemon's embedded server: the subjects, the roles of
// those who speak there, who may use which subject, and the one table of what can be
// asked. How it is asked and answered is for package rpc; the server is package broker.
package bus
