package serve

import (
	"context"
	"strconv"
	"strings"
	"time"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/protocol"
)

// profileTime is the length of a CPU profile unless --profile says otherwise, and answerTime how
// long the daemon may take in addition.
const (
	profileTime = 10 * time.Second
	answerTime  = 30 * time.Second
)

// Profile writes the profile that --profile requests, from the daemon with a socket in dir. The
// daemon answers only root and its own user.
func Profile(ctx context.Context, env *cli.Env, opts *urcli.Context, dir, name string) error {
	q, err := parseProfile(opts.String("profile"))
	if err != nil {
		return err
	}
	if env.StdoutTTY {
		return cli.Usagef("a profile is not text: send it into a file")
	}
	conn, err := client.Dial(env, dir, name)
	if err != nil {
		return err
	}
	defer conn.Close()
	takes := time.Duration(q.Seconds * float64(time.Second))
	ctx, cancel := context.WithTimeout(ctx, takes+answerTime)
	defer cancel()
	defer env.Waiting(ctx, takes, func() string { return "the profile" })()
	var data protocol.ProfileData
	if err := conn.Ask(ctx, protocol.OpProfile, q, &data); err != nil {
		return client.Error(err)
	}
	_, err = env.Stdout.Write(data.Data)
	return err
}

// parseProfile parses KIND or cpu=SECONDS; the daemon checks the kind.
func parseProfile(text string) (protocol.Profile, error) {
	q := protocol.Profile{Kind: text}
	kind, seconds, timed := strings.Cut(text, "=")
	switch {
	case timed && kind != "cpu":
		return q, cli.Usagef("--profile: only cpu takes a time")
	case timed:
		n, err := strconv.ParseFloat(seconds, 64)
		if err != nil || !(n > 0) {
			return q, cli.Usagef("--profile: %q is not a number of seconds", seconds)
		}
		return protocol.Profile{Kind: kind, Seconds: n}, nil
	case kind == "cpu":
		q.Seconds = profileTime.Seconds()
	}
	return q, nil
}
