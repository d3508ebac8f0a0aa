package upload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/salt"
)

// object is the content of one version of a file: so many pieces under a name that is never used
// again. The zero object has none.
type object struct {
	Name   string `json:"object,omitempty"`
	Pieces int    `json:"pieces,omitempty"`
}

// maxPieces is how many pieces an object has at most.
const maxPieces = 1 << 20

// sane reports whether this package may have made it.
func (o object) sane() bool {
	return o.Pieces >= 0 && o.Pieces <= maxPieces && !strings.Contains(o.Name, "/") && len(o.Name) <= 64
}

func (o object) piece(n int) string { return o.Name + "/" + strconv.Itoa(n) }

// entry is what is stored about a file. One that was removed has no object: so members that were away
// learn of it.
type entry struct {
	Minion salt.MinionID `json:"minion"`
	Path   string        `json:"path"`
	object
	Size   int64     `json:"size,omitempty"`
	SHA256 string    `json:"sha256,omitempty"`
	Time   time.Time `json:"time"`
	Never  bool      `json:"never,omitempty"` // nothing was ever stored, and so nothing was removed
}

// keyOf is the key of the entry of a file. Paths may be longer than the subject of a message.
func keyOf(id salt.MinionID, path string) string {
	sum := sha256.Sum256([]byte(string(id) + "/" + path))
	return hex.EncodeToString(sum[:])
}

func (e entry) key() string { return keyOf(e.Minion, e.Path) }

func (e entry) removed() bool { return e.Name == "" }

func (e entry) upload() fileserver.Upload {
	return fileserver.Upload{Path: e.Path, Size: e.Size, SHA256: e.SHA256, Time: e.Time}
}

// errEntry is wrapped by errors about entries that no member stores.
var errEntry = errors.New("the entry is not one of a file")

// parseEntry reads an entry. What it accepts names a file below the directory of a minion: another
// member that was taken over must not reach more than that.
func parseEntry(key string, value []byte) (entry, error) {
	var e entry
	if err := json.Unmarshal(value, &e); err != nil {
		return entry{}, fmt.Errorf("%w: %w", errEntry, err)
	}
	if _, err := salt.ParseMinionID(string(e.Minion)); err != nil {
		return entry{}, fmt.Errorf("%w: %w", errEntry, err)
	}
	if err := fileserver.CheckPath(e.Path); err != nil {
		return entry{}, fmt.Errorf("%w: %w", errEntry, err)
	}
	if e.key() != key {
		return entry{}, fmt.Errorf("%w: it is under the key of another file", errEntry)
	}
	most := e.Size/pieceSize + 1 // an older version may have had larger pieces
	if e.Size < 0 || int64(e.Pieces) > most || !e.sane() {
		return entry{}, fmt.Errorf("%w: %d pieces of %d bytes, object %.80q", errEntry, e.Pieces, e.Size, e.Name)
	}
	return e, nil
}
