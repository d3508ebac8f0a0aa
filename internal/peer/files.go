package peer

import (
	"context"
	"errors"
	"io"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// Files implements fileserver.Source over a connection to the master, or to the minion's
// daemon, which passes requests on.
type Files struct {
	Conn func() *rpc.Conn // the one in use, nil for none
}

var errNoFiles = errors.New("there is no connection to the master and its files")

func (f Files) call(op string, q any) (*rpc.Stream, error) {
	c := f.Conn()
	if c == nil {
		return nil, errNoFiles
	}
	return c.Call(op, q)
}

// Environments implements fileserver.Source.
func (f Files) Environments(ctx context.Context) ([]string, error) {
	var envs []string
	err := f.list(ctx, "", func(l protocol.FileList) { envs = append(envs, l.Environments...) })
	return envs, err
}

// List implements fileserver.Source.
func (f Files) List(ctx context.Context, env string) ([]fileserver.File, error) {
	if err := fileserver.CheckEnvironment(env); err != nil {
		return nil, err
	}
	var files []fileserver.File
	err := f.list(ctx, env, func(l protocol.FileList) {
		files = append(files, l.Files...)
	})
	return files, err
}

func (f Files) list(ctx context.Context, env string, take func(protocol.FileList)) error {
	stream, err := f.call(protocol.OpFiles, protocol.Files{Environment: env})
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		var l protocol.FileList
		err := stream.Decode(ctx, &l)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fileError(err)
		}
		take(l)
	}
}

// Stat implements fileserver.Source.
func (f Files) Stat(ctx context.Context, env, name string) (fileserver.File, error) {
	return f.get(ctx, protocol.GetFile{Environment: env, Path: name, Stat: true}, io.Discard)
}

// Get implements fileserver.Source.
func (f Files) Get(ctx context.Context, env, name, have string, w io.Writer) (fileserver.File, error) {
	return f.get(ctx, protocol.GetFile{Environment: env, Path: name, Have: have}, w)
}

func (f Files) get(ctx context.Context, q protocol.GetFile, w io.Writer) (fileserver.File, error) {
	stream, err := f.call(protocol.OpFile, q)
	if err != nil {
		return fileserver.File{}, err
	}
	defer stream.Close()
	var head fileserver.File
	if err := stream.Decode(ctx, &head); err != nil {
		return fileserver.File{}, fileError(err)
	}
	for {
		b, err := stream.Next(ctx)
		if _, err := w.Write(b); err != nil {
			return fileserver.File{}, err
		}
		if errors.Is(err, io.EOF) {
			return head, nil
		}
		if err != nil {
			return fileserver.File{}, fileError(err)
		}
	}
}

// fileError converts an answer of the master to the errors of package fileserver.
func fileError(err error) error {
	switch rpc.CodeOf(err) {
	case rpc.NotFound:
		return answered{err, fileserver.ErrNotFound}
	case rpc.Denied:
		return answered{err, fileserver.ErrPath}
	}
	return err
}

// answered is an error with the master's text.
type answered struct {
	error
	meaning error
}

func (a answered) Unwrap() []error { return []error{a.error, a.meaning} }
