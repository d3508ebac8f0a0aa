package blockfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// streamDirs returns the directories of the blocks of all streams of a store, in the order of their names; none if
// there is no store yet. A directory that cannot be read is an error: what is in it would count as removed.
func streamDirs(dir string) (found []string, err error) {
	accounts, err := listed(filepath.Join(dir, "jetstream"))
	if err != nil {
		return nil, err
	}
	for _, account := range accounts {
		streams, err := listed(filepath.Join(account, "streams"))
		if err != nil {
			return nil, err
		}
		for _, stream := range streams {
			msgs := filepath.Join(stream, "msgs")
			switch there, err := isThere(msgs); {
			case err != nil:
				return nil, err
			case there:
				found = append(found, msgs)
			}
		}
	}
	return found, nil
}

// folderOf returns the directory of a stream's blocks.
func folderOf(dir, stream string) (string, error) {
	accounts, err := listed(filepath.Join(dir, "jetstream"))
	if err != nil {
		return "", err
	}
	for _, account := range accounts {
		msgs := filepath.Join(account, "streams", stream, "msgs")
		if there, err := isThere(msgs); there || err != nil {
			return msgs, err
		}
	}
	return "", fmt.Errorf("%s has no files: %w", stream, fs.ErrNotExist)
}

// listed returns the paths of what is in a directory, nothing if there is none: the server may remove it meanwhile.
func listed(dir string) (paths []string, err error) {
	list, err := os.ReadDir(dir)
	if err != nil && !missing(err) {
		return nil, fmt.Errorf("list the store: %w", err)
	}
	for _, one := range list {
		paths = append(paths, filepath.Join(dir, one.Name()))
	}
	return paths, nil
}

func isThere(path string) (bool, error) {
	_, err := os.Lstat(path)
	if err == nil || missing(err) {
		return err == nil, nil
	}
	return false, fmt.Errorf("list the store: %w", err)
}

// missing reports whether a path does not exist, or is below something that is not a directory.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
