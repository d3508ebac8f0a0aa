package client

import (
	"flag"
	"path/filepath"
	"testing"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
)

// A command line for another master or another user is not completed with words of the daemon of
// this machine.
func TestCompletionUsesOnlyItsOwnMaster(t *testing.T) {
	for name, test := range map[string]struct {
		kept   bool // a login at another master
		config string
		args   []string
		here   bool
	}{
		"usual":                     {false, "", nil, true},
		"a login is kept":           {true, "", nil, false},
		"a login, but -c":           {true, "/srv/etc", nil, true},
		"a login, but this minion":  {true, "", []string{"--bus", "minion"}, true},
		"credentials":               {false, "", []string{"--creds", "dir"}, false},
		"a master that is unknown":  {false, "", []string{"--master", "tls://x"}, false},
		"somebody else, by --auth":  {false, "", []string{"--auth", "pam"}, false},
		"somebody else, by a token": {false, "", []string{"--make-token"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			if test.kept {
				path := filepath.Join(home, ".config/salt/cli")
				if err := (&kept{Master: "tls://salt.example.com:4506", Fingerprint: "00:11", Token: "t"}).write(path); err != nil {
					t.Fatal(err)
				}
			}
			env := &cli.Env{Getenv: func(name string) string {
				return map[string]string{"HOME": home, "SALT_CONFIG_DIR": test.config}[name]
			}}
			set := flag.NewFlagSet("", flag.ContinueOnError)
			for _, name := range []string{"bus", "creds", "master", "auth", "config-dir", "fingerprint"} {
				set.String(name, "", "")
			}
			set.Bool("make-token", false, "")
			if err := set.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			if got := asksHere(env, cli.Completion{Opts: urcli.NewContext(nil, set, nil)}); got != test.here {
				t.Errorf("asks here: %t", got)
			}
		})
	}
}
