// Package netapi serves HTTP: the requests of browsers and programs become requests to
// the master, each in the name of the login that it shows. It decides nothing about who
// may do what; the master judges, counts and records every request as that of the login,
// with the address that it came from.
//
// The requests, answers and errors are those of Salt's rest_cherrypy.
package netapi
