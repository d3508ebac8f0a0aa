package saltevent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
)

func credsSpec() cli.Spec {
	return cli.Spec{
		Synopsis: []string{"NAME [--dir DIR] [--address HOST:PORT] [--valid TIME]", "--list", "--revoke NAME"},
		Summary: "Make credentials with which a program in any language, with an ordinary NATS client, fires and hears events of the master's bus: " +
			"client.json says how, beside it are its key and certificates. event_acl grants what it may fire and hear, under client:NAME; without a rule that is nothing. " +
			"--revoke forgets the key: the program is disconnected at once. Run it on the master, as root or as the master's user.",
		Examples: []string{"salt-event creds dashboard --address salt.example.com", "salt-event creds --list", "salt-event creds --revoke dashboard"},
		Flags: []urcli.Flag{
			&urcli.StringFlag{Category: "Credentials", Name: "dir", Usage: "write them into the new directory `DIR`; NAME if not given"},
			&urcli.StringFlag{Category: "Credentials", Name: "address", Usage: "the program reaches the master at `HOST` or HOST:PORT; this machine's name and ret_port if not given"},
			&urcli.StringFlag{Category: "Credentials", Name: "valid", Value: "30d", Usage: "for `TIME` from now, as 12h or 30d; 'ever' is without end"},
			&urcli.StringFlag{Category: "Credentials", Name: "key-type", Value: string(pki.Ed25519), Usage: "make a key of `TYPE` ed25519, or rsa for programs that know no other"},
			&urcli.BoolFlag{Category: "Credentials", Name: "list", Usage: "show whose credentials the master takes"},
			&urcli.BoolFlag{Category: "Credentials", Name: "revoke", Usage: "forget those of NAME"},
		},
		Run: creds,
	}
}

func creds(_ context.Context, env *cli.Env, opts *urcli.Context) error {
	list, revoke, words := opts.Bool("list"), opts.Bool("revoke"), opts.Args().Slice()
	switch {
	case list && revoke, list && len(words) > 0, !list && len(words) != 1:
		return salt.WithHint(cli.Usagef("either one name, or --list is needed"), "for example: salt-event creds dashboard")
	}
	cfg, err := client.MasterConfig(env, opts)
	if err != nil {
		return err
	}
	store, err := pki.OpenExistingStore(cfg.PKIDir)
	if err != nil {
		return credsError(err)
	}
	if list {
		return credsError(listClients(env, store))
	}
	name, err := salt.ParseClientName(words[0])
	if err != nil {
		return cli.Fail(cli.Usage, err)
	}
	if revoke {
		err := store.RemoveClient(name)
		if errors.Is(err, fs.ErrNotExist) {
			return salt.WithHint(fmt.Errorf("there are no credentials of %q", name), "'salt-event creds --list' shows whose there are")
		}
		return credsError(err)
	}
	return credsError(makeClient(env, opts, cfg, store, name))
}

func credsError(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return cli.Fail(cli.NoPermission, salt.WithHint(err, "run this as root, or as the user that the master runs as"))
	}
	return err
}

func listClients(env *cli.Env, store *pki.Store) error {
	clients, problems, err := store.Clients()
	if err != nil {
		return err
	}
	for _, p := range problems {
		env.Warn(p.Err)
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	if len(clients) > 0 {
		fmt.Fprintln(w, "NAME\tEXPIRES\tKEY")
	}
	for _, c := range clients {
		fmt.Fprintf(w, "%s\t%s\t%s\n", c.Name, expiryText(c, time.Now()), c.Key)
	}
	return w.Flush()
}

func expiryText(c pki.Client, now time.Time) string {
	switch {
	case c.Expires.IsZero():
		return "never"
	case c.Expired(now):
		return "expired"
	}
	return c.Expires.UTC().Format(time.RFC3339)
}

// credentials is client.json: everything that a program needs, with files beside it.
type credentials struct {
	Name       string            `json:"name"`
	URL        string            `json:"url"`
	ServerName string            `json:"server_name"` // in the master's certificate
	CA         string            `json:"ca"`
	Cert       string            `json:"cert"`
	Key        string            `json:"key"`
	Inbox      string            `json:"inbox"` // part before the nonce in its inbox prefix
	Subjects   map[string]string `json:"subjects"`
	Expires    string            `json:"expires,omitempty"`
}

// makeClient writes the files and then accepts the key, so that no key is accepted whose files
// could not be written.
func makeClient(env *cli.Env, opts *urcli.Context, cfg *config.Master, store *pki.Store, name salt.ClientName) error {
	c := pki.Client{Name: name}
	valid, err := readValid(opts)
	if err != nil {
		return err
	}
	if valid > 0 {
		c.Expires = time.Now().Add(valid).Truncate(time.Second)
	}
	if _, err := store.Client(name); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fs.ErrExist
		}
		return salt.WithHint(fmt.Errorf("credentials of %q: %w", name, err), fmt.Sprintf("if they are to go, revoke them first: salt-event creds --revoke %s", name))
	}
	master, err := pki.LoadPrivate(filepath.Join(cfg.PKIDir, "master.pem"))
	if err != nil {
		return err
	}
	key, err := pki.Generate(pki.KeyType(opts.String("key-type")), cfg.KeySize)
	if err != nil {
		return cli.Fail(cli.Usage, err)
	}
	c.Key = key.Public()
	address, err := masterAddress(opts.String("address"), cfg)
	if err != nil {
		return err
	}
	dir := firstOf(opts.String("dir"), string(name))
	if err := writeCredentials(dir, address, c, key, master); err != nil {
		return err
	}
	if err := store.AddClient(c); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	fmt.Fprintln(env.Stdout, filepath.Join(dir, "client.json"))
	if g, err := event.ParseGrants(cfg.EventACL.Node, cfg.EventACL.FileOf); err == nil && !g.Known(salt.ClientPrefix+string(name)) && !mayRun(cfg, name) {
		env.Warn(fmt.Errorf("event_acl has no rule for %s%s yet, and external_auth none below client: it may do nothing", salt.ClientPrefix, name))
	}
	return nil
}

