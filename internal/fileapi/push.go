package fileapi

import (
	"context"
	"errors"
	"log/slog"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// maxTaken is how many files that one minion hands in are in the log in a minute.
const maxTaken = 60

// Push takes a piece of a file that a minion hands in.
func (s *Server) Push(ctx context.Context, r *rpc.Request) error {
	var q fileserver.Piece
	if err := r.Decode(&q); err != nil {
		return err
	}
	err := s.uploads.Put(ctx, salt.MinionID(r.From.Name), q)
	if err != nil {
		return s.refusePush(r, q, err)
	}
	if q.SHA256 != "" {
		s.throttle.Log(s.Log, slog.LevelInfo, "taken "+r.From.Name, maxTaken, "file taken", "minion", r.From.Name, "path", q.Path, "bytes", q.Offset+int64(len(q.Data)), "sha256", q.SHA256)
	}
	return nil
}

// errUnshared means that this master has no files of minions in common with others.
var errUnshared = salt.WithHint(errors.New("this master does not share the files of minions with others"), "a member of a cluster does with file_recv: True; a single master has them below minions of its cachedir, where you can remove them")

// RemoveUpload implements runner.Uploads.
func (s *Server) RemoveUpload(ctx context.Context, id salt.MinionID, path string) error {
	if s.shared == nil {
		return errUnshared
	}
	err := s.shared.Remove(ctx, id, path)
	if errors.Is(err, journal.ErrChanged) {
		return salt.WithHint(err, "the minion has just uploaded it anew; try again")
	}
	return err
}

// refusePush is what the minion is told.
func (s *Server) refusePush(r *rpc.Request, q fileserver.Piece, err error) error {
	switch {
	case errors.Is(err, fileserver.ErrPath):
		s.Audit.NoteFile(r, q.Path, err.Error())
		return rpc.Errorf(rpc.Denied, "%w", err)
	case errors.Is(err, fileserver.ErrFull):
		s.Audit.NoteFile(r, q.Path, err.Error())
		return rpc.Errorf(rpc.Unavailable, "%w", err).WithHint("take some away on the master, below minions/%s/files of its cachedir, in a cluster on any member or with 'salt-run cluster.remove_file'", r.From.Name)
	case errors.Is(err, fileserver.ErrTooLarge):
		return rpc.Errorf(rpc.Usage, "%w", err).WithHint("file_recv_max_size in the configuration of the master says how large")
	case errors.Is(err, fileserver.ErrOrder), errors.Is(err, fileserver.ErrSum):
		return rpc.Errorf(rpc.Usage, "%w", err)
	}
	if errors.Is(err, journal.ErrStore) || errors.Is(err, journal.ErrLate) {
		s.throttle.Log(s.Log, slog.LevelError, "store", 1, "file not taken", "minion", r.From.Name, "path", q.Path, "err", err)
		return rpc.Errorf(rpc.Unavailable, "the file was not stored: %w", err)
	}
	s.throttle.Log(s.Log, slog.LevelError, "push "+r.From.Name, 1, "file not taken", "minion", r.From.Name, "path", q.Path, "err", err)
	return rpc.Errorf(rpc.Unavailable, "the master could not keep the file; its log says why")
}
