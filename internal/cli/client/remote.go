package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/yamlfile"
)

// keptFile is where 'salt login' keeps a login, below the home directory.
const keptFile = "~/.config/salt/cli"

// kept is a login at a master on another machine.
type kept struct {
	Master      string // tls://HOST:PORT
	Fingerprint string // of its key
	Token       string
}

// MasterFlags are the options by which a tool reaches a master on another machine.
func MasterFlags() []urcli.Flag {
	const group = "Connection"
	return []urcli.Flag{
		&urcli.StringFlag{Category: group, Name: "master", Usage: "reach the master at `URL`, tls://HOST:PORT, by the login that 'salt login' has kept, or by --auth"},
		FingerprintFlag(),
		&urcli.StringFlag{Category: group, Name: "creds", EnvVars: []string{"SALT_CREDS"},
			Usage: "reach the master over the network, with the credentials of 'salt-event creds' in `DIR`"},
	}
}

// FingerprintFlag says which key the master must have.
func FingerprintFlag() urcli.Flag {
	return &urcli.StringFlag{Category: "Connection", Name: "fingerprint", Usage: "the key of the master at that URL has the `FINGERPRINT` that 'salt-key -F master' shows there"}
}

// remote is the master on another machine that the options, or else the login that is kept,
// name; nil is that of this machine.
func remote(env *cli.Env, opts *urcli.Context) (*kept, error) {
	given := opts.String("master")
	switch {
	case opts.String("creds") != "" && given != "":
		return nil, cli.Usagef("--creds and --master do not go together: credentials name their master")
	case given == "" && opts.String("fingerprint") != "":
		return nil, cli.Usagef("--fingerprint is about the master that --master names")
	case opts.String("creds") != "", given == "" && env.ConfigDir(opts) != cli.DefaultConfigDir:
		return nil, nil
	}
	k, err := readKept(env)
	if given == "" || err != nil {
		return k, err
	}
	url, err := rpc.MasterURL(given)
	if err != nil {
		return nil, cli.Fail(cli.Usage, err)
	}
	if k == nil || k.Master != url {
		k = &kept{Master: url}
	}
	if f := opts.String("fingerprint"); f != "" && f != k.Fingerprint {
		k = &kept{Master: url, Fingerprint: f} // the token is for the other key
	}
	if k.Fingerprint == "" {
		return nil, cli.Fail(cli.NoPermission, salt.WithHint(fmt.Errorf("the master at %s is not known: nobody has logged in to it here", url),
			"salt login "+url+", or name the fingerprint of its key by --fingerprint"))
	}
	return k, nil
}

// IsRemote says whether the options, or the login that is kept, name a master on another machine.
func IsRemote(env *cli.Env, opts *urcli.Context) (bool, error) {
	k, err := remote(env, opts)
	return k != nil || opts.String("creds") != "", err
}

// keptPath is "" where there is no home directory.
func keptPath(env *cli.Env) string {
	if env.Getenv("HOME") == "" {
		return ""
	}
	return inHome(env, keptFile)
}

// readKept reads the login that is kept, nil for none. What others can read they may have
// used, so it is refused.
func readKept(env *cli.Env) (*kept, error) {
	path := keptPath(env)
	if path == "" {
		return nil, nil
	}
	text, err := readPrivate(path, "login")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n, err := yamlfile.Parse(path, text)
	if err != nil {
		return nil, err
	}
	var k kept
	m, _ := yamlfile.Value(n).(map[string]any)
	k.Master, _ = m["master"].(string)
	k.Fingerprint, _ = m["fingerprint"].(string)
	k.Token, _ = m["token"].(string)
	if k.Master, err = rpc.MasterURL(k.Master); err != nil || k.Fingerprint == "" {
		return nil, salt.WithHint(fmt.Errorf("read login %s: it names no master with its fingerprint", path), "salt logout, and salt login anew")
	}
	return &k, nil
}

func (k *kept) write(path string) error {
	text := fmt.Appendf(nil, "master: %q\nfingerprint: %q\ntoken: %q\n", k.Master, k.Fingerprint, k.Token)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	if err := atomicfile.Write(path, text, 0o600); err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	return nil
}

