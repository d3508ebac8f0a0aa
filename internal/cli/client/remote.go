package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/yamlfile"
)

// keptFile is the file in which 'salt login' stores a login, below the home directory.
const keptFile = "~/.config/salt/cli"

// kept is a stored login on a remote master.
type kept struct {
	Master      string // tls://HOST:PORT
	Fingerprint string // of its key
	Token       string
}

// MasterFlags are the options to connect to a remote master.
func MasterFlags() []urcli.Flag {
	const group = "Connection"
	return []urcli.Flag{
		&urcli.StringFlag{Category: group, Name: "master", Usage: "reach the master at `URL`, tls://HOST:PORT, by the login that 'salt login' has kept, or by --auth"},
		FingerprintFlag(),
		&urcli.StringFlag{Category: group, Name: "creds", EnvVars: []string{"SALT_CREDS"},
			Usage: "reach the master over the network, with the credentials of 'salt-event creds' in `DIR`"},
	}
}

// FingerprintFlag is the option for the master's key.
func FingerprintFlag() urcli.Flag {
	return &urcli.StringFlag{Category: "Connection", Name: "fingerprint", Usage: "the key of the master at that URL has the `FINGERPRINT` that 'salt-key -F master' shows there"}
}

// remote returns the remote master from the options, otherwise from the stored login; nil means the
// local one.
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
	url, err := brine.ParseAddress(given)
	if err != nil {
		return nil, cli.Fail(cli.Usage, err)
	}
	if k == nil || k.Master != url {
		k = &kept{Master: url}
	}
	if f := opts.String("fingerprint"); f != "" && f != k.Fingerprint {
		k = &kept{Master: url, Fingerprint: f} // the stored token is for the other key
	}
	if k.Fingerprint == "" {
		return nil, cli.Fail(cli.NoPermission, salt.WithHint(fmt.Errorf("the master at %s is not known: nobody has logged in to it here", url),
			"salt login "+url+", or name the fingerprint of its key by --fingerprint"))
	}
	return k, nil
}

// IsRemote reports whether the options, or the stored login, name a remote master.
func IsRemote(env *cli.Env, opts *urcli.Context) (bool, error) {
	k, err := remote(env, opts)
	return k != nil || opts.String("creds") != "", err
}

// keptPath returns the path of the stored login, "" without a home directory.
func keptPath(env *cli.Env) string {
	if env.Getenv("HOME") == "" {
		return ""
	}
	return inHome(env, keptFile)
}

