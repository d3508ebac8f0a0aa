// Package fileapi answers minions that ask a master for files, and that hand files in. Which
// files there are, and where those that are handed in are kept, is package fileserver's.
package fileapi

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/upload"
)

// Audit is the audit log.
type Audit interface {
	// NoteFile records that a minion was refused a path.
	NoteFile(r *rpc.Request, path, reason string)
}

// Options are what a server is made with.
type Options struct {
	Roots     map[string][]string // directories of each environment
	CacheDir  string              // files that are handed in go below it
	Uploads   bool                // files are taken
	MaxUpload int64               // bytes of one of them
	Journal   *journal.Journal    // stores them for all masters, if there are several
	Audit     Audit
	Log       *slog.Logger
}

// Server serves the files of one master.
type Server struct {
	Options
	Files    *fileserver.Roots
	uploads  *fileserver.Uploads // nil where none are taken
	shared   *upload.Files       // nil for a single master
	throttle logging.Throttle    // of what cannot be read or kept
}

// Open opens a server.
func Open(ctx context.Context, o Options) (*Server, error) {
	s := &Server{Options: o, Files: fileserver.NewRoots(o.Roots)}
	if !o.Uploads {
		return s, nil
	}
	dir := filepath.Join(o.CacheDir, "minions")
	s.uploads = fileserver.NewUploads(dir, o.MaxUpload)
	var err error
	s.shared, err = upload.Open(ctx, upload.Options{Journal: o.Journal, Dir: dir, Uploads: s.uploads, Log: o.Log})
	return s, err
}

// Run lets the directory of uploads follow what other masters take, until ctx ends.
func (s *Server) Run(ctx context.Context) { s.shared.Run(ctx) }

const (
	// listPart is how many files of a list travel in one message.
	listPart = 500
	// filePart is how many bytes of a file travel in one message.
	filePart = 256 << 10
)

// List tells a minion which files there are for all minions: file_roots has
// no secrets of one before another. What is for one only is the pillar's.
func (s *Server) List(ctx context.Context, r *rpc.Request) error {
	var q protocol.Files
	if err := r.Decode(&q); err != nil {
		return err
	}
	if q.Environment == "" {
		envs, err := s.Files.Environments(ctx)
		return errors.Join(err, r.Send(ctx, protocol.FileList{Environments: envs}))
	}
	files, err := s.Files.List(ctx, q.Environment)
	if err != nil {
		return s.refuse(r, protocol.GetFile{Environment: q.Environment}, err)
	}
	for len(files) > 0 {
		part := protocol.FileList{Files: files[:min(listPart, len(files))]}
		if err := r.Send(ctx, part); err != nil {
			return err
		}
		files = files[len(part.Files):]
	}
	return nil
}

// Send sends a file to a minion, unless it has it.
func (s *Server) Send(ctx context.Context, r *rpc.Request) error {
	var q protocol.GetFile
	if err := r.Decode(&q); err != nil {
		return err
	}
	f, err := s.Files.Stat(ctx, q.Environment, q.Path)
	if err != nil {
		return s.refuse(r, q, err)
	}
	if err := r.Send(ctx, f); err != nil || q.Stat || f.SHA256 == q.Have {
		return err
	}
	out := &pieces{ctx: ctx, r: r}
	if _, err := s.Files.Get(ctx, q.Environment, q.Path, "", out); err != nil {
		return s.refuse(r, q, err)
	}
	return out.flush()
}

// refuse is what a minion is told. A path that leaves the roots is an attack or
// a mistake; the log and the audit log have it.
func (s *Server) refuse(r *rpc.Request, q protocol.GetFile, err error) error {
	switch {
	case errors.Is(err, fileserver.ErrPath):
		s.Audit.NoteFile(r, q.Path, err.Error())
		return rpc.Errorf(rpc.Denied, "%w", err)
	case errors.Is(err, fileserver.ErrNotFound):
		return rpc.Errorf(rpc.NotFound, "%w", err)
	}
	s.throttle.Log(s.Log, slog.LevelError, "file "+r.From.Name, 1, "file not sent", "minion", r.From.Name, "env", q.Environment, "path", q.Path, "err", err)
	return rpc.Errorf(rpc.Unavailable, "the files of environment %q cannot be read; the log of the master says why", q.Environment)
}

// pieces sends what is written to it as messages of a good size.
type pieces struct {
	ctx context.Context
	r   *rpc.Request
	buf []byte
}

// Write implements io.Writer.
func (p *pieces) Write(b []byte) (int, error) {
	p.buf = append(p.buf, b...)
	for len(p.buf) >= filePart {
		if err := p.r.SendRaw(p.ctx, p.buf[:filePart]); err != nil {
			return 0, err
		}
		p.buf = append(p.buf[:0], p.buf[filePart:]...)
	}
	return len(b), nil
}

func (p *pieces) flush() error {
	if len(p.buf) == 0 {
		return nil
	}
	return p.r.SendRaw(p.ctx, p.buf)
}
