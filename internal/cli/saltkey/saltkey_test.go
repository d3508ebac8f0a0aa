package saltkey_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/saltkey"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/deadline"
)

// master is a scratch master host: a configuration and a key directory.
type master struct {
	t    *testing.T
	conf string
	pki  string
}

func newMaster(t *testing.T, settings ...string) *master {
	t.Helper()
	root := t.TempDir()
	m := &master{t: t, conf: filepath.Join(root, "etc"), pki: filepath.Join(root, "pki")}
	text := "root_dir: " + root + "\npki_dir: /pki\n" + strings.Join(settings, "\n") + "\n"
	m.must(os.Mkdir(m.conf, 0o700))
	m.must(os.WriteFile(filepath.Join(m.conf, "master"), []byte(text), 0o600))
	_, err := pki.OpenStore(m.pki)
	m.must(err)
	return m
}

func (m *master) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *master) store() *pki.Store {
	m.t.Helper()
	s, err := pki.OpenExistingStore(m.pki)
	m.must(err)
	return s
}

// connect lets a minion with a new key connect, and returns the key.
func (m *master) connect(id salt.MinionID) pki.PublicKey {
	m.t.Helper()
	key := newKey(m.t).Public()
	_, err := m.store().Submit(id, key)
	m.must(err)
	return key
}

func newKey(t testing.TB) *pki.PrivateKey {
	t.Helper()
	k, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// state returns what the master thinks of a key.
func (m *master) state(id salt.MinionID, key pki.PublicKey) string {
	m.t.Helper()
	s, err := m.store().Lookup(id, key)
	m.must(err)
	return s.String()
}

// result is what a command left.
type result struct {
	code     int
	out, err string
}

// run runs a command; stdin is what the person types.
func (m *master) run(stdin string, args ...string) result {
	return runIn(m.conf, stdin, args...)
}

func runIn(conf, stdin string, args ...string) result {
	var out, errs bytes.Buffer
	env := &cli.Env{
		Name: "salt-key", Args: append([]string{"-c", conf}, args...),
		Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs,
		Getenv: func(string) string { return "" }, StderrTTY: true,
	}
	code := saltkey.Run(context.Background(), env)
	return result{code, out.String(), errs.String()}
}

// want checks all three; out and err are patterns of the whole text.
func (r result) want(t *testing.T, code int, out, err string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	for _, s := range []struct{ name, got, want string }{{"stdout", r.out, out}, {"stderr", r.err, err}} {
		if !regexp.MustCompile(`(?s)^(?:` + s.want + `)$`).MatchString(s.got) {
			t.Errorf("%s:\n%s\nwant a match for:\n%s", s.name, s.got, s.want)
		}
	}
}

// lines is the pattern of exactly these lines.
func lines(text ...string) string { return regexp.QuoteMeta(strings.Join(text, "\n") + "\n") }

const nothing = ""

func TestListEmpty(t *testing.T) {
	m := newMaster(t)
	headings := lines("Accepted Keys:", "Denied Keys:", "Unaccepted Keys:", "Rejected Keys:")
	for _, args := range [][]string{nil, {"-L"}, {"--list-all"}, {"-l", "all"}, {"--list=all"}} {
		m.run("", args...).want(t, cli.OK, headings, nothing)
	}
}

func TestList(t *testing.T) {
	m := newMaster(t)
	for _, id := range []salt.MinionID{"web2", "db1", "web1"} {
		m.connect(id)
	}
	m.run("", "-y", "-a", "db1").want(t, cli.OK, ".*", nothing)
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"all", []string{"-L"}, []string{"Accepted Keys:", "db1", "Denied Keys:", "Unaccepted Keys:", "web1", "web2", "Rejected Keys:"}},
		{"un", []string{"-l", "un"}, []string{"Unaccepted Keys:", "web1", "web2"}},
		{"pre", []string{"-lpre"}, []string{"Unaccepted Keys:", "web1", "web2"}},
		{"unaccepted", []string{"--list=unaccepted"}, []string{"Unaccepted Keys:", "web1", "web2"}},
		{"acc", []string{"-l", "acc"}, []string{"Accepted Keys:", "db1"}},
		{"accepted", []string{"-l", "accepted"}, []string{"Accepted Keys:", "db1"}},
		{"rej", []string{"-l", "rej"}, []string{"Rejected Keys:"}},
		{"rejected", []string{"-l", "rejected"}, []string{"Rejected Keys:"}},
		{"den", []string{"-l", "den"}, []string{"Denied Keys:"}},
		{"denied", []string{"-l", "denied"}, []string{"Denied Keys:"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { m.run("", tt.args...).want(t, cli.OK, lines(tt.want...), nothing) })
	}
}

