package member

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
)

// Leave is how far a member has left its cluster.
type Leave int

const (
	// Stays is a member.
	Stays Leave = iota
	// Leaves is one that has begun to leave: the others may still count it, or not any more.
	Leaves
	// Left is one that the others do not count any more.
	Left
)

// LeaveFile is the file in the store of a member that leaves its cluster or has left it.
func LeaveFile(store string) string { return filepath.Join(store, "left") }

// leavesMark begins the file of one that leaves. That of one that has left has only the time, so that an
// earlier version reads it, too; it takes both for one that has left.
const leavesMark = "leaving "

// ReadLeave reads how far a member has left, and since when.
func ReadLeave(path string) (how Leave, since string, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Stays, "", nil
	}
	if err != nil {
		return Left, "", err
	}
	since = strings.TrimSpace(string(text))
	if after, leaves := strings.CutPrefix(since, leavesMark); leaves {
		return Leaves, after, nil
	}
	return Left, since, nil
}

// WriteLeave writes what ReadLeave reads. For a member that stays the file is removed.
func WriteLeave(path string, how Leave) error {
	if how == Stays {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	text := time.Now().UTC().Format(time.DateTime) + "\n"
	if how == Leaves {
		text = leavesMark + text
	}
	return atomicfile.Write(path, []byte(text), 0o600)
}
