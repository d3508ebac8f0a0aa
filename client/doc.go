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
// after [ErrLost] a program connects again, and a listener goes on behind [Listener.Position].
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
// Of several the last counts. Errors are told apart by [errors.Is], with [ErrDenied] and the others, and [Hint]
// says what can be done. No error has a password or a token, nor has what is printed of a [Login] or a [Session].
// A [Conn] may be used by many goroutines at once, a [Job] and a [Listener] by one at a time.
//
// What comes is taken apart only where that is asked for: [Listener.NextLines], [Job.Lines] and [Result] have it as the
// daemon has written it, which is faster, and keeps the order of maps.
//
// Our own tools are programs of this package like any other: whatever salt, salt-run, salt-cp, salt-event and salt-api ask
// of a master, and salt-key of one over the network, is asked for by the functions here; a test sees to that. Two things
// they have besides. The words with which a shell completes a command line are asked for by the tool itself: whoever
// completes a command line asks the tool. And salt-key, which changes the files of keys, tells the master who does. What is
// for people at a terminal stays with the tools: a login that is kept, a password that is asked for, coming back by itself.
// This is not a client for minions: what a minion says to its master is in no public package.
package client