func TestListForPrograms(t *testing.T) {
	m := newMaster(t)
	m.connect("web1")
	r := m.run("", "-L", "--out", "json")
	r.want(t, cli.OK, ".*", nothing)
	var got map[string][]string
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatalf("%v: %s", err, r.out)
	}
	for _, name := range []string{"minions", "minions_pre", "minions_rejected", "minions_denied"} {
		if list, ok := got[name]; !ok || (len(list) == 1) != (name == "minions_pre") {
			t.Errorf("%s is %v", name, list)
		}
	}
	m.run("", "-L", "--out=yaml").want(t, cli.OK, `.*minions_pre:\n- web1\n.*`, nothing)
}

func TestListVerbose(t *testing.T) {
	m := newMaster(t)
	key := m.connect("web1")
	m.run("", "-L", "-v").want(t, cli.OK, lines("Accepted Keys:", "Denied Keys:", "Unaccepted Keys:")+
		`web1:  SHA256:`+key.SHA256()+`  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\nRejected Keys:\n`, nothing)
	m.run("", "-L", "-v", "--out", "json").want(t, cli.OK, `.*"fingerprint": "`+key.SHA256()+`".*`, nothing)
}

func TestColor(t *testing.T) {
	m := newMaster(t)
	m.connect("web1")
	m.run("", "-l", "un", "--force-color").want(t, cli.OK,
		regexp.QuoteMeta("\x1b[0;1;31mUnaccepted Keys:\x1b[0;0m\n\x1b[0;31mweb1\x1b[0;0m\n"), nothing)
}

func TestUsageErrors(t *testing.T) {
	m := newMaster(t)
	m.connect("web1")
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"state that is none", []string{"-l", "bogus"}, `salt-key: error: 'bogus' is not a valid argument to '--list'\n`},
		{"option that is none", []string{"--bogus"}, `salt-key: error: no such option: --bogus\n.*`},
		{"stray word", []string{"web1"}, `salt-key: error: unexpected argument "web1"\n.*hint: .*salt-key -a web1.*`},
		{"second word", []string{"-y", "-a", "web1", "web2"}, `salt-key: error: unexpected argument "web2"\n.*`},
		{"two actions", []string{"-y", "-a", "web1", "-d", "web1"}, `salt-key: error: --accept and --delete do not go together\n`},
		{"lost value", []string{"-a", "-y"}, `salt-key: error: -a option requires an argument\n.*`},
		{"empty value", []string{"-y", "-a", ""}, `salt-key: error: "" is neither an id nor a pattern of ids\n`},
		{"empty word between commas", []string{"-y", "-d", "web1,,web2"}, `salt-key: error: "" is neither an id.*`},
		{"short fingerprint", []string{"-y", "-a", "web1@SHA256:0f:5b"}, `.*error: key "web1@SHA256:0f:5b": .*first 8 hex digits.*`},
		{"fingerprint that is none", []string{"-y", "-a", "web1@SHA256:hello world"}, `.*first 8 hex digits.*`},
		{"small RSA key", []string{"--gen-keys=x", "--keysize=1024"}, `salt-key: error: the minimum value for keysize is 2048\n`},
		{"huge RSA key", []string{"--gen-keys=x", "--keysize=16384"}, `salt-key: error: the maximum value for keysize is 8192\n`},
		{"size of an Ed25519 key", []string{"--gen-keys=x", "--keysize=4096", "--key-type=ed25519"}, `.*--keysize is for RSA keys.*`},
		{"key type that is none", []string{"--gen-keys=x", "--key-type=dsa"}, `.*"dsa" is not one of ed25519, rsa\n`},
		{"key in another directory", []string{"--gen-keys=../x"}, `.*option --gen-keys: invalid minion id.*`},
		{"hash that is none", []string{"-F", "--finger-hash=crc32"}, `.*option --finger-hash: unknown hash "crc32".*`},
		{"outputter that is none", []string{"-L", "--out", "bogus"}, `.*option --out: no such outputter: "bogus"\n.*`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m.run("", tt.args...).want(t, cli.Usage, nothing, tt.want)
		})
	}
	m.run("", "-l", "un").want(t, cli.OK, lines("Unaccepted Keys:", "web1"), nothing)
}

