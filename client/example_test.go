package client_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/brinebus/brine/client"
)

// Each return arrives as soon as its minion has finished.
func Example() {
	ctx := context.Background()
	conn, err := client.Connect(ctx, socket) // for example /var/run/salt/master/master.sock
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	job, err := conn.Run(ctx, client.Glob("web*"), client.Call("test.echo", "hello"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for r, err := range job.Returns(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(r.Minion, r.Status, r.Value)
	}
	// Output: web1 done hello
}

func ExampleConn_Login() {
	ctx := context.Background()
	conn, err := client.Connect(ctx, socket)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	_, err = conn.Login(ctx, client.Login{Backend: "sharedsecret", User: "ada", Password: "secret word"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = conn.Run(ctx, client.Glob("web1"), client.Call("cmd.run", "id"))
	fmt.Println(errors.Is(err, client.ErrDenied))
	// Output: true
}

func ExampleConn_Runner() {
	ctx := context.Background()
	conn, err := client.Connect(ctx, socket)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	up, err := conn.Runner(ctx, client.Call("manage.up"))
	fmt.Println(up, err)
	// Output: [web1] <nil>
}

// The credentials are a directory that 'salt-event creds' has written.
func ExampleCredentials() {
	ctx := context.Background()
	conn, err := client.Connect(ctx, "", client.Credentials(credentials))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	events, err := conn.Listen(ctx, client.ListenOptions{Tags: []string{"dash/"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer events.Close()
	if _, err := conn.Fire(ctx, client.Event{Tag: "dash/hello", Data: []byte(`{"n":1}`)}); err != nil {
		fmt.Println(err)
		return
	}
	e, err := events.Next(ctx)
	fmt.Println(e.Tag, e.From, err)
	// Output: dash/hello client:dash <nil>
}

// A program remembers the end of the journal, does something that fires an event, and misses
// nothing.
func ExampleConn_End() {
	ctx := context.Background()
	conn, err := client.Connect(ctx, socket)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	end, _, err := conn.End(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := conn.Fire(ctx, client.Event{Tag: "backup/done", Data: []byte(`{"files":3}`)}); err != nil {
		fmt.Println(err)
		return
	}
	events, err := conn.Listen(ctx, client.ListenOptions{Tags: []string{"backup/"}, FromSeq: end + 1, UntilEnd: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer events.Close()
	for e, err := range events.All(ctx) {
		fmt.Println(e.Tag, err)
	}
	// Output: backup/done <nil>
}

// The output of a command is reported while it runs.
func ExampleJob_Updates() {
	ctx := context.Background()
	conn, err := client.Connect(ctx, socket)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	job, err := conn.Run(ctx, client.Glob("web1"), client.Call("cmd.run", "echo building"), client.RunOptions{Output: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	for u, err := range job.Updates(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, o := range u.Output {
			fmt.Print(u.Minion, ": ", o.Text)
		}
		if u.Final() {
			fmt.Println(u.Minion, u.Status)
		}
	}
	// Output:
	// web1: building
	// web1 done
}
