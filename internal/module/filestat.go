package module

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/posix"
)

// mayAccess asks the kernel whether the minion may access a path. mode 0 checks that it exists; 4,
// 2 and 1 whether it may be read, written and executed.
func mayAccess(path string, mode uint32) bool {
	return posix.Access(path, mode) == nil
}

// hashFile returns the digest of a file in hex digits.
func hashFile(ctx context.Context, path, form string) (string, error) {
	h, err := newHash(form)
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := io.Copy(h, untilDone{ctx, f}); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// untilDone is a reader that fails after its context has ended.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(b)
}

func fileCheckHash(ctx context.Context, c *function.Call) (any, error) {
	form, want := "sha256", c.String("file_hash")
	if i := strings.IndexAny(want, "=:"); i >= 0 {
		form, want = want[:i], want[i+1:]
	}
	got, err := hashFile(ctx, c.String("path"), form)
	return strings.EqualFold(got, want), err
}

// fileStat returns one attribute of the file of the argument path.
func fileStat(c *function.Call, name string) (any, error) {
	all, err := statistics(c.String("path"), c.Bool("follow_symlinks"))
	return all[name], err
}

func fileStats(ctx context.Context, c *function.Call) (any, error) {
	all, err := statistics(c.String("path"), c.Bool("follow_symlinks"))
	if err != nil || !c.Has("hash_type") {
		return all, err
	}
	all["sum"], err = hashFile(ctx, c.String("path"), c.String("hash_type"))
	return all, err
}

// statistics describes a file; times are seconds since 1970.
func statistics(path string, follow bool) (map[string]any, error) {
	stat := os.Lstat
	if follow {
		stat = os.Stat
	}
	info, err := stat(path)
	if err != nil {
		return nil, err
	}
	users, userErr := userNames()
	groups, groupErr := groupNames()
	s, err := posix.StatOf(info)
	if err != nil {
		return nil, err
	}
	seconds := func(t int64) float64 { return float64(t) / 1e9 }
	return map[string]any{
		"inode": s.Inode, "uid": int(s.UID), "gid": int(s.GID),
		"user": nameOf(users, int(s.UID)), "group": nameOf(groups, int(s.GID)),
		"atime": seconds(s.Access), "mtime": seconds(s.Modified), "ctime": seconds(s.Changed),
		"size": info.Size(), "mode": octal(info.Mode()), "type": kindName(info.Mode()), "target": destination(path),
	}, errors.Join(userErr, groupErr)
}

// destination returns the path itself, or the target of a link.
func destination(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

func kindName(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "dir"
	case mode&fs.ModeSymlink != 0:
		return "link"
	case mode&fs.ModeCharDevice != 0:
		return "char"
	case mode&fs.ModeDevice != 0:
		return "block"
	case mode&fs.ModeNamedPipe != 0:
		return "pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	}
	return "file"
}

func fileCopy(ctx context.Context, c *function.Call) (any, error) {
	src, dst := c.String("src"), c.String("dst")
	info, err := os.Stat(src)
	if err != nil {
		return nil, err
	}
	if info.IsDir() && !c.Bool("recurse") {
		return nil, function.Invalid("%s is a directory: it is copied with recurse=True only", src)
	}
	if dst == src || strings.HasPrefix(dst, src+"/") || c.Bool("remove_existing") && strings.HasPrefix(src, dst+"/") {
		return nil, function.Invalid("%s and %s lie within each other", src, dst)
	}
	if c.Bool("remove_existing") {
		if err := os.RemoveAll(dst); err != nil {
			return nil, err
		}
	}
	return done(copyTree(ctx, src, dst))
}

// copyTree copies a file or a directory. Links in a directory are copied as links; devices, pipes
// and sockets are refused.
func copyTree(ctx context.Context, src, dst string) error {
	return filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		to := dst + strings.TrimPrefix(p, src)
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return errors.Join(os.MkdirAll(to, info.Mode().Perm()|0o700), keepOwner(to, info))
		case d.Type()&fs.ModeSymlink != 0 && p != src:
			link, err := os.Readlink(p)
			if err != nil {
				return err
			}
			return os.Symlink(link, to)
		}
		return copyFile(ctx, p, to)
	})
}

// copyFile copies the content, mode and owner of a regular file; a link is followed to its file.
func copyFile(ctx context.Context, src, dst string) (err error) {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("copy %s: it is not a regular file", src)
	}
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, untilDone{ctx, in})
	if err == nil && os.Geteuid() == 0 {
		var s posix.Stat
		if s, err = posix.StatOf(info); err == nil {
			err = out.Chown(int(s.UID), int(s.GID)) // of the written file, even if its name now belongs to another
		}
	}
	return errors.Join(err, out.Chmod(info.Mode()), out.Close())
}

// keepOwner gives a copy the owner of the original; only root can do that.
func keepOwner(path string, original fs.FileInfo) error {
	if os.Geteuid() != 0 {
		return nil
	}
	s, err := posix.StatOf(original)
	if err != nil {
		return err
	}
	return os.Chown(path, int(s.UID), int(s.GID))
}
