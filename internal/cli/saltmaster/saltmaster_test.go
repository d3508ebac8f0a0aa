package saltmaster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/serve"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// check runs salt-master --check over a configuration file.
func check(t *testing.T, text string) (code int, said string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "master"), []byte("root_dir: "+dir+"/root\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	env := &cli.Env{Name: "salt-master", Args: []string{"-c", dir, "--check"}, Stdout: &out, Stderr: io.Discard, Getenv: func(string) string { return "" }}
	code = Run(context.Background(), env)
	if _, err := os.Stat(filepath.Join(dir, "root")); err == nil {
		t.Errorf("--check of %q has made root_dir", text)
	}
	return code, out.String()
}

const threeMembers = "cluster_id: prod\nmaster_sign_pubkey: True\ninterface: 127.0.0.2\ncluster_peers: [127.0.0.2, 127.0.0.3, 127.0.0.4]\n"

// TestCheck: mistakes of all parts are found, with the place of each, and nothing is touched.
func TestCheck(t *testing.T) {
	for text, want := range map[string]struct {
		code int
		says string
	}{
		"":                                   {0, ""},
		"publisher_acl:\n  fred: [test.*]\n": {0, ""},
		"publisher_acl:\n  fred: ['[']\nret_port: x\n": {cli.Usage, "error: ret_port"},
		"ret_port: x\n":                            {cli.Usage, "master:2:"},
		"reactor:\n  - a: 7\n":                     {cli.Usage, "error: reactor"},
		"external_auth:\n  nosuch: {fred: [.*]}\n": {cli.Usage, "nosuch"},
		"metrics_listen: nowhere\n":                {cli.Usage, "metrics_listen"},

		"master_sign_pubkey: True\njournal_mirror: m2:4507\n":                              {0, ""},
		"journal_mirror: m2:4507\n":                                                        {cli.Usage, "master_sign_pubkey is not"},
		"master_sign_pubkey: True\njournal_mirror: m2\n":                                   {cli.Usage, "not a host:port"},
		"master_sign_pubkey: True\njournal_mirror: ':4507'\n":                              {cli.Usage, "not a host:port"},
		"master_sign_pubkey: True\njournal_mirror: 'm2,m3:4507'\n":                         {cli.Usage, "not a host:port"},
		"master_sign_pubkey: True\njournal_mirror: tls://m2:4507\n":                        {cli.Usage, "not a host:port"},
		"master_sign_pubkey: True\njournal_mirror: m2:0\n":                                 {cli.Usage, "is not a port"},
		"master_sign_pubkey: True\njournal_mirror: m2:70000\n":                             {cli.Usage, "is not a port"},
		"master_sign_pubkey: True\njournal_mirror: m2:4507\njournal_mirror_port: 4506\n":   {cli.Usage, "that of minions"},
		"master_sign_pubkey: True\njournal_mirror: m2:4507\njournal_mirror_port: 0\n":      {cli.Usage, "journal_mirror_port"},
		"master_sign_pubkey: True\ninterface: 127.0.0.2\njournal_mirror: 127.0.0.2:4507\n": {cli.Usage, "is this master"},
		"master_sign_pubkey: True\njournal_mirror: m2:4507\ncluster_id: prod\n":            {cli.Usage, "are not a cluster, but cluster_id is set"},
		threeMembers: {0, ""},
		strings.Replace(threeMembers, "interface: 127.0.0.2\n", "", 1):                                                              {cli.Usage, "several members have addresses"},
		"cluster_id: prod\nmaster_sign_pubkey: True\ncluster_peers: [198.51.100.1, 198.51.100.2, 198.51.100.3]\n":                   {0, "warning: cluster_peers: none of the members has an address of this machine and port 4520: a start waits"},
		"cluster_id: prod\nmaster_sign_pubkey: True\ncluster_peers: ['198.51.100.1:4521', '198.51.100.2:4521', '127.0.0.1:4521']\n": {cli.Usage, "hint: set it to the port of this master, as in cluster_port: 4521"},
		threeMembers + "cluster_copies: 1\n":                                                             {cli.Usage, "1: with fewer than 3 copies"},
		threeMembers + "cluster_copies: 4\n":                                                             {cli.Usage, "as many members as 3 do"},
		threeMembers + "cluster_copies: 5\n":                                                             {cli.Usage, "5 copies need as many members"},
		threeMembers + "cluster_copies: 0\n":                                                             {cli.Usage, "0: with fewer than 3 copies"},
		"nats_servers: [n1:4222]\nnats_finger: [" + strings.Repeat("ab", 32) + "]\n":                     {0, ""},
		"nats_servers: [n1:4222]\n":                                                                      {cli.Usage, "neither nats_finger nor nats_ca"},
		"nats_servers: [n1]\nnats_finger: [" + strings.Repeat("ab", 32) + "]\n":                          {cli.Usage, "not a host:port"},
		"nats_servers: ['n1:0']\nnats_finger: [" + strings.Repeat("ab", 32) + "]\n":                      {cli.Usage, "has no port"},
		"nats_servers: [n1:4222]\nnats_finger: [abc]\n":                                                  {cli.Usage, "not a SHA-256 fingerprint"},
		"nats_servers: [n1:4222]\nnats_ca: nowhere.pem\n":                                                {cli.Usage, "nats_ca"},
		"nats_servers: [n1:4222]\nnats_finger: [" + strings.Repeat("ab", 32) + "]\nremote_login: True\n": {cli.Usage, "remote_login"},
	} {
		if code, said := check(t, text); code != want.code || !strings.Contains(said, want.says) {
			t.Errorf("--check of %q ends with %d and %q, want %d and %q", text, code, said, want.code, want.says)
		}
	}
}

