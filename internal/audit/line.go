package audit

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// position identifies an entry in the chain.
type position struct {
	n    uint64
	hash string
}

// origin is the position before the first entry.
var origin = position{0, strings.Repeat("0", 2*sha256.Size)}

// Hash returns the hash of an entry: that of its line without the line feed, so that sha256sum
// gives the same.
func Hash(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// withHash adds its hash to a line that is sent alone.
func withHash(line []byte, hash string) json.RawMessage {
	return fmt.Appendf(nil, `%s,"hash":"%s"}`, line[:len(line)-1], hash)
}

// encode returns the entry as the line after last, and its position. One that was spooled was shortened then.
func (e *Entry) encode(d digester, values bool, last position) ([]byte, position, error) {
	e.N, e.Prev = last.n+1, last.hash
	switch {
	case e.Spooled == "":
		if err := e.shorten(d, values); err != nil {
			return nil, position{}, err
		}
	case len(e.Target) > maxText+textSum:
		e.Target = shortText(d, e.Target)
	}
	line, err := e.fit(d, 0)
	if err != nil {
		return nil, position{}, err
	}
	return line, position{e.N, Hash(line)}, nil
}

// describe sets the functions and the digest of their arguments.
func (e *Entry) describe(d digester, values bool) error {
	names := make([]string, len(e.Commands))
	some := false
	for i, c := range e.Commands {
		names[i] = string(c.Function)
		some = some || len(c.Args)+len(c.Kwargs) > 0
	}
	e.Fun = strings.Join(names, ",")
	if !some {
		return nil
	}
	text, err := arguments(e.Commands)
	if err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	e.Digest = d.digest(text)
	if values && len(text) <= maxArguments {
		e.Arguments = text
	}
	return nil
}

// arguments encodes [args, kwargs] of each command; equal arguments give equal bytes.
func arguments(commands []salt.Command) ([]byte, error) {
	all := make([]any, len(commands))
	for i, c := range commands {
		args, kwargs := c.Args, c.Kwargs
		if args == nil {
			args = []any{}
		}
		if kwargs == nil {
			kwargs = map[string]any{}
		}
		all[i] = []any{args, kwargs}
	}
	return value.Encode(all)
}

// digester computes digests of arguments. They are keyed: a plain hash would reveal a short
// password to anyone who tries some.
type digester []byte

func (d digester) digest(text []byte) string {
	h := hmac.New(sha256.New, d)
	h.Write(text)
	return "hmac-sha256:" + hex.EncodeToString(h.Sum(nil))
}

// openDigester reads the key, and creates it if it is missing.
func openDigester(path string) (digester, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key := make(digester, sha256.Size)
		rand.Read(key) //nolint:errcheck // it never fails
		return key, atomicfile.Write(path, []byte(hex.EncodeToString(key)+"\n"), 0o400)
	}
	if err != nil {
		return nil, fmt.Errorf("key of the audit log: %w", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != sha256.Size {
		return nil, &damaged{path, fmt.Sprintf("it is not %d bytes in hexadecimal digits", sha256.Size)}
	}
	return key, nil
}
