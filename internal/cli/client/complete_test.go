package client

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"github.com/brinebus/brine/internal/cli"
)

// A command line for another master or another user is not completed with words of the daemon of
// this machine.
func TestCompletionUsesOnlyItsOwnMaster(t *testing.T) {
	for name, test := range map[string]struct {
		kept   bool // a login at another master
		config string
		creds  string // SALT_CREDS
		args   []string
		here   bool
	}{
		"usual":                      {false, "", "", nil, true},
		"a login is kept":            {true, "", "", nil, false},
		"a login, but -c":            {true, "/srv/etc", "", nil, true},
		"a login, but this minion":   {true, "", "", []string{"--bus", "minion"}, true},
		"credentials":                {false, "", "", []string{"--creds", "dir"}, false},
		"credentials, by SALT_CREDS": {false, "", "dir", nil, false},
		"a master that is unknown":   {false, "", "", []string{"--master", "tls://x"}, false},
		"somebody else, by --auth":   {false, "", "", []string{"--auth", "pam"}, false},
		"somebody else, by a token":  {false, "", "", []string{"--make-token"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			if test.kept {
				path := filepath.Join(home, ".config/salt/cli")
				if err := (&kept{Master: "tls://salt.example.com:4506", Fingerprint: "00:11", Token: "t"}).write(path); err != nil {
					t.Fatal(err)
				}
			}
			env := &cli.Env{Args: test.args, Stdout: io.Discard, Stderr: t.Output(), Getenv: func(name string) string {
				return map[string]string{"HOME": home, "SALT_CONFIG_DIR": test.config, "SALT_CREDS": test.creds}[name]
			}}
			flags := slices.Concat(MasterFlags(), LoginFlags("a"), []cli.Option{&cli.String{Name: "bus"}})
			code := env.Run(t.Context(), cli.Spec{Flags: flags, Run: func(_ context.Context, env *cli.Env, opts *cli.Options) error {
				if got := asksHere(env, cli.Completion{Opts: opts}); got != test.here {
					t.Errorf("asks here: %t", got)
				}
				return nil
			}})
			if code != cli.OK {
				t.Errorf("%q was not parsed: %d", test.args, code)
			}
		})
	}
}
