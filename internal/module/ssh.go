package module

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/posix"
)

// sshModule manages the keys for logins by ssh.
var sshModule = &function.Module{
	Name: "ssh",
	Doc: "Functions that manage the keys that may log in as a user by ssh: ~/.ssh/authorized_keys, or another file below the user's home. " +
		"The user, who owns that directory, cannot make these functions use files elsewhere.",
	Functions: []function.Function{
		{
			Name: "auth_keys", Doc: "Return the keys that may log in as a user, by the key: its kind, comment, options and fingerprint.", Example: `salt '*' ssh.auth_keys root`,
			Params: []function.Param{sshUser, sshConfig}, Run: sshAuthKeys,
		},
		{
			Name: "rm_auth_key", Doc: "Remove a key from those that may log in as a user. Returns Key removed, or Key not present.", Example: `salt '*' ssh.rm_auth_key root AAAAC3NzaC1lZDI1NTE5AAAAIJ...`,
			Params: []function.Param{sshUser, sshKey, sshConfig}, Run: sshRemoveKey,
		},
		{
			Name: "set_auth_key", Doc: "Allow a key to log in as a user. Returns new, replace where it had another comment or other options, or no change.",
			Example: `salt '*' ssh.set_auth_key root AAAAC3NzaC1lZDI1NTE5AAAAIJ... enc=ssh-ed25519 comment=kim`,
			Params: []function.Param{sshUser, sshKey, {Name: "enc", Kind: function.String, Default: "ssh-rsa"}, {Name: "comment", Kind: function.String, Default: ""},
				{Name: "options", Kind: function.List}, sshConfig},
			Run: sshSetKey,
		},
	},
}

var (
	sshUser   = function.Param{Name: "user", Kind: function.String, Required: true}
	sshKey    = function.Param{Name: "key", Kind: function.String, Required: true}
	sshConfig = function.Param{Name: "config", Kind: function.String, Default: ".ssh/authorized_keys"}
)

// maxKeyFile limits what is read of a file that another user controls.
const maxKeyFile = 1 << 20

// authorized is the authorized_keys file of a user.
type authorized struct {
	user *account
	home *os.Root
	name string // relative to the home
	text string // its content, "" if it is missing
}

// openAuthorized reads the file that the arguments name. The caller must close its home.
func openAuthorized(ctx context.Context, c *function.Call) (a *authorized, err error) {
	user, err := findAccount(ctx, c.String("user"))
	if err != nil {
		return nil, err
	}
	name := strings.TrimPrefix(c.String("config"), "%h/")
	if filepath.IsAbs(name) {
		rel, err := filepath.Rel(user.home, name)
		if err != nil {
			return nil, err
		}
		name = rel
	}
	if !filepath.IsLocal(name) {
		return nil, function.Invalid("config %q is not below the home of %s", c.String("config"), user.name)
	}
	home, err := os.OpenRoot(user.home)
	if err != nil {
		return nil, err
	}
	a = &authorized{user: user, home: home, name: name}
	if a.text, err = a.read(); err != nil {
		home.Close()
		return nil, err
	}
	return a, nil
}

// read returns the content. A file that belongs to neither the user nor this minion must not be
// shown: the user may have linked it.
func (a *authorized) read() (string, error) {
	f, err := a.home.OpenFile(a.name, os.O_RDONLY|posix.NoWaiting, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	owner, _, err := posix.Owner(f.Name(), info)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || owner != a.user.uid {
		return "", fmt.Errorf("%s is not a file of %s", filepath.Join(a.user.home, a.name), a.user.name)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if len(text) > maxKeyFile {
		return "", fmt.Errorf("%s has more than %d bytes", a.name, maxKeyFile)
	}
	return string(text), err
}

// write replaces the file; it belongs to the user and only they can read it.
func (a *authorized) write(lines []string) (err error) {
	dir := filepath.Dir(a.name)
	if dir != "." {
		if err := a.home.Mkdir(dir, 0o700); err == nil {
			err = a.home.Lchown(dir, a.user.uid, a.user.gid)
			if err != nil {
				return err
			}
		} else if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	temporary := a.name + ".brine-new"
	_ = a.home.Remove(temporary) // left by an earlier attempt
	f, err := a.home.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = a.home.Remove(temporary)
		}
	}()
	_, err = f.WriteString(strings.Join(lines, ""))
	if err = errors.Join(err, f.Chown(a.user.uid, a.user.gid), f.Sync(), f.Close()); err != nil {
		return err
	}
	return a.home.Rename(temporary, a.name)
}

// publicKey is a line of the file.
type publicKey struct {
	options     []string
	enc, key    string
	comment     string
	fingerprint string
}

// parsePublicKey parses a line, which may begin with options.
func parsePublicKey(line string) (k publicKey, ok bool) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return k, false
	}
	if words := strings.Fields(line); !isKeyKind(words[0]) {
		end := optionsEnd(line)
		k.options, line = splitOptions(line[:end]), strings.TrimSpace(line[end:])
	}
	words := strings.SplitN(line, " ", 3)
	if len(words) < 2 || !isKeyKind(words[0]) {
		return k, false
	}
	k.enc, k.key = words[0], words[1]
	if len(words) == 3 {
		k.comment = strings.TrimSpace(words[2])
	}
	k.fingerprint, ok = keyFingerprint(k.enc, k.key)
	return k, ok
}