func TestAcceptAsks(t *testing.T) {
	asked := lines("The following keys are going to be accepted:", "Unaccepted Keys:", "web1")
	tests := []struct {
		name, stdin string
		code        int
		out, err    string
		state       string
	}{
		{"enter", "\n", cli.OK, asked + lines("Key for minion web1 accepted."), `Proceed\? \[n/Y\] `, "accepted"},
		{"y", "y\n", cli.OK, asked + lines("Key for minion web1 accepted."), `Proceed\? \[n/Y\] `, "accepted"},
		{"n", "n\n", cli.OK, asked, `Proceed\? \[n/Y\] salt-key: note: nothing changed\n`, "pending"},
		{"end of input", "", cli.Failed, asked, `Proceed\? \[n/Y\] \nsalt-key: error: .*input has ended; nothing changed\nsalt-key: hint: -y proceeds without asking\n`, "pending"},
		{"something else", "what\nwhat\nwhat\n", cli.Failed, asked, `.*no usable answer.*`, "pending"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMaster(t)
			key := m.connect("web1")
			m.run(tt.stdin, "-a", "web1").want(t, tt.code, tt.out, tt.err)
			if got := m.state("web1", key); got != tt.state {
				t.Errorf("the key is %s, want %s", got, tt.state)
			}
		})
	}
}

func TestDeleteAsksWithNoByDefault(t *testing.T) {
	m := newMaster(t)
	key := m.connect("web1")
	m.run("\n", "-d", "web1").want(t, cli.OK, lines("The following keys are going to be deleted:", "Unaccepted Keys:", "web1"),
		`Proceed\? \[N/y\] salt-key: note: nothing changed\n`)
	if got := m.state("web1", key); got != "pending" {
		t.Errorf("after Enter the key is %s", got)
	}
	m.run("y\n", "-d", "web1").want(t, cli.OK, ".*"+lines("Key for minion web1 deleted."), ".*")
	if got := m.state("web1", key); got != "unknown" {
		t.Errorf("after y the key is %s", got)
	}
}

// TestDecisions walks the decisions over the states. Each row starts with web1
// in the state from, alone.
func TestDecisions(t *testing.T) {
	gone := `salt-key: error: The key glob 'web1' does not match any %s keys.\nsalt-key: hint: web1 is %s; .*`
	tests := []struct {
		from string
		args string
		code int
		to   string
		err  string
	}{
		{"pending", "-a web1", cli.OK, "accepted", nothing},
		{"pending", "-a we*", cli.OK, "accepted", nothing},
		{"pending", "-a web[0-9]", cli.OK, "accepted", nothing},
		{"pending", "-a w[!x]b1", cli.OK, "accepted", nothing},
		{"pending", "-a ?eb1,web1", cli.OK, "accepted", nothing},
		{"pending", "-a web1 -a web1", cli.OK, "accepted", nothing},
		{"pending", "-A", cli.OK, "accepted", nothing},
		{"pending", "-r web1", cli.OK, "rejected", nothing},
		{"pending", "-R", cli.OK, "rejected", nothing},
		{"pending", "-d web1", cli.OK, "unknown", nothing},
		{"pending", "-D", cli.OK, "unknown", nothing},
		{"accepted", "-a web1", cli.Failed, "accepted", fmt.Sprintf(gone, "unaccepted", "accepted")},
		{"accepted", "-a web1 --include-all", cli.Failed, "accepted", fmt.Sprintf(gone, "unaccepted or rejected", "accepted")},
		{"accepted", "-r web1", cli.Failed, "accepted", fmt.Sprintf(gone, "unaccepted", "accepted")},
		{"accepted", "-r web1 --include-accepted", cli.OK, "rejected", nothing},
		{"accepted", "-r web1 --include-all", cli.OK, "rejected", nothing},
		{"accepted", "-R", cli.OK, "accepted", `salt-key: note: there is no key to be rejected\n`},
		{"accepted", "-R --include-accepted", cli.OK, "rejected", nothing},
		{"accepted", "-A", cli.OK, "accepted", `salt-key: note: there is no key to be accepted\n`},
		{"accepted", "-d web1", cli.OK, "unknown", nothing},
		{"rejected", "-a web1", cli.Failed, "rejected", fmt.Sprintf(gone, "unaccepted", "rejected")},
		{"rejected", "-a web1 --include-rejected", cli.OK, "accepted", nothing},
		{"rejected", "-a web1 --include-all", cli.OK, "accepted", nothing},
		{"rejected", "-A --include-rejected", cli.OK, "accepted", nothing},
		{"rejected", "-d web1", cli.OK, "unknown", nothing},
		{"pending", "-a nosuch", cli.Failed, "pending", `salt-key: error: The key glob 'nosuch' does not match any unaccepted keys.\n`},
		{"pending", "-a web1,nosuch", cli.Failed, "pending", `salt-key: error: The key glob 'nosuch' does not match any unaccepted keys.\n`},
		{"pending", "-r nosuch", cli.Failed, "pending", `salt-key: error: The key glob 'nosuch' does not match any unaccepted keys.\n`},
		{"pending", "-d nosuch", cli.Failed, "pending", `salt-key: error: The key glob 'nosuch' does not match any keys.\n`},
		{"pending", "-a WEB1", cli.Failed, "pending", `.*'WEB1' does not match.*`},
	}
	for _, tt := range tests {
		t.Run(tt.from+" "+tt.args, func(t *testing.T) {
			m := newMaster(t)
			key := m.connect("web1")
			switch tt.from {
			case "accepted":
				m.run("", "-y", "-a", "web1")
			case "rejected":
				m.run("", "-y", "-r", "web1")
			}
			m.run("", append(strings.Fields(tt.args), "-y")...).want(t, tt.code, ".*", tt.err)
			if got := m.state("web1", key); got != tt.to {
				t.Errorf("the key is %s, want %s", got, tt.to)
			}
		})
	}
}

