package backup

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/minio/highwayhash"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// StoreDir is the directory of the store of a master. A store never changes between alone and
// cluster, so each has its own directory.
func StoreDir(cacheDir string, cluster bool) string {
	if cluster {
		return filepath.Join(cacheDir, "cluster")
	}
	return filepath.Join(cacheDir, "journal")
}

// streamDirs returns the directories of the streams of a store that no server has open.
func streamDirs(store string) ([]string, error) {
	metas, err := filepath.Glob(filepath.Join(store, "jetstream", "*", "streams", "*", metaFile))
	for i := range metas {
		metas[i] = filepath.Dir(metas[i])
	}
	return metas, err
}

// hasData reports whether a store has streams. One that may not be read is not one without.
func hasData(store string) (bool, error) {
	if _, err := os.ReadDir(filepath.Join(store, "jetstream")); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return false, err
	}
	dirs, err := streamDirs(store)
	return len(dirs) > 0, err
}

// Files in the store of a member with its name and its cluster_id, see markMember.
const (
	memberFile  = "member"
	clusterFile = "cluster_id"
)

// memberOf returns the member whose store this is, "" for a single master. If the store does not
// say whose it is, named does.
func memberOf(store, named string) (string, error) {
	dirs, err := streamDirs(store)
	if err != nil {
		return "", err
	}
	var members []string
	for _, dir := range dirs {
		switch name := filepath.Base(dir); {
		case name == journal.Stream:
			return "", nil
		case strings.HasPrefix(name, journal.Stream+"_"):
			members = append(members, strings.TrimPrefix(name, journal.Stream+"_"))
		}
	}
	own, err := note(store, memberFile)
	if err != nil {
		return "", err
	}
	named = cmp.Or(own, named)
	switch {
	case contains(members, named):
		return named, nil
	case named == "" && len(members) == 1:
		return members[0], nil
	case len(members) == 0:
		return "", fmt.Errorf("%s has no journal", store)
	}
	return "", salt.WithHint(fmt.Errorf("%s has the journals of %s, and does not say which is its own", store, strings.Join(members, ", ")), "name it: --restore-as NAME")
}

// Files of the server about a stream.
const (
	metaFile    = "meta.inf"
	metaSumFile = "meta.sum"
)

// Directories in that for a backup which is made of a store.
const (
	copiedDir = "store"
	backupDir = "backup"
)

// source is a closed store that is backed up.
type source struct {
	dir     string
	work    string // the directory for the copy, and for the backup
	member  string // whose store it is; "" of a single master
	version string
	log     *slog.Logger
}

// backup makes a backup of a store that no server has open, for example of the one member that is
// left of a cluster. It works on a copy, and leaves the store as it is.
func (s source) backup(ctx context.Context) (dir string, err error) {
	if err := errors.Join(os.RemoveAll(s.work), os.MkdirAll(s.work, 0o700)); err != nil {
		return "", err
	}
	copied := filepath.Join(s.work, copiedDir)
	defer os.RemoveAll(copied)
	if err := s.copy(ctx, copied); err != nil {
		return "", fmt.Errorf("copy %s: %w", s.dir, err)
	}
	if err := openAlone(copied); err != nil {
		return "", err
	}
	b, err := startAlone(copied, s.log)
	if err != nil {
		return "", fmt.Errorf("open a copy of %s: %w", s.dir, err)
	}
	defer b.Stop()
	dir = filepath.Join(s.work, backupDir)
	m, err := Write(ctx, b.Conn(), Options{Dir: dir, Member: s.member, Version: s.version, Closed: true, Log: s.log})
	if err != nil {
		return "", err
	}
	if dirs, err := streamDirs(copied); err != nil || len(m.Streams) < len(dirs) {
		return "", errors.Join(err, fmt.Errorf("the server reads %d of %d streams of a copy of %s: its log says why", len(m.Streams), len(dirs), s.dir))
	}
	return dir, nil
}

// copy copies the streams of the store and its state: no consumers, which belong to connections
// that have ended, and not what the members of a cluster agree on among themselves.
func (s source) copy(ctx context.Context, to string) error {
	dirs, err := streamDirs(s.dir)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		below, err := filepath.Rel(s.dir, dir)
		if err == nil {
			err = copyTree(ctx, dir, filepath.Join(to, below))
		}
		if err != nil {
			return err
		}
	}
	state := "state.json"
	err = copyFile(filepath.Join(s.dir, state), filepath.Join(to, state))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// copyTree copies the directory of a stream.
func copyTree(ctx context.Context, from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, path)
		switch {
		case err != nil:
			return err
		case e.IsDir() && below == "obs":
			return filepath.SkipDir
		case e.IsDir():
			return os.MkdirAll(filepath.Join(to, below), 0o700)
		case !e.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file", path)
		}
		return copyFile(path, filepath.Join(to, below))
	})
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// openAlone changes the streams of a closed store to one copy each, since a server alone opens no
// others.
func openAlone(store string) error {
	dirs, err := streamDirs(store)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := oneCopy(dir); err != nil {
			return fmt.Errorf("open the stream %s alone: %w", filepath.Base(dir), err)
		}
	}
	return nil
}

func oneCopy(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, metaFile))
	if err != nil {
		return err
	}
	sum, err := os.ReadFile(filepath.Join(dir, metaSumFile))
	if err != nil {
		return err
	}
	name := filepath.Base(dir)
	if want, err := metaSum(name, text); err != nil || want != string(sum) {
		return errors.Join(err, fmt.Errorf("%s does not have the sum in %s", filepath.Join(dir, metaFile), metaSumFile))
	}
	var settings map[string]json.RawMessage
	if err := json.Unmarshal(text, &settings); err != nil {
		return err
	}
	settings["num_replicas"] = json.RawMessage("1")
	delete(settings, "placement")
	if text, err = json.Marshal(settings); err != nil {
		return err
	}
	own, err := metaSum(name, text)
	if err != nil {
		return err
	}
	return errors.Join(atomicfile.Write(filepath.Join(dir, metaFile), text, 0o600), atomicfile.Write(filepath.Join(dir, metaSumFile), []byte(own), 0o600))
}

// metaSum is the sum of the settings of a stream, as the server has it in a file.
func metaSum(stream string, settings []byte) (string, error) {
	key := sha256.Sum256([]byte(stream))
	sum, err := highwayhash.New64(key[:])
	if err != nil {
		return "", err
	}
	_, _ = sum.Write(settings) // a hash takes everything
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// startAlone opens a store without any port: nobody but this process reaches it.
func startAlone(store string, log *slog.Logger) (*broker.Broker, error) {
	return broker.Start(broker.Options{Name: "backup", StoreDir: store, Admit: broker.Nobody, Log: log})
}

// syncTree syncs all of a directory.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return posix.SyncPath(path)
	})
}