func isKeyKind(word string) bool {
	return strings.HasPrefix(word, "ssh-") || strings.HasPrefix(word, "ecdsa-sha2-") || strings.HasPrefix(word, "sk-")
}

// optionsEnd returns where the options of a line end: at the first unquoted blank.
func optionsEnd(line string) int {
	quoted := false
	for i := range len(line) {
		switch {
		case line[i] == '"' && (i == 0 || line[i-1] != '\\'):
			quoted = !quoted
		case line[i] == ' ' && !quoted:
			return i
		}
	}
	return len(line)
}

func splitOptions(text string) (list []string) {
	quoted, start := false, 0
	for i := range len(text) {
		switch {
		case text[i] == '"' && (i == 0 || text[i-1] != '\\'):
			quoted = !quoted
		case text[i] == ',' && !quoted:
			list, start = append(list, text[start:i]), i+1
		}
	}
	return append(list, text[start:])
}

// keyFingerprint returns the fingerprint of the key, which must be of the type enc.
func keyFingerprint(enc, key string) (string, bool) {
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(raw) < 4 {
		return "", false
	}
	n := int(raw[0])<<24 | int(raw[1])<<16 | int(raw[2])<<8 | int(raw[3])
	if n < 0 || n > len(raw)-4 || string(raw[4:4+n]) != enc {
		return "", false
	}
	sum := sha256.Sum256(raw)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:]), true
}

func (k publicKey) line() string {
	words := []string{k.enc, k.key}
	if len(k.options) > 0 {
		words = append([]string{strings.Join(k.options, ",")}, words...)
	}
	if k.comment != "" {
		words = append(words, k.comment)
	}
	return strings.Join(words, " ") + "\n"
}

func sshAuthKeys(ctx context.Context, c *function.Call) (any, error) {
	a, err := openAuthorized(ctx, c)
	if err != nil {
		return nil, err
	}
	defer a.home.Close()
	keys := map[string]any{}
	for line := range strings.Lines(a.text) {
		if k, ok := parsePublicKey(line); ok {
			options := []any{}
			for _, o := range k.options {
				options = append(options, o)
			}
			keys[k.key] = map[string]any{"enc": k.enc, "comment": k.comment, "options": options, "fingerprint": k.fingerprint}
		}
	}
	return keys, nil
}

func sshSetKey(ctx context.Context, c *function.Call) (any, error) {
	options, err := function.ToWords(c.List("options"))
	if err != nil {
		return nil, err
	}
	k := publicKey{options: options, enc: c.String("enc"), key: c.String("key"), comment: c.String("comment")}
	if back, ok := parsePublicKey(k.line()); !ok || back.key != k.key || back.comment != k.comment || !slices.Equal(back.options, k.options) || strings.ContainsAny(strings.TrimSuffix(k.line(), "\n"), "\r\n") {
		return nil, function.Invalid("this is not a key of the kind %s, or its comment or options cannot stand in a line", k.enc)
	}
	a, err := openAuthorized(ctx, c)
	if err != nil {
		return nil, err
	}
	defer a.home.Close()
	verdict, lines := "new", []string{}
	for line := range strings.Lines(withLineEnd(a.text)) {
		is, ok := parsePublicKey(line)
		switch {
		case ok && is.key == k.key && is.line() == k.line():
			return "no change", nil
		case ok && is.key == k.key:
			verdict = "replace"
			line = k.line()
		}
		lines = append(lines, line)
	}
	if verdict == "new" {
		lines = append(lines, k.line())
	}
	return verdict, a.write(lines)
}

func sshRemoveKey(ctx context.Context, c *function.Call) (any, error) {
	a, err := openAuthorized(ctx, c)
	if err != nil {
		return nil, err
	}
	defer a.home.Close()
	var lines []string
	removed := false
	for line := range strings.Lines(a.text) {
		if k, ok := parsePublicKey(line); ok && k.key == c.String("key") {
			removed = true
			continue
		}
		lines = append(lines, line)
	}
	if !removed {
		return "Key not present", nil
	}
	return "Key removed", a.write(lines)
}