// TestKeysOfOneID is an id with an accepted key and two unaccepted ones.
func TestKeysOfOneID(t *testing.T) {
	m := newMaster(t)
	own := m.connect("web1")
	m.run("", "-y", "-a", "web1").want(t, cli.OK, ".*", nothing)
	foreign, other := m.connect("web1"), m.connect("web1")

	m.run("", "-l", "acc").want(t, cli.OK, lines("Accepted Keys:", "web1"), `salt-key: warning: some ids have several keys.*`)
	m.run("", "-l", "den", "-v").want(t, cli.OK, `Denied Keys:\n(web1@SHA256:\S+:  SHA256:.*\n){2}`, nothing)

	t.Run("the accepted key must go first", func(t *testing.T) {
		m.run("", "-y", "-a", "web1@SHA256:"+foreign.SHA256()[:11]).want(t, cli.Failed, ".*",
			`salt-key: error: .*another key is accepted for this id.*\nsalt-key: hint: .*salt-key -d web1@`+own.SHA256()+"\n")
	})
	t.Run("reject one unaccepted key", func(t *testing.T) {
		m.run("", "-y", "-r", "web1@"+foreign.SHA256()).want(t, cli.OK, ".*"+lines("Key for minion web1 rejected."), nothing)
	})
	t.Run("delete the other", func(t *testing.T) {
		m.run("", "-y", "-d", "web1@SHA256:"+strings.ToUpper(other.SHA256()[:14])).want(t, cli.OK, ".*"+lines("Key for minion web1 deleted."), nothing)
	})
	if a, b, c := m.state("web1", own), m.state("web1", foreign), m.state("web1", other); a != "accepted" || b != "rejected" || c != "denied" {
		t.Errorf("own %s, foreign %s, other %s", a, b, c)
	}
	entries, _, err := m.store().List()
	if len(entries) != 2 || err != nil {
		t.Errorf("%d keys are left, %v; want 2", len(entries), err)
	}
}

func TestTwoUnacceptedKeysCannotBothBeAccepted(t *testing.T) {
	m := newMaster(t)
	own := m.connect("web1")
	foreign := m.connect("web1")
	m.run("", "-y", "-a", "web1", "--include-denied").want(t, cli.Failed, nothing, `salt-key: error: two of these keys have the same id.*`)
	if a, b := m.state("web1", own), m.state("web1", foreign); a != "pending" || b != "denied" {
		t.Errorf("own %s, foreign %s", a, b)
	}
	m.run("", "-y", "-d", "web1").want(t, cli.OK, `.*Key for minion web1@SHA256:\S+ deleted.\nKey for minion web1@SHA256:\S+ deleted.\n`, nothing)
}

// TestIDThatLooksLikeAFingerprint is a minion that calls itself like another one
// with its fingerprint, to be accepted in its place.
func TestIDThatLooksLikeAFingerprint(t *testing.T) {
	m := newMaster(t)
	honest := m.connect("web1")
	id := salt.MinionID("web1@SHA256:" + honest.SHA256())
	liar := m.connect(id)
	m.run("", "-y", "-a", string(id)).want(t, cli.OK, ".*", nothing)
	if a, b := m.state("web1", honest), m.state(id, liar); a != "accepted" || b != "pending" {
		t.Errorf("honest %s, liar %s", a, b)
	}
	m.run("", "-y", "-d", string(id)+"@"+liar.SHA256()).want(t, cli.OK, ".*", nothing)
	if b := m.state(id, liar); b != "unknown" {
		t.Errorf("liar %s", b)
	}
}

