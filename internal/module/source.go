package module

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/function"
)

// saltenv is the parameter with an environment of the file server.
var saltenv = function.Param{Name: "saltenv", Kind: function.String, Default: "base"}

// saltAddress parses salt://PATH, optionally with ?saltenv=ENVIRONMENT. ok is false for any other
// address.
func saltAddress(address, env string) (name, environment string, ok bool) {
	name, ok = strings.CutPrefix(address, "salt://")
	if !ok {
		return "", "", false
	}
	name, query, _ := strings.Cut(name, "?")
	if values, err := url.ParseQuery(query); err == nil && values.Get("saltenv") != "" {
		env = values.Get("saltenv")
	}
	return strings.TrimPrefix(name, "/"), env, true
}

// fetchSource fetches the file at an address and returns its local path: that of a copy for
// salt://, http:// and https://, the path itself for a local file.
func fetchSource(ctx context.Context, c *function.Call, address, env string) (string, error) {
	if name, env, ok := saltAddress(address, env); ok {
		files, err := fileServer(c.Host)
		if err != nil {
			return "", err
		}
		place, _, err := files.Fetch(ctx, env, name)
		return place, err
	}
	local := strings.TrimPrefix(address, "file://")
	switch {
	case strings.HasPrefix(address, "http://"), strings.HasPrefix(address, "https://"):
		return downloadSource(ctx, c, address)
	case filepath.IsAbs(local):
		_, err := os.Stat(local)
		return local, err
	}
	return "", function.Invalid("source %q is neither an absolute path nor an address that begins with salt://, http:// or https://", address)
}

// openSource opens the file at an address.
func openSource(ctx context.Context, c *function.Call, address, env string) (io.ReadCloser, error) {
	place, err := fetchSource(ctx, c, address, env)
	if err != nil {
		return nil, err
	}
	return os.Open(place)
}

// maxDownload limits what is fetched from the web, in bytes.
const maxDownload = 4 << 30

// downloadSource fetches a web address. The copy is in a directory that belongs only to this
// address.
func downloadSource(ctx context.Context, c *function.Call, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "", function.Invalid("%q is not an address of the web", address)
	}
	base := path.Base(u.Path)
	if base == "/" || fileserver.CheckEnvironment(base) != nil {
		base = "index"
	}
	sum := sha256.Sum256([]byte(address))
	place, err := cachePath(c, "copies", "urls", hex.EncodeToString(sum[:]), base)
	if err != nil {
		return "", err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("fetch %s: %s", u.Redacted(), answer.Status)
	}
	if err := os.MkdirAll(filepath.Dir(place), 0o700); err != nil {
		return "", err
	}
	return place, writeFrom(ctx, place, &io.LimitedReader{R: answer.Body, N: maxDownload + 1}, 0o600)
}

// writeFrom replaces the file at place with the content of r, atomically. An existing file keeps
// its mode.
func writeFrom(ctx context.Context, place string, r *io.LimitedReader, mode fs.FileMode) error {
	return writeWithMode(ctx, place, r, keptMode(place, mode))
}

// keptMode returns the mode of the existing file, otherwise the one for a new file.
func keptMode(place string, otherwise fs.FileMode) fs.FileMode {
	if info, err := os.Stat(place); err == nil && info.Mode().IsRegular() {
		return info.Mode().Perm()
	}
	return otherwise
}

// writeWithMode is writeFrom with a mode; the file has this mode from the beginning.
func writeWithMode(ctx context.Context, place string, r *io.LimitedReader, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(place), ".tmp-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err := io.Copy(f, untilDone{ctx, r}); err != nil {
		return err
	}
	if r.N <= 0 {
		return errors.New("there is more of it than can be taken")
	}
	if err := cmp.Or(f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), place)
}
