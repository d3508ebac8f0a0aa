package client

import (
	"context"
	"path/filepath"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/target"
)

// Words returns the words of a kind with this prefix from the local daemon, with the rights of the
// user. After any error there are none.
func Words(ctx context.Context, env *cli.Env, c cli.Completion, kind protocol.WordKind, prefix string) []string {
	if !asksHere(env, c) {
		return nil
	}
	path, err := daemonSocket(env, c)
	if err != nil {
		return nil
	}
	conn, err := rpc.DialBySudo(path, env.Getenv("SUDO_USER"))
	if err != nil {
		return nil
	}
	defer conn.Close()
	var w protocol.Words
	if err := conn.Ask(ctx, protocol.OpComplete, protocol.Complete{Kind: kind, Prefix: prefix}, &w); err != nil {
		return nil
	}
	return w.Words
}

// asksHere reports whether the command line is for a daemon on this machine and for the local user:
// for another master, for example through a stored login, words from the local one would be wrong.
func asksHere(env *cli.Env, c cli.Completion) bool {
	if c.Opts.String("bus") == "minion" {
		return true
	}
	away, err := IsRemote(env, c.Opts)
	return !away && err == nil && c.Opts.String("auth") == "" && !c.Opts.Bool("make-token")
}

// daemonSocket returns the socket of the master, or with --bus that of the minion.
func daemonSocket(env *cli.Env, c cli.Completion) (string, error) {
	if c.Opts.String("bus") == "minion" {
		cfg, err := MinionConfig(env, c.Opts, nil)
		if err != nil {
			return "", err
		}
		return filepath.Join(cfg.SockDir, MinionSocket), nil
	}
	cfg, err := MasterConfig(env, c.Opts)
	if err != nil {
		return "", err
	}
	return filepath.Join(cfg.SockDir, MasterSocket), nil
}

// WordsInList is Words for a comma-separated list.
func WordsInList(ctx context.Context, env *cli.Env, c cli.Completion, kind protocol.WordKind) []string {
	before, last := c.Last()
	list := Words(ctx, env, c, kind, last)
	for i, w := range list {
		list[i] = before + w
	}
	return list
}

// TargetWords returns completions for TARGET: the names of nodegroups, or ids.
func TargetWords(ctx context.Context, env *cli.Env, c cli.Completion) []string {
	kind, err := TargetKind(c.Opts)
	switch {
	case err != nil:
		return nil
	case kind == target.Nodegroup:
		return Words(ctx, env, c, protocol.GroupWords, c.Prefix)
	case kind == target.List:
		return WordsInList(ctx, env, c, protocol.MinionWords)
	case kind == target.Glob, kind == target.Compound:
		return Words(ctx, env, c, protocol.MinionWords, c.Prefix)
	}
	return nil
}
