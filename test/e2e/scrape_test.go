package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// served asks for a path behind a Unix socket, again and again, until the status and the
// text of the answer match.
func served(s *system, ts *testscript.TestScript, args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	want, err := regexp.Compile("(?m)" + args[2])
	if err != nil {
		return err
	}
	client := behind(ts.MkAbs(args[0]))
	text, found := "", false
	poll(func() bool {
		text, err = fetch(client, args[1])
		found = err == nil && want.MatchString(text)
		return found
	})
	if !found {
		return errors.Join(err, fmt.Errorf("%s has no %q:\n%s", args[1], args[2], text))
	}
	return nil
}

// behind returns a client of the server behind a Unix socket.
func behind(socket string) *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
}

func fetch(client *http.Client, path string) (string, error) {
	r, err := client.Get("http://daemon" + path)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return fmt.Sprintf("%d\n%s", r.StatusCode, body), err
}
