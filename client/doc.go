// Package client lets a Go program run functions on minions, run runners of the master,
// and fire and hear events.
//
// On the machine of a master or a minion a program connects through the daemon's Unix socket,
// and the kernel says who it is:
//
//	conn, err := client.Connect(ctx, "/var/run/salt/master/master.sock")
//
// From elsewhere it connects over TLS, with credentials that 'salt-event creds' has written:
//
//	conn, err := client.Connect(ctx, "tls://salt.example.com:4506", client.Credentials("dashboard"))
//
// or, as a user of external_auth, with a login and the fingerprint of the master's key:
//
//	conn, err := client.Connect(ctx, "tls://salt.example.com:4506", client.Fingerprint("5e:11:..."))
//	session, err := conn.Login(ctx, client.Login{Backend: "pam", User: "ada", Password: secret})
//
// [Conn.Login] makes the connection that of a user of external_auth. What a connection may do is decided by the
// master for each request, by its rules; this package decides nothing.
//
// Every call takes a context and returns when that ends. Errors are told apart by
// [errors.Is], with [ErrDenied] and the others. A [Conn] may be used by many goroutines at
// once, a [Job] and a [Listener] by one at a time.
//
// It is no client for minions: what a minion says to its master is in no public package.
package client