// TestCheckOfKeys: a signing pair, or a signature, for which a start would fail is a mistake.
func TestCheckOfKeys(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"master", "master_sign", "other"} {
		if _, _, err := pki.EnsurePair(dir, name, pki.Ed25519, 0); err != nil {
			t.Fatal(err)
		}
	}
	const pairs, signed = "master_sign_pubkey: True\n", "master_sign_pubkey: True\nmaster_use_pubkey_signature: True\n"
	expect := func(text string, code int, words ...string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "master"), []byte("root_dir: "+dir+"\npki_dir: .\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		got := Run(t.Context(), &cli.Env{Name: "salt-master", Args: []string{"-c", dir, "--check"}, Stdout: &said, Stderr: io.Discard, Getenv: func(string) string { return "" }})
		for _, w := range words {
			if got != code || !strings.Contains(said.String(), w) {
				t.Errorf("--check of %q ends with %d and %q, want %d and %q", text, got, said.String(), code, w)
			}
		}
	}
	expect(pairs, 0, "")
	expect(signed, cli.Usage, "error: Signing the master.pub key with a signature is enabled but no signature file found", "hint: make it with 'salt-key --gen-signature'")
	if err := os.Rename(filepath.Join(dir, "other.pub"), filepath.Join(dir, "master_sign.pub")); err != nil {
		t.Fatal(err)
	}
	expect(pairs, cli.Usage, "error: public key "+dir+"/master_sign.pub: it does not belong to the private key beside it", "hint: if the .pem file is the right one")
	expect(pairs+"ret_port: x\n", cli.Usage, "error: ret_port", "error: public key ")
}

// TestCheckOfKeysOfACluster: a member without the signing pair of the others would make another one.
func TestCheckOfKeysOfACluster(t *testing.T) {
	const warning = "warning: there is no signing pair master_sign in "
	if code, said := check(t, threeMembers); code != 0 || !strings.Contains(said, warning) || !strings.Contains(said, "copy master_sign.pem and master_sign.pub") {
		t.Errorf("a member ends with %d and %q", code, said)
	}
	if code, said := check(t, "master_sign_pubkey: True\njournal_mirror: 198.51.100.1:4507\n"); code != 0 || !strings.Contains(said, warning) || !strings.Contains(said, "Both masters share this pair") {
		t.Errorf("one of two masters ends with %d and %q", code, said)
	}
	for _, text := range []string{"master_sign_pubkey: True\n", strings.Replace(threeMembers, "master_sign_pubkey: True\n", "", 1)} {
		if _, said := check(t, text); strings.Contains(said, warning) {
			t.Errorf("%q: %q", text, said)
		}
	}
}

