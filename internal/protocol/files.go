package protocol

import "io/fs"

// The requests of the file server.
const (
	OpFiles = "files" // Files → FileList ...: what there is
	OpFile  = "file"  // GetFile → File, then its content in pieces, each a message
)

// Files asks what an environment has; without one, which environments there are.
type Files struct {
	Environment string `json:"env,omitempty"`
}

// FileList is a part of the answer.
type FileList struct {
	Environments []string `json:"envs,omitempty"`
	Files        []File   `json:"files,omitempty"`
}

// File is a file without its content.
type File struct {
	Path   string      `json:"path"`
	Size   int64       `json:"size"`
	Mode   fs.FileMode `json:"mode"`             // the permission bits
	SHA256 string      `json:"sha256,omitempty"` // not in a list
}

// GetFile asks for a file.
type GetFile struct {
	Environment string `json:"env"`
	Path        string `json:"path"`
	Have        string `json:"have,omitempty"` // the sum of the content that the principal has: that is not sent again
	Stat        bool   `json:"stat,omitempty"` // send no content at all
}

// OpPush hands a piece of a file to the master; there is no answer but an error.
const OpPush = "push"

// Push is a piece. Pieces of a file come one after the other, the first with Offset
// 0, the last with the sum of the whole.
type Push struct {
	Path   string `json:"path"`   // relative, with slashes
	Upload string `json:"upload"` // the same for all pieces of a file, and for no other
	Offset int64  `json:"offset,omitempty"`
	Data   []byte `json:"data"`
	SHA256 string `json:"sha256,omitempty"`
}

// OpRevoke asks the master to forget the key of the minion that asks; the answer is
// Revoked, a moment before it does so.
const OpRevoke = "revoke"

// Revoked answers OpRevoke.
type Revoked struct {
	Key string `json:"key"` // the fingerprint
}
