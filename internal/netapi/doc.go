// Package netapi serves HTTP: it passes requests of browsers and programs on to the master,
// each with the login that it presents. It decides nothing about permissions: the master
// checks, counts and records every request for that login, with the address that it came from.
//
// The requests, answers and errors are those of Salt's rest_cherrypy.
package netapi
