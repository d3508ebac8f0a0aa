// Package client lets a Go program run functions on minions, run runners of the master,
// and fire and hear events.
//
// # Connecting
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
// master for each request, by its rules; this package decides nothing. A [Conn] does not come back by itself:
// after [ErrLost] a program connects anew, and a listener goes on behind [Listener.Position].
//
// # Asking
//
// Functions of minions: [Conn.Run] and the returns as they arrive, by [Job.Returns], or each step, by
// [Job.Updates]; [Conn.Publish] and [Conn.Follow] where nobody waits, [Conn.RunAll] for several functions
// at once, [Conn.Preview] to see whom it would reach. Functions of the master: [Conn.Runner], [Conn.Wheel],
// and [Conn.Keys] with its kin.
//
// Events: [Conn.Fire] returns when they are stored. A [Listener] hears them from now on, from a moment, from a
// sequence number, or from where the last listener of a name has confirmed that it was done. [Conn.End] is
// where the journal ends; [Conn.DeadLetters], [Conn.Stat] and [Conn.Purge] are what salt-event has besides.
//
// # Habits
//
// Every call takes a context and returns when that ends. What comes piece by piece is a sequence to range
// over, and an error is the last thing that comes; who leaves the loop is done with a [Job], while a [Listener]
// stands until it is closed. Options are a struct whose zero value is usual.
// Errors are told apart by [errors.Is], with [ErrDenied] and the others, and [Hint] says what can be done.
// A [Conn] may be used by many goroutines at once, a [Job] and a [Listener] by one at a time.
//
// The command line tools and salt-api are made of the packages that this one is made of. They can ask
// for nothing that it cannot; a test sees to that. It is no client for minions: what a minion says to its
// master is in no public package.
package client