// Connect connects to the master that the options name, as who they say: over the local
// socket, with credentials, or as a user of external_auth on another machine.
func Connect(ctx context.Context, env *cli.Env, opts *urcli.Context, cfg *config.Master, login *Login) (*rpc.Conn, error) {
	k, err := remote(env, opts)
	if err != nil {
		return nil, err
	}
	if k != nil {
		return k.connect(ctx, env, login)
	}
	conn, err := dialMaster(env, opts, cfg)
	if err != nil {
		return nil, err
	}
	if err := login.do(ctx, conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// connect logs in at the master: as the options say or, where they say nothing, by the token.
func (k *kept) connect(ctx context.Context, env *cli.Env, login *Login) (*rpc.Conn, error) {
	if login == nil && k.Token == "" {
		return nil, cli.Fail(cli.NoPermission, salt.WithHint(fmt.Errorf("nobody is logged in to the master at %s", k.Master), "salt login "+k.Master+", or log in for this command by --auth"))
	}
	if login != nil && login.makeToken {
		return nil, salt.WithHint(cli.Usagef("--make-token is for the master of this machine"), "salt login "+k.Master+" keeps a token for this one")
	}
	if login == nil {
		login = &Login{env: env}
	} else {
		k = &kept{Master: k.Master, Fingerprint: k.Fingerprint}
	}
	conn, _, err := k.enter(ctx, login)
	return conn, err
}

// enter connects, logs in, and comes back as the user of the login.
func (k *kept) enter(ctx context.Context, login *Login) (*rpc.Conn, protocol.LoggedIn, error) {
	login.mu.Lock()
	defer login.mu.Unlock()
	var in protocol.LoggedIn
	guest, err := k.dial(login.env)
	if err != nil {
		return nil, in, err
	}
	q := protocol.Login{Token: k.Token}
	if q.Token == "" {
		q, err = login.question(ctx, guest)
	}
	if err == nil {
		q.Next = guest.Next()
		err = login.ask(ctx, guest, q, &in)
	}
	if err != nil {
		guest.Close()
		if q.Token != "" && rpc.CodeOf(err) == rpc.Denied {
			err = cli.Fail(cli.NoPermission, salt.WithHint(fmt.Errorf("the login at %s has expired or was revoked: %w", k.Master, err), "salt login "+k.Master))
		}
		return nil, in, err
	}
	conn, err := guest.Enter(in.Backend, in.User)
	if err != nil {
		return nil, in, remoteError(err)
	}
	return conn, in, nil
}

func (k *kept) dial(env *cli.Env) (*rpc.Conn, error) {
	defer env.Waiting(context.Background(), cli.Patience, func() string { return "the master at " + k.Master })()
	c, err := rpc.DialGuest(k.Master, k.Fingerprint)
	return c, remoteError(err)
}

// remoteError gives an error of connecting its exit code.
func remoteError(err error) error {
	switch {
	case errors.Is(err, rpc.ErrServerKey):
		return cli.Fail(cli.NoPermission, salt.WithHint(err, "its key has changed, or it is another machine: once you know which, salt logout, and salt login anew"))
	case errors.Is(err, rpc.ErrRefused):
		return cli.Fail(cli.NoPermission, err)
	case err != nil:
		return cli.Fail(cli.Unavailable, err)
	}
	return nil
}

// KeepLogin logs in at the master with this address and keeps a token.
func KeepLogin(ctx context.Context, env *cli.Env, opts *urcli.Context, cfg *config.Master, address string) error {
	path := keptPath(env)
	if path == "" {
		return salt.WithHint(errors.New("there is no place to keep a login: HOME is not set"), "set it")
	}
	url, err := rpc.MasterURL(address)
	if err != nil {
		return cli.Fail(cli.Usage, err)
	}
	login, err := NewLogin(env, opts, cfg)
	if err != nil {
		return err
	}
	if login == nil {
		return salt.WithHint(cli.Usagef("a login is by a backend of external_auth: which one?"), "for example: salt login -a pam "+url)
	}
	k := &kept{Master: url}
	if k.Fingerprint, err = trusted(ctx, env, opts.String("fingerprint"), url); err != nil {
		return err
	}
	login.makeToken = true
	conn, in, err := k.enter(ctx, login)
	if err != nil {
		return err
	}
	conn.Close()
	k.Token = in.Token
	if err := k.write(path); err != nil {
		return err
	}
	env.Note("logged in to %s as %s by %s until %s", url, in.User, in.Backend, in.Expires.Local().Format("2006-01-02 15:04"))
	return nil
}

// trusted is the fingerprint of the key that the master at url must have: as it was given, as
// it was when somebody logged in there before, or as a person confirms it.
func trusted(ctx context.Context, env *cli.Env, given, url string) (string, error) {
	if given != "" {
		return given, nil
	}
	old, err := readKept(env)
	if err != nil {
		return "", err
	}
	if old != nil && old.Master == url {
		return old.Fingerprint, nil
	}
	if !env.StdinTTY {
		return "", salt.WithHint(cli.Usagef("nobody is here to say whether %s is the right master", url),
			"name the fingerprint that 'salt-key -F master' shows there by --fingerprint")
	}
	key, err := rpc.ServerKey(url)
	if err != nil {
		return "", remoteError(err)
	}
	fmt.Fprintf(env.Stderr, "The key of the master at %s has the fingerprint\n%s\n'salt-key -F master' shows on its machine what it must be.\n", url, key.SHA256())
	yes, err := env.Confirm(ctx, "Is it the same?", false)
	if err == nil && !yes {
		err = cli.Fail(cli.NoPermission, errors.New("not logged in: the key of the master was not confirmed"))
	}
	return key.SHA256(), err
}

// EndLogin has the token of the login that is kept revoked, and forgets the login.
func EndLogin(ctx context.Context, env *cli.Env) error {
	path := keptPath(env)
	if path == "" {
		return nil
	}
	k, err := readKept(env)
	if k == nil && err == nil {
		env.Note("nobody is logged in")
		return nil
	}
	if k != nil && k.Token != "" {
		if err := k.revoke(ctx, env); err != nil {
			env.Warn(salt.WithHint(fmt.Errorf("the token was not revoked at %s: %w", k.Master, err), "it is forgotten here, and good there until it expires: 'salt-run auth.del_token' revokes it"))
		}
	}
	return os.Remove(path) // also where it cannot be read
}

func (k *kept) revoke(ctx context.Context, env *cli.Env) error {
	conn, _, err := k.enter(ctx, &Login{env: env})
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := conn.Call(protocol.OpRun, protocol.Run{Command: job.Command{Function: "auth.del_token", Args: []any{protocol.TokenID(k.Token)}}})
	if err != nil {
		return err
	}
	defer stream.Close()
	var start protocol.RunStart
	var result protocol.RunResult
	if err := stream.Decode(ctx, &start); err != nil {
		return err
	}
	if err := stream.Decode(ctx, &result); err != nil {
		return err
	}
	if result.Error != "" {
		return errors.New(result.Error)
	}
	return nil
}
