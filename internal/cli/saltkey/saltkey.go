// Package saltkey is the program salt-key: it lists, accepts, rejects, deletes
// and prints the keys of minions, makes key pairs, and makes and checks the
// signature of the master's public key.
//
// It works on the key directory itself and needs no running master; a running one sees each
// change at once. It tells the master who decides, for the audit log; it asks the master for
// keys only for a user of external_auth.
package saltkey

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/salt"
)

// The headings in -h.
const (
	groupLook   = "Look at keys"
	groupChange = "Decide about keys"
	groupHow    = "How to decide"
	groupMake   = "Make keys and signatures"
)

// actions are the actions of the program, by their options, in the order of -h. A command line
// asks for one of them.
var actions = []struct {
	option string
	run    func(ctx context.Context, t *tool) error
}{
	{"list", list},
	{"list-all", list},
	{"finger", finger},
	{"finger-all", finger},
	{"print", printKeys},
	{"print-all", printKeys},
	{"accept", accept.runNamed},
	{"accept-all", accept.runAll},
	{"reject", reject.runNamed},
	{"reject-all", reject.runAll},
	{"delete", deletion.runNamed},
	{"delete-all", deletion.runAll},
	{"gen-keys", generate},
	{"gen-signature", sign},
	{"verify-signature", verifySignature},
}

// Run is the program.
func Run(ctx context.Context, env *cli.Env) int { return env.Run(ctx, spec()) }

// spec is made for each run: its flags store what they parsed.
func spec() cli.Spec {
	return cli.Spec{
		Synopsis: []string{
			"[-L]",
			"-a|-r|-d KEYS [-y]",
			"-f|-p KEYS",
			"--gen-keys NAME | --gen-signature | --verify-signature",
		},
		Summary: "Manage the keys of minions on their master. KEYS are ids of minions or patterns (*, ?, [a-z]) of them, " +
			"several with commas between. One key of an id that has several is named by the beginning of its fingerprint: " +
			"web1@SHA256:0f:5b:13:aa. Without options all keys are listed.",
		Examples: []string{
			"salt-key -L -v",
			"salt-key -a web1",
			"salt-key -d 'web1@SHA256:0f:5b:13:aa' -y",
			"salt-key --gen-signature --auto-create",
		},
		Flags: slices.Concat(lookFlags(), changeFlags(), makeFlags(), client.MasterFlags(), client.LoginFlags()),
		Ignored: []string{
			"rotate-aes-key=: minions share no key, and one that is deleted or rejected is disconnected at once",
			"preserve-minions: what the master knows of a minion goes with its last key",
		},
		Refused:  []cli.Refusal{cli.RefuseUser()},
		Output:   true,
		Complete: complete,
		Run:      run,
	}
}

func lookFlags() []urcli.Flag {
	return []urcli.Flag{
		&urcli.BoolFlag{Category: groupLook, Name: "list-all", Aliases: []string{"L"},
			Usage: "list all keys"},
		&urcli.StringFlag{Category: groupLook, Name: "list", Aliases: []string{"l"},
			Usage: "list the keys in `STATE`: acc, pre or un, rej, den, all"},
		&urcli.StringSliceFlag{Category: groupLook, Name: "finger", Aliases: []string{"f"},
			Usage: "print the fingerprints of `KEYS`"},
		&urcli.BoolFlag{Category: groupLook, Name: "finger-all", Aliases: []string{"F"},
			Usage: "print all fingerprints, the master's own too"},
		&urcli.StringSliceFlag{Category: groupLook, Name: "print", Aliases: []string{"p"},
			Usage: "print `KEYS` themselves, as PEM"},
		&urcli.BoolFlag{Category: groupLook, Name: "print-all", Aliases: []string{"P"},
			Usage: "print all keys themselves"},
		&urcli.StringFlag{Category: groupLook, Name: "finger-hash",
			Usage: "compute fingerprints with `HASH`: md5, sha1, sha224, sha256, sha384, sha512; hash_type of the configuration if not given"},
		&urcli.BoolFlag{Category: groupLook, Name: "verbose", Aliases: []string{"v"},
			Usage: "list fingerprints and times beside the ids"},
	}
}