func TestAtSignInAnID(t *testing.T) {
	m := newMaster(t)
	for _, id := range []salt.MinionID{"fred@cafe", "fred@host", "a@b:c"} {
		key := m.connect(id)
		m.run("", "-y", "-a", string(id)).want(t, cli.OK, ".*", nothing)
		if got := m.state(id, key); got != "accepted" {
			t.Errorf("%s is %s", id, got)
		}
	}
}

func TestAmbiguousFingerprint(t *testing.T) {
	m := newMaster(t)
	key := newKey(t).Public()
	for _, id := range []salt.MinionID{"web1", "web2"} { // a cloned machine
		_, err := m.store().Submit(id, key)
		m.must(err)
	}
	m.run("", "-y", "-a", "*@"+key.SHA256()).want(t, cli.Failed, nothing, `salt-key: error: the fingerprint in .* is that of 2 keys\nsalt-key: hint: .*`)
	m.run("", "-y", "-a", "web2@"+key.SHA256()).want(t, cli.OK, ".*", nothing)
	if a, b := m.state("web1", key), m.state("web2", key); a != "pending" || b != "accepted" {
		t.Errorf("web1 %s, web2 %s", a, b)
	}
}

func TestQuiet(t *testing.T) {
	m := newMaster(t)
	m.connect("web1")
	m.run("", "-q", "-y", "-a", "web1").want(t, cli.OK, nothing, nothing)
	m.run("", "-q", "-y", "-A").want(t, cli.OK, nothing, nothing)
	m.run("y\n", "-q", "-d", "web1").want(t, cli.OK, nothing, `The following keys .*web1\nProceed\? \[N/y\] `)
	m.run("", "-q", "-y", "-d", "web1").want(t, cli.Failed, nothing, `salt-key: error: .*`)
}

func TestDecisionsForPrograms(t *testing.T) {
	m := newMaster(t)
	m.connect("web1")
	m.connect("web2")
	m.run("y\n", "-a", "web*", "--out", "json").want(t, cli.OK, `\{\n    "minions": \[\n        "web1",\n        "web2"\n    \]\n\}\n`, `The following .*Proceed\? \[n/Y\] `)
	m.run("", "-y", "-d", "web2", "--out", "jsonl").want(t, cli.OK, `\{"minions": \["web2"\]\}\n`, nothing)
	m.run("", "-y", "-D", "--out", "json").want(t, cli.OK, ".*", nothing)
	m.run("", "-y", "-D", "--out", "json").want(t, cli.OK, `\{\}\n`, ".*note: there is no key.*")
}

func TestOutFile(t *testing.T) {
	m := newMaster(t)
	m.connect("web1")
	file := filepath.Join(t.TempDir(), "out")
	m.run("", "-y", "-a", "web1", "--out-file", file).want(t, cli.OK, nothing, nothing)
	text, err := os.ReadFile(file)
	if want := "The following keys are going to be accepted:\nUnaccepted Keys:\nweb1\nKey for minion web1 accepted.\n"; string(text) != want || err != nil {
		t.Errorf("the file holds %q, %v", text, err)
	}
}

func TestFinger(t *testing.T) {
	m := newMaster(t)
	own, _, err := pki.EnsurePair(m.pki, "master", pki.Ed25519, 0)
	m.must(err)
	key := m.connect("web1")
	md5, _ := key.Fingerprint("md5")
	masters := []string{"Local Keys:", "master.pem:  " + own.Public().SHA256(), "master.pub:  " + own.Public().SHA256()}
	minions := []string{"Unaccepted Keys:", "web1:  " + key.SHA256()}
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"one", []string{"-f", "web1"}, lines(minions...)},
		{"by pattern", []string{"-f", "web*"}, lines(minions...)},
		{"by fingerprint", []string{"-f", "web1@" + key.SHA256()[:11]}, lines(minions...)},
		{"by fingerprint of another hash", []string{"-f", "web1@MD5:" + md5}, lines(minions...)},
		{"other hash", []string{"-f", "web1", "--finger-hash", "md5"}, lines("Unaccepted Keys:", "web1:  "+md5)},
		{"all", []string{"-F"}, lines(append(masters, minions...)...)},
		{"all, as many write it", []string{"-F", "master"}, lines(append(masters, minions...)...)},
		{"own", []string{"-f", "master.pub"}, lines("Local Keys:", "master.pub:  "+own.Public().SHA256())},
		{"everything by pattern", []string{"-f", "*"}, lines(append(masters, minions...)...)},
		{"for programs", []string{"-f", "web1", "--out=jsonl"}, `\{"minions_pre": \{"web1": "` + key.SHA256() + `"\}\}` + "\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { m.run("", tt.args...).want(t, cli.OK, tt.want, nothing) })
	}
	m.run("", "-f", "nosuch").want(t, cli.Failed, nothing, `salt-key: error: The key glob 'nosuch' does not match any keys.\n`)
	m.run("", "-F", "web1").want(t, cli.Usage, nothing, `.*unexpected argument "web1".*`)
}