// readKept reads the stored login, nil for none. It is refused if other users can read it: they may
// have used it.
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
	if k.Master, err = brine.ParseAddress(k.Master); err != nil || k.Fingerprint == "" {
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

// Connect connects to the master in the options, as the user in the options: over the local socket,
// with credentials, or as a user of external_auth on another machine.
func Connect(ctx context.Context, env *cli.Env, opts *urcli.Context, cfg *config.Master, login *Login) (*brine.Conn, error) {
	return Connector(env, opts, cfg, login)(ctx)
}

// Connector returns a function that does what Connect does, as often as needed. It stays with the
// master of the first time, whatever 'salt login' and 'salt logout' do with the stored login meanwhile:
// a command that reconnects must not go on at another master. The function may be called
// concurrently.
func Connector(env *cli.Env, opts *urcli.Context, cfg *config.Master, login *Login) func(context.Context) (*brine.Conn, error) {
	var mu sync.Mutex
	var first *string // the remote master of the first time, "" for the local one; guarded by mu
	stays := func(master string) string {
		mu.Lock()
		defer mu.Unlock()
		if first == nil {
			first = &master
		}
		return *first
	}
	return func(ctx context.Context) (*brine.Conn, error) {
		k, err := remote(env, opts)
		if err != nil {
			return nil, err
		}
		var master string
		if k != nil {
			master = k.Master
		}
		switch stays := stays(master); {
		case stays == "":
			return connectHere(ctx, env, opts, cfg, login)
		case stays != master:
			return nil, cli.Fail(cli.NoPermission, salt.WithHint(fmt.Errorf("the login at %s was removed", stays), "salt login "+stays))
		}
		return k.connect(ctx, env, login)
	}
}

// connectHere connects to the local master, or with credentials.
func connectHere(ctx context.Context, env *cli.Env, opts *urcli.Context, cfg *config.Master, login *Login) (*brine.Conn, error) {
	conn, err := dialMaster(ctx, env, opts, cfg)
	if err != nil {
		return nil, err
	}
	if err := login.do(ctx, conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// connect logs in on the master: with the options or, if there are none, with the token.
func (k *kept) connect(ctx context.Context, env *cli.Env, login *Login) (*brine.Conn, error) {
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

// enter connects and logs in; afterwards the connection belongs to the user of the login.
func (k *kept) enter(ctx context.Context, login *Login) (*brine.Conn, brine.Session, error) {
	login.mu.Lock()
	defer login.mu.Unlock()
	conn, err := k.dial(ctx, login.env)
	if err != nil {
		return nil, brine.Session{}, err
	}
	q := brine.Login{Token: k.Token}
	if q.Token == "" {
		q, err = login.question(ctx)
	}
	var in brine.Session
	if err == nil {
		in, err = login.ask(ctx, conn, q)
		err = k.loginError(ctx, err)
	}
	if err != nil {
		conn.Close()
		return nil, in, err
	}
	return conn, in, nil
}

// loginError adds an exit code to the error of a login: it is the master's answer, or about the
// connection of the logged-in user.
func (k *kept) loginError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, brine.ErrDenied) && k.Token != "":
		return cli.Fail(cli.NoPermission, salt.WithHint(fmt.Errorf("the login at %s has expired or was revoked: %w", k.Master, err), "salt login "+k.Master))
	case !answered(err):
		return remoteError(ctx, err)
	}
	return Error(err)
}

func (k *kept) dial(ctx context.Context, env *cli.Env) (*brine.Conn, error) {
	defer env.Waiting(ctx, cli.Patience, func() string { return "the master at " + k.Master })()
	c, err := brine.Connect(ctx, k.Master, brine.Fingerprint(k.Fingerprint))
	return c, remoteError(ctx, err)
}

// remoteError adds an exit code to an error of connecting.
func remoteError(ctx context.Context, err error) error {
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case errors.Is(err, brine.ErrServer):
		return cli.Fail(cli.NoPermission, salt.WithHint(err, "its key has changed, or it is another machine: once you know which, salt logout, and salt login anew"))
	case errors.Is(err, brine.ErrRefused):
		return cli.Fail(cli.NoPermission, err)
	}
	return cli.Fail(cli.Unavailable, err)
}

// KeepLogin logs in on the master with this address and stores a token.
func KeepLogin(ctx context.Context, env *cli.Env, opts *urcli.Context, cfg *config.Master, address string) error {
	path := keptPath(env)
	if path == "" {
		return salt.WithHint(errors.New("there is no place to keep a login: HOME is not set"), "set it")
	}
	url, err := brine.ParseAddress(address)
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

// trusted returns the fingerprint that the key of the master at url must have: the given one, the
// one of an earlier login there, or one that the user confirms.
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
		return "", salt.WithHint(cli.Usagef("there is no terminal to ask whether %s is the right master", url),
			"name the fingerprint that 'salt-key -F master' shows there by --fingerprint")
	}
	key, err := brine.ServerFingerprint(ctx, url)
	if err != nil {
		return "", remoteError(ctx, err)
	}
	fmt.Fprintf(env.Stderr, "The key of the master at %s has the fingerprint\n%s\n'salt-key -F master' shows on its machine what it must be.\n", url, key)
	yes, err := env.Confirm(ctx, "Is it the same?", false)
	if err == nil && !yes {
		err = cli.Fail(cli.NoPermission, errors.New("not logged in: the key of the master was not confirmed"))
	}
	return key, err
}

// EndLogin revokes the token of the stored login, and deletes the login.
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
	return os.Remove(path) // also if it cannot be read
}

func (k *kept) revoke(ctx context.Context, env *cli.Env) error {
	conn, _, err := k.enter(ctx, &Login{env: env})
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.RevokeToken(ctx, k.Token)
}
