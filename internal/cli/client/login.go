package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// LoginFlags are the options to log in as a user of external_auth. letter replaces the short name
// of --auth, which has another meaning in salt-key.
func LoginFlags(letter ...string) []urcli.Flag {
	const group = "External authentication"
	return []urcli.Flag{
		&urcli.StringFlag{Category: group, Name: "auth", Aliases: append([]string{"eauth", "external-auth"}, letter...),
			Usage: "act as a user of the authentication `BACKEND`: file, ldap, pam, pki, sharedsecret"},
		&urcli.StringFlag{Category: group, Name: "username", Usage: "as the user `NAME`; asked for if not given"},
		&urcli.StringFlag{Category: group, Name: "password-file", Usage: "read the password from the first line of `FILE`; otherwise it is asked for, or is the first line of standard input"},
		&urcli.StringFlag{Category: group, Name: "password", Hidden: true},
		&urcli.BoolFlag{Category: group, Name: "make-token", Aliases: []string{"T"}, Usage: "keep a token in token_file, so that the password is not asked for until it expires"},
		&urcli.StringFlag{Category: group, Name: "token-expire", Usage: "the token expires after `TIME`, as in 600 or 12h (default: token_expire of the master)"},
		&urcli.StringFlag{Category: group, Name: "certificate", Usage: "the certificate of the user is in `FILE`, for the backend pki"},
		&urcli.StringFlag{Category: group, Name: "certificate-key", Usage: "its private key is in `FILE`"},
	}
}

// Login has the login options of the command line. A nil Login is the local user. It may be used
// for several connections, also concurrently: the user is asked for a name or a password only once.
type Login struct {
	env                   *cli.Env
	backend, user         string
	passwordFile          string
	certificate, key      string
	tokenFile             string
	makeToken, freshToken bool
	expire                time.Duration

	mu     sync.Mutex // held during a login
	secret string     // the password, once known
	kept   bool       // the requested token is stored
}

// NewLogin reads the options of LoginFlags, nil for none. It reads no secret yet.
func NewLogin(env *cli.Env, opts *urcli.Context, cfg *config.Master) (*Login, error) {
	if opts.IsSet("password") {
		return nil, salt.WithHint(cli.Usagef("a password is not an option: everybody would see it in the list of processes, and may have by now"),
			"leave --password out: it is asked for; a script has it in a file for --password-file, or pipes it to standard input")
	}
	l := &Login{
		env: env, backend: opts.String("auth"), user: opts.String("username"), passwordFile: opts.String("password-file"),
		certificate: opts.String("certificate"), key: opts.String("certificate-key"), makeToken: opts.Bool("make-token"),
		tokenFile: inHome(env, cfg.TokenFile),
	}
	if strings.HasPrefix(l.tokenFile, "~/") { // not a path in the working directory
		if l.makeToken {
			return nil, salt.WithHint(errors.New("there is no place to keep a token: HOME is not set"), "set it, or name a place by token_file")
		}
		l.tokenFile = ""
	}
	if opts.IsSet("auth") && l.backend == "" {
		return nil, cli.Usagef("option --auth names no backend")
	}
	if l.backend == "" && !l.makeToken {
		for _, name := range []string{"username", "password-file", "token-expire", "certificate", "certificate-key"} {
			if opts.IsSet(name) {
				return nil, salt.WithHint(cli.Usagef("option --%s is for a login, which --auth asks for", name), "for example: --auth pam")
			}
		}
		return nil, nil
	}
	if (l.backend == "pki") != (l.certificate != "") || (l.certificate != "") != (l.key != "") {
		return nil, cli.Usagef("the backend pki, and it alone, needs --certificate and --certificate-key")
	}
	return l, l.readExpire(opts)
}

func (l *Login) readExpire(opts *urcli.Context) error {
	expire, err := cli.Duration(opts, "token-expire", time.Second)
	l.freshToken, l.expire = opts.IsSet("token-expire"), expire
	return err
}

// inHome replaces ~ with the home directory.
func inHome(env *cli.Env, path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok && env.Getenv("HOME") != "" {
		return filepath.Join(env.Getenv("HOME"), rest)
	}
	return path
}

// do logs in on the connection. It uses the token of token_file if there is one that fits, and
// otherwise asks for the password.
func (l *Login) do(ctx context.Context, c *brine.Conn) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if done, err := l.byToken(ctx, c); done || err != nil {
		return err
	}
	if err := l.canKeep(); err != nil {
		return err
	}
	q, err := l.question(ctx)
	if err != nil {
		return err
	}
	session, err := l.ask(ctx, c, q)
	if err != nil || !q.MakeToken {
		return Error(err)
	}
	return l.keep(session.Token)
}