func TestFingerHashOfTheConfiguration(t *testing.T) {
	m := newMaster(t, "hash_type: sha512")
	key := m.connect("web1")
	want, _ := key.Fingerprint("sha512")
	m.run("", "-f", "web1").want(t, cli.OK, lines("Unaccepted Keys:", "web1:  "+want), nothing)
}

func TestPrint(t *testing.T) {
	m := newMaster(t)
	key := m.connect("web1")
	want := regexp.QuoteMeta("Unaccepted Keys:\nweb1:  " + strings.TrimSpace(string(key.PEM())) + "\n")
	m.run("", "-p", "web1").want(t, cli.OK, want+"\n*", nothing)
	m.run("", "-P").want(t, cli.OK, want+"\n*", nothing)
	m.run("", "-p", "nosuch").want(t, cli.Failed, nothing, `.*does not match any keys.\n`)
}

func TestGarbageInTheKeyDirectory(t *testing.T) {
	m := newMaster(t)
	m.connect("web1")
	m.must(os.WriteFile(filepath.Join(m.pki, "minions", "web2"), []byte("x"), 0o644))
	m.run("", "-y", "-a", "web1").want(t, cli.OK, ".*"+lines("Key for minion web1 accepted."),
		`salt-key: warning: public key .*/minions/web2: no PEM block in it\nsalt-key: hint: .*`)
}

func TestMissingDirectories(t *testing.T) {
	m := newMaster(t)
	m.must(os.RemoveAll(m.pki))
	for _, args := range [][]string{{"-L"}, {"-a", "x"}, {"-F"}, {"--gen-signature"}} {
		m.run("", args...).want(t, cli.Failed, nothing, `salt-key: error: .*`+m.pki+`.*: no such file or directory\nsalt-key: hint: .*`)
	}
	if _, err := os.Stat(m.pki); err == nil {
		t.Error("looking made the directory")
	}
	runIn(filepath.Join(m.conf, "nosuch"), "", "-L").want(t, cli.Usage, nothing, `salt-key: error: .*nosuch.*`)
}

func TestUnreadableDirectories(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root can read everything: run as another user")
	}
	m := newMaster(t)
	m.must(os.Chmod(m.pki, 0))
	defer os.Chmod(m.pki, 0o700)
	for _, args := range [][]string{{"-L"}, {"-a", "x"}, {"-F"}, {"--gen-signature"}} {
		m.run("", args...).want(t, cli.NoPermission, nothing, `salt-key: error: .*permission denied\nsalt-key: hint: run salt-key as root.*`)
	}
	m.must(os.Chmod(filepath.Join(m.conf, "master"), 0))
	m.run("", "-L").want(t, cli.NoPermission, nothing, `salt-key: error: .*permission denied\nsalt-key: hint: run salt-key as root.*`)
}

func TestStateDirectoriesMayBeMissing(t *testing.T) {
	m := newMaster(t)
	key := m.connect("web1")
	m.must(os.Remove(filepath.Join(m.pki, "minions")))
	m.run("", "-y", "-a", "web1").want(t, cli.OK, ".*", nothing)
	if got := m.state("web1", key); got != "accepted" {
		t.Errorf("the key is %s", got)
	}
}

func TestIgnoredOptions(t *testing.T) {
	m := newMaster(t)
	m.run("", "--rotate-aes-key", "True", "--preserve-minions=true", "-l", "un").want(t, cli.OK, lines("Unaccepted Keys:"),
		`salt-key: note: --rotate-aes-key has no effect in Brine: minions share no key.*\nsalt-key: note: --preserve-minions has .*: what the master knows .*`)
	m.run("", "-u", "root", "-l", "un").want(t, cli.Usage, nothing, `salt-key: error: --user: a program runs as who starts it.*\nsalt-key: hint: 'sudo -u USER .*`)
}

