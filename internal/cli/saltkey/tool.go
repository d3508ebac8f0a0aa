package saltkey

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/output"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// tool is what every action works with.
type tool struct {
	env  *cli.Env
	opts *urcli.Context
	cfg  *config.Master
	hash string // for fingerprints

	master *rpc.Conn // to announce decisions to; nil if none runs
	remote *remote   // the keys of a master, for users who may not read them; nil for the key directory
	closed error     // why this user may not read the key directory; nil if they may

	form  string // outputter for results
	style output.Options
	out   io.WriteCloser // nil until something is written
}

// textForm is the outputter for people, with Salt's headings. Notes and questions go with it on
// standard output; with other outputters only the result does.
const textForm = "key"

// newTool reads the configuration and checks the options that all actions have.
// It does not touch the key directory.
func newTool(env *cli.Env, opts *urcli.Context) (*tool, error) {
	load := config.Options{
		ConfigDir: explicitConfigDir(env, opts),
		// Everybody may make a key pair, of the default type. For other actions the default
		// would be the wrong directory.
		AllowUnreadable: opts.IsSet("gen-keys") || opts.IsSet("auth") || opts.IsSet("make-token"),
	}
	cfg, _, err := load.Master() // its notices are for the master's log
	closed := err
	if errors.Is(err, fs.ErrPermission) { // the master's address is not in the files that only the master may read
		load.AllowUnreadable = true
		cfg, _, err = load.Master()
	}
	if errors.Is(err, fs.ErrNotExist) { // the configuration is not where the command line says
		return nil, cli.Fail(cli.Usage, err)
	}
	if err != nil {
		return nil, explain(err)
	}
	t := &tool{
		env: env, opts: opts, cfg: cfg, closed: closed,
		hash: cmp.Or(opts.String("finger-hash"), cfg.HashType),
	}
	if _, err := os.ReadDir(cfg.PKIDir); t.closed == nil && errors.Is(err, fs.ErrPermission) {
		t.closed = err
	}
	t.form, t.style = env.OutputForm(opts, cmp.Or(cfg.Output, textForm), cfg.OutputIndent)
	t.style.Color = t.style.Color && (cfg.Color || opts.Bool("force-color"))
	if err := pki.CheckHash(t.hash); err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("option --finger-hash: %w", err))
	}
	if _, err := output.New(t.form, t.style); err != nil {
		return nil, fmt.Errorf("output in the configuration: %w", err)
	}
	return t, nil
}

// explicitConfigDir is "" for the default, the only one that may be missing.
func explicitConfigDir(env *cli.Env, opts *urcli.Context) string {
	if dir := env.ConfigDir(opts); dir != cli.DefaultConfigDir {
		return dir
	}
	return ""
}

// openKeys opens the key directory, or uses the keys of a master.
func (t *tool) openKeys() (keys, error) {
	if t.remote != nil {
		return t.remote, nil
	}
	store, err := pki.OpenExistingStore(t.cfg.PKIDir)
	return store, explain(err)
}

// explain adds hints and exit codes to errors about files.
func explain(err error) error {
	switch {
	case err == nil || salt.Hint(err) != "" && !errors.Is(err, fs.ErrPermission):
		return err
	case errors.Is(err, fs.ErrPermission):
		return cli.Fail(cli.NoPermission, salt.WithHint(err, "run salt-key as root or as the user that the master runs as"))
	case errors.Is(err, fs.ErrNotExist):
		return salt.WithHint(err, "the master makes it when it starts for the first time; if it did, check -c, and pki_dir in the configuration")
	}
	return err
}

// becomeMasterUser changes from root to the configured user, as Salt does: the master could not
// use files that root makes.
func (t *tool) becomeMasterUser() error {
	if os.Geteuid() != 0 || t.cfg.User == "" || t.cfg.User == "root" {
		return nil
	}
	u, err := user.Lookup(t.cfg.User)
	if err != nil {
		return fmt.Errorf("become the user of the master: %w", err)
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	if err := cmp.Or(uidErr, gidErr); err != nil {
		return fmt.Errorf("become user %s: %w", u.Username, err)
	}
	if uid == 0 {
		return nil
	}
	if err := posix.Become(uid, gid, []int{gid}); err != nil {
		return fmt.Errorf("become user %s: %w", u.Username, err)
	}
	return nil
}

// quiet reports whether success prints nothing.
func (t *tool) quiet() bool { return t.opts.Bool("quiet") }

// forPeople reports whether the result is text for people.
func (t *tool) forPeople() bool { return t.form == textForm }

// show prints a result with the chosen outputter. For people, an empty result prints nothing.
func (t *tool) show(data map[string]any) error {
	o, err := output.New(t.form, t.style)
	if err != nil {
		return err
	}
	text, err := o.Format(data)
	if err != nil || text == "" {
		return err
	}
	return t.write(text)
}

// showUnlessQuiet is show for results that -q suppresses.
func (t *tool) showUnlessQuiet(data map[string]any) error {
	if t.quiet() {
		return nil
	}
	return t.show(data)
}

// tell prints lines for people, unless -q suppresses them.
func (t *tool) tell(format string, args ...any) error {
	if t.quiet() || !t.forPeople() {
		return nil
	}
	return t.write(fmt.Sprintf(format, args...))
}

// write prints text to the output, which is opened at the first call.
func (t *tool) write(text string) error {
	if t.out == nil {
		out, err := t.env.OpenOutput(t.opts)
		if err != nil {
			return err
		}
		t.out = out
	}
	_, err := fmt.Fprintln(t.out, strings.TrimRight(text, "\n"))
	return err
}

// close closes the output, and returns the error if it was not written completely.
func (t *tool) close() error {
	if t.master != nil {
		t.master.Close()
	}
	if t.remote != nil {
		t.remote.conn.Close()
	}
	if t.out == nil {
		return nil
	}
	return t.out.Close()
}