func changeFlags() []urcli.Flag {
	return []urcli.Flag{
		&urcli.StringSliceFlag{Category: groupChange, Name: "accept", Aliases: []string{"a"},
			Usage: "accept `KEYS` that wait"},
		&urcli.BoolFlag{Category: groupChange, Name: "accept-all", Aliases: []string{"A"},
			Usage: "accept all keys that wait"},
		&urcli.StringSliceFlag{Category: groupChange, Name: "reject", Aliases: []string{"r"},
			Usage: "reject `KEYS` that wait"},
		&urcli.BoolFlag{Category: groupChange, Name: "reject-all", Aliases: []string{"R"},
			Usage: "reject all keys that wait"},
		&urcli.StringSliceFlag{Category: groupChange, Name: "delete", Aliases: []string{"d"},
			Usage: "delete `KEYS`, whatever their state"},
		&urcli.BoolFlag{Category: groupChange, Name: "delete-all", Aliases: []string{"D"},
			Usage: "delete all keys"},
		&urcli.BoolFlag{Category: groupHow, Name: "yes", Aliases: []string{"y"},
			Usage: "do not ask"},
		&urcli.BoolFlag{Category: groupHow, Name: "quiet", Aliases: []string{"q"},
			Usage: "print nothing when all goes well"},
		&urcli.BoolFlag{Category: groupHow, Name: "include-all",
			Usage: "accept rejected keys too; reject accepted ones too"},
		&urcli.BoolFlag{Category: groupHow, Name: "include-accepted",
			Usage: "reject accepted keys too"},
		&urcli.BoolFlag{Category: groupHow, Name: "include-rejected",
			Usage: "accept rejected keys too"},
		&urcli.BoolFlag{Category: groupHow, Name: "include-denied",
			Usage: "accept or reject denied keys too"},
	}
}

func makeFlags() []urcli.Flag {
	return []urcli.Flag{
		&urcli.StringFlag{Category: groupMake, Name: "gen-keys",
			Usage: "make the key pair `NAME`.pem and NAME.pub"},
		&urcli.StringFlag{Category: groupMake, Name: "gen-keys-dir", Value: ".",
			Usage: "put it into `DIR` instead of the working directory"},
		&urcli.StringFlag{Category: groupMake, Name: "key-type",
			Usage: "make a key of `TYPE` ed25519 or rsa; key_type of the configuration if not given"},
		&urcli.IntFlag{Category: groupMake, Name: "keysize",
			Usage: "make an RSA key of `BITS`, 2048 to 8192"},
		&urcli.BoolFlag{Category: groupMake, Name: "gen-signature",
			Usage: "sign the master's public key and write the signature beside it"},
		&urcli.BoolFlag{Category: groupMake, Name: "verify-signature",
			Usage: "check that signature"},
		&urcli.BoolFlag{Category: groupMake, Name: "auto-create",
			Usage: "make the signing key pair if there is none"},
		&urcli.BoolFlag{Category: groupMake, Name: "force",
			Usage: "replace a signature that does not fit"},
		&urcli.StringFlag{Category: groupMake, Name: "priv",
			Usage: "sign with the private key in `FILE` instead of pki_dir/master_sign.pem"},
		&urcli.StringFlag{Category: groupMake, Name: "pub",
			Usage: "sign the public key in `FILE` instead of pki_dir/master.pub"},
		&urcli.StringFlag{Category: groupMake, Name: "signature-path",
			Usage: "the signature is in `DIR` instead of pki_dir"},
	}
}

// run carries out the one action of the command line.
func run(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	do := list
	var asked []string
	for _, a := range actions {
		if opts.IsSet(a.option) {
			asked = append(asked, "--"+a.option)
			do = a.run
		}
	}
	if len(asked) > 1 {
		return cli.Usagef("%s do not go together", strings.Join(asked, " and "))
	}
	if err := checkWords(opts); err != nil {
		return err
	}
	t, err := newTool(env, opts)
	if err != nil {
		return err
	}
	login, err := client.NewLogin(env, opts, t.cfg)
	if err != nil {
		return err
	}
	far, err := client.IsRemote(env, opts)
	if err != nil {
		return err
	}
	if far = far || login != nil; far {
		err = forMaster(asked)
	}
	if err == nil && (far || t.closed != nil && forMaster(asked) == nil) {
		err = t.reach(ctx, login)
	}
	if err != nil {
		return err
	}
	if t.remote != nil {
		return errors.Join(do(ctx, t), t.close())
	}
	if changesKeys(asked) {
		t.introduce()
	}
	if !opts.IsSet("gen-keys") { // that pair belongs to the caller
		if err := t.becomeMasterUser(); err != nil {
			return err
		}
	}
	return errors.Join(do(ctx, t), t.close())
}

// changesKeys reports whether the option decides about keys.
func changesKeys(asked []string) bool {
	return slices.ContainsFunc([]verb{accept, reject, deletion}, func(v verb) bool {
		return slices.Contains(asked, "--"+v.option) || slices.Contains(asked, "--"+v.option+"-all")
	})
}

// forMaster refuses actions on files of this machine, which a master cannot do.
func forMaster(asked []string) error {
	if len(asked) == 1 && (strings.HasPrefix(asked[0], "--gen-") || asked[0] == "--verify-signature") {
		return cli.Usagef("%s works on files and takes no --auth", asked[0])
	}
	return nil
}

// checkWords refuses words that are not options: in Salt they are ignored, and with a forgotten
// option "salt-key web1" lists all keys. After -F the words master and all may follow, as in
// many instructions.
func checkWords(opts *urcli.Context) error {
	for _, word := range opts.Args().Slice() {
		if opts.Bool("finger-all") && (word == "master" || word == "all") {
			continue
		}
		return salt.WithHint(cli.Usagef("unexpected argument %q", word),
			fmt.Sprintf("say what to do with it, for example: salt-key -a %s; several keys are written with commas between", word))
	}
	return nil
}
