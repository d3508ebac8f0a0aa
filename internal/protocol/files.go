package protocol

import (
	"github.com/brinebus/brine/internal/fileserver"
)

// The requests of the file server.
const (
	OpFiles = "files" // Files → FileList ...: which files exist
	OpFile  = "file"  // GetFile → File, then its content in pieces, each a message
)

// Files asks for the files of an environment; without one, for the environments.
type Files struct {
	Environment string `json:"env,omitempty"`
}

// FileList is a part of the answer.
type FileList struct {
	Environments []string          `json:"envs,omitempty"`
	Files        []fileserver.File `json:"files,omitempty"`
}

// GetFile asks for a file.
type GetFile struct {
	Environment string `json:"env"`
	Path        string `json:"path"`
	Have        string `json:"have,omitempty"` // the hash of the content that the client has: that is not sent again
	Stat        bool   `json:"stat,omitempty"` // send no content at all
}

// OpPush uploads a fileserver.Piece of a file to the master; there is no answer but an error.
// Pieces of a file come one after the other, the first with Offset 0, the last with the hash of
// the whole.
const OpPush = "push"

// OpRevoke asks the master to delete the key of the requesting minion; the answer, Revoked,
// comes shortly before it does so.
const OpRevoke = "revoke"

// Revoked answers OpRevoke.
type Revoked struct {
	Key string `json:"key"` // its fingerprint
}
