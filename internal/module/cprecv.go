package module

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/function"
)

// Limits of files that arrive in chunks.
const (
	maxChunk = 8 << 20   // bytes of one chunk, uncompressed
	partAge  = time.Hour // age at which an unfinished file is removed
)

// cpRecvChunked stores a chunk of a file. The chunks are collected in a separate file until the
// last one arrives, so that the destination always has the old or the new file.
func cpRecvChunked(ctx context.Context, c *function.Call) (any, error) {
	dest := c.String("dest")
	if !filepath.IsAbs(dest) {
		return nil, function.Invalid("dest %q is not an absolute path", dest)
	}
	if c.Any("chunk") == nil {
		return dest, os.MkdirAll(dest, 0o755)
	}
	data, err := readChunk(c)
	if err != nil {
		return nil, err
	}
	part, err := partFile(c)
	if err != nil {
		return nil, err
	}
	if err := addChunk(part, data, int64(c.Int("offset"))); err != nil || c.String("sha256") == "" {
		return true, err
	}
	defer os.Remove(part)
	return putReceived(ctx, c, part, dest)
}

// readChunk decodes a chunk.
func readChunk(c *function.Call) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(c.String("chunk"))
	if err != nil {
		return nil, function.Invalid("chunk: %v", err)
	}
	if !c.Bool("compressed") {
		return data, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, function.Invalid("chunk: %v", err)
	}
	data, err = io.ReadAll(io.LimitReader(r, maxChunk+1))
	if err == nil && len(data) > maxChunk {
		err = function.Invalid("a chunk has more than %d bytes", maxChunk)
	}
	return data, err
}

// partFile returns the path of the file in which the chunks are collected. It removes those of
// files that will not be finished.
func partFile(c *function.Call) (string, error) {
	name := c.String("upload")
	if name == "" || len(name) > 64 || strings.Trim(name, "0123456789abcdefghijklmnopqrstuvwxyz") != "" {
		return "", function.Invalid("upload is %q: a name for the chunks of one file is wanted, of letters and digits", name)
	}
	dir, err := cachePath(c, "files that arrive", "recv")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	list, err := os.ReadDir(dir)
	for _, e := range list {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > partAge {
			os.Remove(filepath.Join(dir, e.Name())) // failing to remove it does no harm
		}
	}
	return filepath.Join(dir, name), err
}

var errChunkOrder = errors.New("the chunks of the file do not follow each other: was the minion away meanwhile?")

// addChunk appends a chunk to the previous ones.
func addChunk(part string, data []byte, offset int64) error {
	flags := os.O_WRONLY | os.O_APPEND
	if offset == 0 {
		flags |= os.O_CREATE | os.O_EXCL
	}
	f, err := os.OpenFile(part, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return errChunkOrder
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() != offset {
		err = errChunkOrder
	}
	if err == nil {
		_, err = f.Write(data)
	}
	return errors.Join(err, f.Close())
}

// putReceived moves a complete file to its destination, and returns that.
func putReceived(ctx context.Context, c *function.Call, part, dest string) (any, error) {
	if sum, err := hashFile(ctx, part, "sha256"); err != nil || sum != c.String("sha256") {
		return nil, errors.Join(err, fmt.Errorf("the received file has the sha256 digest %s, not %s", sum, c.String("sha256")))
	}
	place, err := receivedPlace(dest, c.String("name"), c.Bool("makedirs"))
	if err != nil {
		return nil, err
	}
	f, err := os.Open(part)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return place, writeWithMode(ctx, place, &io.LimitedReader{R: f, N: math.MaxInt64}, receivedMode(c, place))
}

// receivedPlace returns dest, or the path in it if it is a directory.
func receivedPlace(dest, name string, makedirs bool) (string, error) {
	info, err := os.Stat(dest)
	switch {
	case err == nil && info.IsDir() && (name == "" || name != filepath.Base(name) || name == ".."):
		return "", function.Invalid("%s is a directory, and %q is not the name of a file in it", dest, name)
	case err == nil && info.IsDir():
		return filepath.Join(dest, name), nil
	case makedirs:
		return dest, os.MkdirAll(filepath.Dir(dest), 0o755)
	}
	if _, err := os.Stat(filepath.Dir(dest)); err != nil {
		return "", fmt.Errorf("Destination unavailable: %w", err)
	}
	return dest, nil
}

// receivedMode returns the mode that was sent, or that of the replaced file.
func receivedMode(c *function.Call, place string) fs.FileMode {
	if c.Has("mode") {
		return fs.FileMode(c.Int("mode")) & fs.ModePerm
	}
	return keptMode(place, 0o644)
}