// question returns the login with its proof; it asks the user if the proof is not in a file. The
// caller holds the lock.
func (l *Login) question(ctx context.Context) (q brine.Login, err error) {
	if l.user == "" {
		if l.user, err = l.askUser(ctx); err != nil {
			return q, err
		}
	}
	q = brine.Login{Backend: l.backend, User: l.user, MakeToken: l.makeToken && !l.kept, Expire: l.expire}
	if l.certificate != "" {
		err = l.prove(&q)
		return q, err
	}
	if l.secret == "" {
		l.secret, err = l.password(ctx)
	}
	q.Password = l.secret
	return q, err
}

// loginTime limits a login, which may need a directory server.
const loginTime = time.Minute

func (l *Login) ask(ctx context.Context, c *brine.Conn, q brine.Login) (brine.Session, error) {
	defer l.env.Waiting(ctx, cli.Patience, func() string { return "the master to verify the login" })()
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	return c.Login(ctx, q)
}

// byToken tries the stored token. If the command line names another login, the token is not used;
// if it is refused, the user is told.
func (l *Login) byToken(ctx context.Context, c *brine.Conn) (done bool, err error) {
	if l.passwordFile != "" || l.certificate != "" || l.freshToken {
		return false, nil
	}
	token, err := readSecret(l.tokenFile, "token")
	if errors.Is(err, fs.ErrNotExist) {
		return false, l.needBackend(errors.New("there is no token in " + l.tokenFile))
	}
	if errors.Is(err, fs.ErrPermission) {
		err = salt.WithHint(err, "a token is in the home directory of who made it, and HOME is "+l.env.Getenv("HOME")+
			": under sudo or su set it to your own, as 'sudo -H' and 'su -' do; or name another file by token_file")
	}
	if err != nil {
		return false, err
	}
	_, err = l.ask(ctx, c, brine.Login{Backend: l.backend, User: l.user, Token: token})
	if err = Error(err); !errors.Is(err, brine.ErrDenied) {
		return err == nil, err
	}
	if l.backend != "" {
		l.env.Warn(fmt.Errorf("the token in %s is not good for this login, or has expired", l.tokenFile))
	}
	return false, l.needBackend(err)
}

// needBackend returns err if there is no other way to log in.
func (l *Login) needBackend(err error) error {
	if l.backend != "" {
		return nil
	}
	return cli.Fail(cli.NoPermission, salt.WithHint(err, "log in by -a BACKEND -T to get a new one"))
}

func (l *Login) askUser(ctx context.Context) (string, error) {
	if !l.env.StdinTTY {
		return "", salt.WithHint(cli.Usagef("a login needs a user"), "name one by --username")
	}
	user, err := l.env.Ask(ctx, "username: ")
	if err == nil && user == "" {
		err = cli.Usagef("a login needs a user")
	}
	return user, err
}

func (l *Login) password(ctx context.Context) (string, error) {
	secret, err := "", error(nil)
	if l.passwordFile != "" {
		secret, err = readSecret(l.passwordFile, "password")
	} else {
		secret, err = l.env.Password(ctx, "password: ")
	}
	switch {
	case errors.Is(err, cli.ErrNoInput):
		return "", cli.Fail(cli.Usage, salt.WithHint(err, "name a file with the password by --password-file, or run this in a terminal"))
	case err == nil && secret == "":
		return "", cli.Fail(cli.NoPermission, errors.New("the password is empty"))
	}
	return secret, err
}

// maxSecretFile limits a file with a password or a token.
const maxSecretFile = 4096

// readSecret returns the first line of a file that only its owner may read.
func readSecret(path, what string) (string, error) {
	b, err := readPrivate(path, what)
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSuffix(line, "\r"), err
}

// readPrivate reads a file that only its owner may read.
func readPrivate(path, what string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|posix.NoWaiting, 0)
	if errors.Is(err, fs.ErrPermission) {
		err = cli.Fail(cli.NoPermission, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	owner, mode, err := posix.Owner(path, info)
	if err != nil {
		return nil, err
	}
	if mode.Perm()&0o077 != 0 || owner != 0 && owner != os.Geteuid() {
		return nil, cli.Fail(cli.NoPermission, salt.WithHint(fmt.Errorf("read %s %s: its mode is %04o and its owner %d, so others may know it", what, path, mode.Perm(), owner),
			"chmod 600 it, or make a new one"))
	}
	return io.ReadAll(io.LimitReader(f, maxSecretFile))
}

// canKeep returns an error, before a token is made, if it could not be stored.
func (l *Login) canKeep() error {
	if !l.makeToken {
		return nil
	}
	dir := filepath.Dir(l.tokenFile)
	err := posix.Access(dir, posix.MayWrite|posix.MayExecute)
	if info, statErr := os.Stat(dir); err == nil && statErr == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		return nil
	}
	return salt.WithHint(fmt.Errorf("there is no place to keep a token: %s: %w", dir, err), "name another place by token_file")
}

// keep stores the token for the next command.
func (l *Login) keep(token string) error {
	if err := atomicfile.Write(l.tokenFile, []byte(token+"\n"), 0o600); err != nil {
		return salt.WithHint(fmt.Errorf("keep the token: %w", err), "name another place by token_file")
	}
	l.kept = true
	return nil
}