func TestGenKeys(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	m := newMaster(t)
	dir := filepath.Join(t.TempDir(), "new")
	args := []string{"--gen-keys=web1", "--gen-keys-dir=" + dir}
	first := m.run("", args...)
	key, err := pki.LoadPrivate(filepath.Join(dir, "web1.pem"))
	m.must(err)
	want := lines(dir+"/web1.pem, "+dir+"/web1.pub", "SHA256:"+key.Public().SHA256())
	first.want(t, cli.OK, want, nothing)
	if key.Type() != pki.Ed25519 {
		t.Errorf("made a key of type %s", key.Type())
	}
	for name, mode := range map[string]fs.FileMode{"": 0o700, "web1.pem": 0o400, "web1.pub": 0o644} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%q: %v, %v; want mode %04o", name, info.Mode(), err, mode)
		}
	}
	m.run("", args...).want(t, cli.OK, want, `salt-key: note: .*web1.pem exists already and was left as it is\n`)
	m.run("", append(args, "-q")...).want(t, cli.OK, nothing, nothing)
	m.must(os.Chmod(filepath.Join(dir, "web1.pem"), 0o644))
	m.run("", args...).want(t, cli.Failed, nothing, `salt-key: error: private key .*others may access it.*\nsalt-key: hint: chmod 0400 .*`)
}

func TestGenKeysRSA(t *testing.T) {
	m := newMaster(t, "keysize: 2048")
	dir := t.TempDir()
	for name, args := range map[string][]string{"a": {"--keysize=2048"}, "b": {"--key-type=rsa"}} {
		m.run("", append(args, "--gen-keys="+name, "--gen-keys-dir="+dir, "--out=json")...).want(t, cli.OK, `.*"type": "rsa".*`, nothing)
		if p, err := pki.LoadPublic(filepath.Join(dir, name+".pub")); err != nil || p.Type() != pki.RSA {
			t.Errorf("%s: %v, %v", name, p.Type(), err)
		}
	}
}

// signing returns a master with its own key pair.
func signing(t *testing.T, settings ...string) *master {
	m := newMaster(t, settings...)
	_, _, err := pki.EnsurePair(m.pki, "master", pki.Ed25519, 0)
	m.must(err)
	return m
}

// checkSignature is what a minion does with the file and master_sign.pub.
func (m *master) checkSignature(file, signer string) {
	m.t.Helper()
	text, err := os.ReadFile(file)
	m.must(err)
	if strings.Count(string(text), "\n") != 1 || !strings.HasSuffix(string(text), "\n") {
		m.t.Errorf("the signature is not one line: %q", text)
	}
	sig, err := pki.ParseSignature(text)
	m.must(err)
	signed, err := pki.LoadPublic(filepath.Join(m.pki, "master.pub"))
	m.must(err)
	by, err := pki.LoadPublic(filepath.Join(m.pki, signer))
	m.must(err)
	if err := by.VerifyPublic(signed, sig); err != nil {
		m.t.Error(err)
	}
}