// mayRun reports whether external_auth has a rule for the client.
func mayRun(cfg *config.Master, name salt.ClientName) bool {
	backends, _ := cfg.ExternalAuth.Value().(map[string]any)
	clients, _ := backends["client"].(map[string]any)
	return clients[string(name)] != nil
}

// readValid reads how long credentials are valid; ever is 0.
func readValid(opts *urcli.Context) (time.Duration, error) {
	if opts.String("valid") == "ever" {
		return 0, nil
	}
	return cli.Duration(opts, "valid", time.Millisecond)
}

// masterAddress returns the address of the master for the program.
func masterAddress(text string, cfg *config.Master) (string, error) {
	port := strconv.Itoa(cfg.RetPort)
	if text == "" {
		host, err := os.Hostname()
		if ip := net.ParseIP(cfg.Interface); ip != nil && !ip.IsUnspecified() {
			host, err = cfg.Interface, nil
		}
		return net.JoinHostPort(host, port), err
	}
	host, given, err := net.SplitHostPort(text)
	if err != nil {
		host, given = text, port
	}
	if n, err := strconv.ParseUint(given, 10, 16); err != nil || n == 0 || host == "" {
		return "", cli.Usagef("option --address: %q is not HOST or HOST:PORT", text)
	}
	return net.JoinHostPort(host, given), nil
}

// writeCredentials makes dir, which only its owner may enter. It fails if dir exists.
func writeCredentials(dir, address string, c pki.Client, key, master *pki.PrivateKey) error {
	certificate, err := key.Certificate(salt.ClientPrefix + string(c.Name))
	if err != nil {
		return err
	}
	ca, err := master.Authority()
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(describe(address, c), "", "  ")
	if err != nil {
		return err
	}
	inContext, err := json.MarshalIndent(contextOf(address, c), "", "  ")
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return salt.WithHint(err, "name a directory that is not there yet with --dir")
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{"ca.pem", ca}, {"cert.pem", pki.CertificatePEM(certificate)}, {"key.pem", key.PEM()}, {"client.json", append(text, '\n')}, {"nats.json", append(inContext, '\n')}} {
		if err := atomicfile.Write(filepath.Join(dir, f.name), f.data, 0o600); err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
	}
	return nil
}

// natsContext is nats.json: a context of the nats CLI.
type natsContext struct {
	Description string `json:"description"`
	URL         string `json:"url"`
	User        string `json:"user"`
	Cert        string `json:"cert"`
	Key         string `json:"key"`
	CA          string `json:"ca"`
	InboxPrefix string `json:"inbox_prefix"`
}

// contextOf names the files with the nats CLI's own absolute paths: relative ones are not
// supported there. Its nonce is fixed, so it is for one connection at a time.
func contextOf(address string, c pki.Client) natsContext {
	dir, nonce := "~/.config/nats/"+string(c.Name)+"/", bus.NewNonce()
	return natsContext{
		Description: "master of Brine, as the client " + string(c.Name), URL: "tls://" + address, User: nonce,
		CA: dir + "ca.pem", Cert: dir + "cert.pem", Key: dir + "key.pem",
		InboxPrefix: bus.InboxPrefix(bus.KeyToken(c.Key.Key()), nonce),
	}
}

func describe(address string, c pki.Client) credentials {
	subject := func(op string) string { return bus.RequestSubject(bus.RoleClient, string(c.Name), op) }
	d := credentials{
		Name: string(c.Name), URL: "tls://" + address, ServerName: bus.ServerName, CA: "ca.pem", Cert: "cert.pem", Key: "key.pem",
		Inbox: bus.InboxOwner(bus.KeyToken(c.Key.Key())),
		Subjects: map[string]string{
			protocol.OpFire: subject(protocol.OpFire), protocol.OpListen: subject(protocol.OpListen),
			protocol.OpEnd: subject(protocol.OpEnd), protocol.OpConfirm: subject(protocol.OpConfirm),
			protocol.OpPublish: subject(protocol.OpPublish), protocol.OpFollow: subject(protocol.OpFollow),
			protocol.OpRun: subject(protocol.OpRun), protocol.OpLogin: subject(protocol.OpLogin),
		},
	}
	if !c.Expires.IsZero() {
		d.Expires = c.Expires.UTC().Format(time.RFC3339)
	}
	return d
}