// TestCheckOfTheStore: data in the store of another mode, for which a start would refuse, is a mistake in the words of the start and with
// its exit code. Nothing is touched, also not what a start would remove.
func TestCheckOfTheStore(t *testing.T) {
	hosted := "nats_servers: ['127.0.0.1:1']\nnats_jetstream: True\nnats_finger: [" + strings.Repeat("ab", 32) + "]\n"
	own, cluster := "journal/jetstream/$G/streams/EVENTS/meta.inf", "cluster/jetstream/$G/streams/EVENTS_127_0_0_2_4520/meta.inf"
	for name, c := range map[string]struct {
		text  string
		files []string // below cachedir
		says  string   // "" is nothing
	}{
		"alone":                                {"", []string{own}, ""},
		"alone, empty":                         {"", nil, ""},
		"alone, remains of a restore":          {"", []string{own, "restore/store/part"}, ""},
		"alone, with that of a member":         {"", []string{cluster, "restore/store/part"}, "cache/cluster, the store of a master that is a member of a cluster; by its configuration it is alone"},
		"alone, with both":                     {"", []string{own, cluster}, "have data, and only one of them can be used"},
		"alone, with an order":                 {"", []string{"restore.json"}, "orders a restore for a member of a cluster"},
		"alone, its data at NATS servers":      {"", []string{"hosted"}, "is in the JetStream of its nats_servers"},
		"a member":                             {threeMembers, []string{cluster}, ""},
		"a member, with that of one alone":     {threeMembers, []string{own}, "cache/journal, the store of a master that is alone; by its configuration it is a member of a cluster"},
		"a member, told to restore it":         {threeMembers, []string{own, "restore.json"}, ""},
		"a member, with the store of another":  {threeMembers, []string{cluster, "cluster/member"}, "is the store of the member {}, and this master is 127_0_0_2_4520"},
		"a member, with that of another id":    {threeMembers, []string{cluster, "cluster/cluster_id"}, "is the store of a member of the cluster {}, and this master is a member of prod"},
		"at NATS servers":                      {hosted, nil, ""},
		"at NATS servers, with that of before": {hosted, []string{own}, "by its configuration it is in the JetStream of nats_servers"},
	} {
		dir := t.TempDir()
		for _, file := range append(c.files, "../pki/x") {
			path := filepath.Join(dir, "root/cache", file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("{}"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "master"), []byte("root_dir: "+dir+"/root\ncachedir: cache\npki_dir: pki\nsock_dir: sock\n"+c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		run := func(more ...string) (int, string) {
			var said strings.Builder
			env := &cli.Env{Name: "salt-master", Args: append([]string{"-c", dir}, more...), Stdout: &said, Stderr: &said, Getenv: func(string) string { return "" }}
			return Run(t.Context(), env), said.String()
		}
		before := tree(t, dir)
		code, said := run("--check")
		if after := tree(t, dir); after != before {
			t.Errorf("%s: --check has made %s of %s", name, after, before)
		}
		if c.says == "" {
			if code != 0 || strings.Contains(said, "error") {
				t.Errorf("%s: --check ends with %d and %q", name, code, said)
			}
			continue
		}
		if code != cli.Usage || !strings.Contains(said, "error: ") || !strings.Contains(said, c.says) {
			t.Errorf("%s: --check ends with %d and %q, want %d and %q", name, code, said, cli.Usage, c.says)
		}
		started, refused := run()
		for line := range strings.Lines(said) {
			if text := strings.TrimSpace(line); !strings.HasPrefix(text, "warning: ") && !strings.Contains(refused, text) {
				t.Errorf("%s: a start says %q, and not what --check says: %q", name, refused, text)
			}
		}
		if started != code {
			t.Errorf("%s: a start ends with %d, and --check with %d", name, started, code)
		}
	}
}

// tree is what is in a directory, with the times of the last changes.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var text strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil {
			fmt.Fprintln(&text, path, info.Mode(), info.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// TestCheckAsTheDaemon: what the daemon's user may not read, and a user that is not known, ends the check as a start.
func TestCheckAsTheDaemon(t *testing.T) {
	if code, said := check(t, "user: nosuch-user\n"); code != cli.NoPermission || !strings.Contains(said, "error: configured to run as user \"nosuch-user\"") || !strings.Contains(said, "hint: create the user") {
		t.Errorf("a user that is not known: %d and %q", code, said)
	}
	denied := salt.WithHint(fmt.Errorf("private key: %w", fs.ErrPermission), "run it as root")
	other := errors.New("x")
	if unseen, bad := readable([]error{denied, other}, false); len(unseen) != 1 || len(bad) != 1 || bad[0] != other {
		t.Errorf("of another user: %v, %v", unseen, bad)
	}
	if unseen, bad := readable([]error{denied, other}, true); len(unseen) != 0 || len(bad) != 2 {
		t.Errorf("of the daemon's user: %v, %v", unseen, bad)
	}
	if err := serve.Check(&cli.Env{Stdout: io.Discard}, serve.Checked{Err: config.Mistake(denied)}); cli.Code(err) != cli.NoPermission {
		t.Errorf("it ends with %d", cli.Code(err))
	}
}

// TestOptionsOfTheStore: an option that means nothing by itself, or of which one would be ignored, does
// not start the daemon.
func TestOptionsOfTheStore(t *testing.T) {
	for line, want := range map[string]string{
		"--restore-as m1":               "--restore-as needs --restore or --repair",
		"--restore-as m1 --check":       "--restore-as needs --restore or --repair",
		"--restore /b --repair":         "--restore and --repair do not go together",
		"--repair --nats-config":        "--repair and --nats-config do not go together",
		"--restore-as m1 --nats-config": "--restore-as needs --restore or --repair",
	} {
		var out strings.Builder
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "master"), []byte("root_dir: "+dir+"/root\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // a daemon that starts ends at once
		code := Run(ctx, &cli.Env{Name: "salt-master", Args: append([]string{"-c", dir}, strings.Fields(line)...), Stdout: io.Discard, Stderr: &out, Getenv: func(string) string { return "" }})
		if code != cli.Usage || !strings.Contains(out.String(), want) {
			t.Errorf("%s ends with %d and %q, want %d and %q", line, code, out.String(), cli.Usage, want)
		}
	}
}

// TestTheSecretOfNATSConfigIsForTheMaster: --nats-config by root makes it for the user of the daemon.
func TestTheSecretOfNATSConfigIsForTheMaster(t *testing.T) {
	const variable = "BRINE_TEST_NATS_CONFIG"
	if dir := os.Getenv(variable); dir != "" { // the process becomes another user for good
		if code := Run(t.Context(), &cli.Env{Name: "salt-master", Args: []string{"-c", dir, "--nats-config"}, Stdout: io.Discard, Stderr: os.Stderr, Getenv: func(string) string { return "" }}); code != 0 {
			t.Fatal(code)
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to act as another user")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	uid, err := strconv.Atoi(nobody.Uid)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "master"), []byte("user: nobody\npki_dir: "+dir+"/pki\nnats_servers: [n1:4222]\nnats_finger: ["+strings.Repeat("ab", 32)+"]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(dir+"/pki", 0o700), os.Chown(dir+"/pki", uid, -1)); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), variable+"="+dir)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(dir + "/pki/master_nats.seed")
	if err != nil {
		t.Fatal(err)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !ok || int(s.Uid) != uid {
		t.Errorf("it belongs to %v, want user %d", info.Sys(), uid)
	}
}

// TestEveryStateOfAKeyHasALabel: a figure without one would be counted with those of others.
func TestEveryStateOfAKeyHasALabel(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range pki.AllStates() {
		label := keyStates[s]
		if label == "" || seen[label] {
			t.Errorf("the state %v is shown as %q", s, label)
		}
		seen[label] = true
	}
}
