// Package client lets a Go program run functions on minions, run runners of the master, and
// fire and receive events.
//
// # Connecting
//
// On the machine of a master or a minion a program connects through the daemon's Unix socket,
// and the kernel identifies its user:
//
//	conn, err := client.Connect(ctx, "/var/run/salt/master/master.sock")
//
// From another machine it connects over TLS, with credentials written by 'salt-event creds':
//
//	conn, err := client.Connect(ctx, "tls://salt.example.com:4506", client.Credentials("dashboard"))
//
// or, as a user of external_auth, with a login and the fingerprint of the master's key:
//
//	conn, err := client.Connect(ctx, "tls://salt.example.com:4506", client.Fingerprint("5e:11:..."))
//	session, err := conn.Login(ctx, client.Login{Backend: "pam", User: "ada", Password: secret})
//
// [Conn.Login] makes the connection that of a user of external_auth. For each request the
// master decides by its rules what the connection may do; this package decides nothing. A lost
// [Conn] is not restored: after [ErrLost] a program connects again, and a listener continues
// after [Listener.Position].
//
// # Requests
//
// Functions of minions: [Conn.Run] with the returns as they arrive, by [Job.Returns], or with
// each step, by [Job.Updates]; [Conn.Publish] and [Conn.Follow] to start a job without waiting,
// [Conn.RunAll] for several functions at once, [Conn.Preview] for the minions that a job would
// reach. Functions of the master: [Conn.Runner], [Conn.Wheel], and [Conn.Keys] and the other
// functions for keys.
//
// Events: [Conn.Fire] returns when they are stored. A [Listener] receives events from now on,
// from a time, from a sequence number, or from the position that the last listener with the
// same name has confirmed. [Conn.End] returns the end of the journal; [Conn.DeadLetters],
// [Conn.TakeDeadLetter], [Conn.Stat] and [Conn.Purge] offer what else salt-event can do.
//
// # Conventions
//
// Every call takes a context and returns when that ends. Results that arrive one by one are
// sequences to range over, and an error is the last element. Leaving the loop ends a [Job], but
// a [Listener] stays open until it is closed. Options are a struct whose zero value has the
// defaults; if several are given, the last one counts. Use [errors.Is] with [ErrDenied] and the
// others to distinguish errors; [Hint] says what the user can do. No error, and no printed
// [Login] or [Session], contains a password or a token. A [Conn] may be used by many goroutines
// at once, a [Job] and a [Listener] by one at a time.
//
// Results are decoded only on request: [Listener.NextLines], [Job.Lines] and [Result] return
// them as the daemon has written them, which is faster, and keeps the order of maps.
//
// The command-line tools are programs that use this package like any other: salt, salt-run,
// salt-cp, salt-event and salt-api, and salt-key over the network, send their requests by the
// functions here, which a test checks. There are two exceptions: completion of command lines in
// a shell, and salt-key on the master's machine, which changes the files of keys and informs
// the master who has done so. Stored logins, prompts for passwords, and reconnecting are left
// to the tools. This package is not for minions: there is no public package for what a minion
// sends to its master.
package client