func TestGenSignature(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	m := signing(t)
	file := filepath.Join(m.pki, "master_pubkey_signature")
	m.run("", "--gen-signature").want(t, cli.Failed, nothing, `salt-key: error: private key .*master_sign.pem: no such file or directory\nsalt-key: hint: --auto-create makes it.*`)
	m.run("", "--verify-signature").want(t, cli.Failed, nothing, `salt-key: error: .*`)
	m.run("", "--gen-signature", "--auto-create").want(t, cli.OK,
		`New signing key: .*master_sign.pem\nThe signature was written: `+file+`\n  of key     SHA256:.*  .*master.pub\n  signed by  SHA256:.*  .*master_sign.pem\n`, nothing)
	m.checkSignature(file, "master_sign.pub")
	before, _ := os.ReadFile(file)
	m.run("", "--gen-signature", "--auto-create").want(t, cli.OK, `The valid signature was left as it is: .*`, nothing)
	m.run("", "--gen-signature", "-q").want(t, cli.OK, nothing, nothing)
	m.run("", "--verify-signature").want(t, cli.OK, `The signature is valid: .*`, nothing)
	m.run("", "--verify-signature", "--out", "json").want(t, cli.OK, `.*"valid": true\n\}\n`, nothing)
	if after, _ := os.ReadFile(file); !bytes.Equal(before, after) {
		t.Error("the valid signature was written again")
	}
	for name, mode := range map[string]fs.FileMode{"master_sign.pem": 0o400, "master_sign.pub": 0o644, "master_pubkey_signature": 0o644} {
		if info, err := os.Stat(filepath.Join(m.pki, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want mode %04o", name, info.Mode(), err, mode)
		}
	}
}

func TestSignatureThatDoesNotFit(t *testing.T) {
	m := signing(t)
	file := filepath.Join(m.pki, "master_pubkey_signature")
	m.run("", "--gen-signature", "--auto-create").want(t, cli.OK, ".*", nothing)
	other, err := newKey(t).SignPublic(newKey(t).Public())
	m.must(err)
	for name, text := range map[string][]byte{"words": []byte("old"), "of another key": pki.FormatSignature(other), "nothing": nil} {
		m.must(os.WriteFile(file, text, 0o644))
		m.run("", "--verify-signature").want(t, cli.Failed, nothing, `salt-key: error: .*master_pubkey_signature.*`)
		m.run("", "--gen-signature").want(t, cli.Failed, nothing, `salt-key: error: .*\nsalt-key: hint: --force replaces it\n`)
		if left, _ := os.ReadFile(file); !bytes.Equal(left, text) {
			t.Errorf("%s: the file was changed", name)
		}
	}
	m.run("", "--gen-signature", "--force").want(t, cli.OK, `The signature was written: .*`, nothing)
	m.checkSignature(file, "master_sign.pub")
}

func TestSignatureOptions(t *testing.T) {
	m := signing(t, "master_sign_key_name: corp_sign", "master_pubkey_signature: host_g2_sig")
	m.run("", "--gen-signature", "--auto-create").want(t, cli.OK, ".*", nothing)
	m.checkSignature(filepath.Join(m.pki, "host_g2_sig"), "corp_sign.pub")

	_, _, err := pki.EnsurePair(m.pki, "other", pki.Ed25519, 0)
	m.must(err)
	dir := t.TempDir()
	args := []string{"--priv", filepath.Join(m.pki, "other.pem"), "--pub", filepath.Join(m.pki, "master.pub"), "--signature-path", dir}
	m.run("", append(args, "--gen-signature")...).want(t, cli.OK, ".*", nothing)
	m.checkSignature(filepath.Join(dir, "host_g2_sig"), "other.pub")
	m.run("", append(args, "--verify-signature")...).want(t, cli.OK, "The signature is valid: .*", nothing)
	m.run("", "--verify-signature", "--signature-path", dir).want(t, cli.Failed, nothing, ".*the signature does not fit.*")

	file := filepath.Join(dir, "file")
	m.must(os.WriteFile(file, nil, 0o600))
	tests := map[string]struct {
		args []string
		err  string
	}{
		"no private key":           {[]string{"--priv", "/nonexist.pem"}, `.*private key /nonexist.pem: no such file.*`},
		"none is made there":       {[]string{"--priv", "/nonexist.pem", "--auto-create"}, `.*private key /nonexist.pem: no such file.*`},
		"no public key":            {[]string{"--pub", "/nonexist.pub"}, `.*public key /nonexist.pub: no such file.*`},
		"private key to be signed": {[]string{"--pub", filepath.Join(m.pki, "other.pem")}, `.*it is a private key where a public one belongs.*`},
		"path is a file":           {[]string{"--signature-path", file}, `.*is not a directory\nsalt-key: hint: --signature-path names the directory.*`},
		"path is missing":          {[]string{"--signature-path", dir + "/x"}, `.*no such file or directory\nsalt-key: hint: --signature-path.*`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m.run("", append(tt.args, "--gen-signature")...).want(t, cli.Failed, nothing, "salt-key: error: "+tt.err)
		})
	}
}

func TestGenSignatureAtOnce(t *testing.T) {
	m := signing(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if r := m.run("", "--gen-signature", "--auto-create"); r.code != cli.OK {
				t.Errorf("[%d] %s", r.code, r.err)
			}
		})
	}
	deadline.Call(t, wg.Wait, "wg")
	m.checkSignature(filepath.Join(m.pki, "master_pubkey_signature"), "master_sign.pub")
}

func TestHelpNeedsNoConfiguration(t *testing.T) {
	r := runIn("/nonexist", "", "-h")
	r.want(t, cli.OK, "Usage: salt-key .*", nothing)
}

func FuzzPatterns(f *testing.F) {
	for _, s := range []string{"web1", "web*", "web1@SHA256:0f:5b:13:aa", "a@b,c", "[", "@", "x@0f:5b:13:aa", "web1@sha1:"} {
		f.Add(s)
	}
	root := f.TempDir()
	conf, keys := filepath.Join(root, "etc"), filepath.Join(root, "pki")
	if err := os.Mkdir(conf, 0o700); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(conf, "master"), []byte("root_dir: "+root+"\npki_dir: /pki\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	store, err := pki.OpenStore(keys)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := store.Submit("web1", newKey(f).Public()); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		switch r := runIn(conf, "", "--finger="+s); {
		case r.code == cli.OK && !strings.Contains(r.out, "web1:  "):
			t.Errorf("%q matched nothing but is not an error: %+v", s, r)
		case r.code != cli.OK && (r.out != "" || r.err == ""):
			t.Errorf("%q: an error with output or without words: %+v", s, r)
		}
	})
}
