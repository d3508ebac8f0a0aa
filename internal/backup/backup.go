// Package backup moves whole stores of masters: it writes the streams of a store into a
// directory, and puts those of such a directory into an empty store, alone or of a cluster, with
// their sequences and times.
//
// It does not know what is in the streams. Keys, configuration, and the head of the audit log,
// which is with the keys, are no part of the store.
package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// Options say what is written, and where.
type Options struct {
	Dir     string // absolute; it must not exist, and its parent must
	Member  string // the name of this member of a cluster; "" for a single master
	Cluster string // its cluster_id
	Version string // of the program
	Closed  bool   // nobody writes to the store, perhaps for long: its time is that of its newest message
	Log     *slog.Logger
}

// maxStreams is how many streams a backup may have. A member has some twenty.
const maxStreams = 4096

// tries is how often a stream is read: the leader of its copies may end meanwhile.
const tries = 3

// Write writes all streams of the store that nc is connected to, while they are written to.
// Each is as it was at some moment during the backup, a table each entry for itself; those that others refer to are
// last. The directory appears when it is whole. What backups that were killed have left beside it is removed.
func Write(ctx context.Context, nc *nats.Conn, o Options) (*Manifest, error) {
	if err := checkFree(o.Dir); err != nil {
		return nil, err
	}
	removeUnfinished(filepath.Dir(o.Dir), o.Log)
	names, err := streamNames(ctx, nc)
	if err != nil {
		return nil, err
	}
	if err := checkRoom(ctx, nc, o.Dir, names); err != nil {
		return nil, err
	}
	u, err := newUnfinished(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("back up into %s: %w", o.Dir, err)
	}
	defer u.remove()
	m := &Manifest{Format: format, Version: o.Version, Time: time.Now().UTC(), Mode: modeOf(o.Member), Member: o.Member, Cluster: o.Cluster, Unconfirmed: o.Closed && o.Member != ""}
	for _, name := range inOrder(names) {
		s, err := writeStream(ctx, nc, u.dir, name)
		if err != nil {
			return nil, fmt.Errorf("back up the stream %s: %w", name, err)
		}
		o.Log.Debug("a stream is in the backup", "stream", name, "messages", s.Messages, "bytes", s.Bytes)
		m.Streams = append(m.Streams, *s)
	}
	if o.Closed {
		m.Time = newest(m.Streams, m.Time)
	}
	if err := m.write(u.dir); err != nil {
		return nil, fmt.Errorf("back up into %s: %w", o.Dir, err)
	}
	if err := appear(u.dir, o.Dir); err != nil {
		return nil, fmt.Errorf("back up into %s: %w", o.Dir, err)
	}
	return m, nil
}

// newest returns the time of the newest message of streams, otherwise that given.
func newest(streams []Stream, otherwise time.Time) time.Time {
	var last time.Time
	for _, s := range streams {
		if s.newest.After(last) {
			last = s.newest
		}
	}
	if last.IsZero() {
		return otherwise
	}
	return last.UTC()
}

// checkFree checks that a directory of this name can appear.
func checkFree(dir string) error {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) == "/" {
		return salt.WithHint(fmt.Errorf("%.200q is not the path of a new directory", dir), "name it from the root on, since the daemon has a directory of its own")
	}
	_, err := os.Lstat(dir)
	if err == nil {
		return salt.WithHint(fmt.Errorf("%s is there already", dir), "each backup gets a directory of its own")
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// spareRoom is what a backup leaves free on its disk at least: the store may be on the same one, and a master that
// cannot write its store ends.
const spareRoom = 64 << 20

// checkRoom checks that the disk of a directory has room for these streams. A backup is compressed, and
// takes what they take in the store at most.
func checkRoom(ctx context.Context, nc *nats.Conn, dir string, names []string) error {
	size := uint64(0)
	for _, name := range names {
		stream, err := ofLeader(ctx, nc, name)
		if err != nil && !errors.Is(err, errNoStream) {
			return err
		}
		size += stream.State.Bytes
	}
	disk, err := posix.StatFS(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return salt.WithHint(fmt.Errorf("back up into %s: %w", dir, err), "the directory above it must exist: make "+filepath.Dir(dir)+" first")
	}
	if err != nil {
		return fmt.Errorf("back up into %s: %w", dir, err)
	}
	if free := disk.Available * disk.BlockSize; free < size+spareRoom {
		return salt.WithHint(fmt.Errorf("the disk of %s has %d MiB free, and the backup may take %d MiB; %d MiB must stay free", dir, free>>20, size>>20+1, spareRoom>>20), "name a directory on another disk")
	}
	return nil
}

// appear gives the directory its name, once everything in it is on the disk.
func appear(tmp, dir string) error {
	if err := posix.SyncPath(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return posix.SyncPath(filepath.Dir(dir))
}

// inOrder sorts the streams: what refers to events, a position for example, is read before the
// events are, so that nothing in the backup is ahead of them.
func inOrder(names []string) []string {
	rank := func(name string) int {
		if name == journal.Stream || strings.HasPrefix(name, journal.Stream+"_") {
			return 1
		}
		return 0
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a, b)) })
	return names
}

// streamNames lists the streams of the store.
func streamNames(ctx context.Context, nc *nats.Conn) (names []string, err error) {
	for {
		var page struct {
			Total   int      `json:"total"`
			Streams []string `json:"streams"`
		}
		if err := ask(ctx, nc, "STREAM.NAMES", map[string]int{"offset": len(names)}, &page); err != nil {
			return nil, fmt.Errorf("list the streams of the store: %w", err)
		}
		names = append(names, page.Streams...)
		if len(names) >= page.Total || len(page.Streams) == 0 {
			return names, nil
		}
		if len(names) > maxStreams {
			return nil, fmt.Errorf("the store has %d streams, the limit is %d", page.Total, maxStreams)
		}
	}
}

// writeStream writes one stream, and reads it back.
func writeStream(ctx context.Context, nc *nats.Conn, dir, name string) (s *Stream, err error) {
	for range tries {
		s, err = writeOnce(ctx, nc, dir, name)
		if err == nil || ctx.Err() != nil || errors.Is(err, errNoStream) || fatal(err) {
			break
		}
		if isLeaderless(err) {
			if _, bad := ofLeader(ctx, nc, name); bad != nil {
				return nil, bad
			}
		}
	}
	return s, err
}

func writeOnce(ctx context.Context, nc *nats.Conn, dir, name string) (*Stream, error) {
	s, err := snapshot(ctx, nc, dir, name)
	if err != nil {
		return nil, err
	}
	lost, err := s.readBack(dir)
	if err != nil || lost == 0 || !s.isTable() {
		return s, err
	}
	if err := s.addTail(ctx, nc, dir); err != nil {
		return nil, fmt.Errorf("add what was stored meanwhile: %w", err)
	}
	_, err = s.readBack(dir)
	return s, err
}

// fatal reports whether the disk does not take the backup, or a table is written too fast.
func fatal(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path) || errors.Is(err, errTail)
}

// askTime is how long the server may take for one answer about a stream.
const askTime = 15 * time.Second

// errNoStream is wrapped by the error about a stream that does not exist.
var errNoStream = errors.New("there is no such stream")

// errExists is wrapped by the error about a stream that exists already.
var errExists = errors.New("the stream exists already")

// fault is an error of the server.
type fault struct {
	Code int    `json:"err_code"`
	Text string `json:"description"`
}

// Codes of the server's errors.
const (
	codeNoPeers     = 10005 // JSClusterNoPeersErrF
	codeUnavailable = 10008 // JSClusterNotAvailErr
	codeAssignment  = 10048 // JSStreamAssignmentErrF
	codeTaken       = 10058 // JSStreamNameExistErr
	codeNoStream    = 10059 // JSStreamNotFoundErr
	codeRestore     = 10062 // JSStreamRestoreErrF
	codeNotLeader   = 10009 // JSClusterNotLeaderErr
	codeNoMessage   = 10037 // JSNoMessageFoundErr
	codeWrongLast   = 10071 // JSStreamWrongLastSequenceErrF
	codeNotStored   = 10077 // JSStreamStoreFailedF
	codeExists      = 10130 // JSStreamNameExistRestoreFailedErr
)

func (f *fault) Error() string { return f.Text }

// Is implements the test of errors.Is.
func (f *fault) Is(target error) bool {
	return target == errNoStream && f.Code == codeNoStream || target == errExists && (f.Code == codeExists || f.Code == codeTaken)
}

// ask sends a request about streams, and reads the answer into answer.
func ask(ctx context.Context, nc *nats.Conn, what string, question, answer any) error {
	return askWithin(ctx, nc, askTime, what, question, answer)
}

func askWithin(ctx context.Context, nc *nats.Conn, limit time.Duration, what string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	once, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m, err := nc.RequestWithContext(once, "$JS.API."+what, body)
	if err != nil {
		return unanswered(ctx, err, limit)
	}
	return answered(m.Data, answer)
}

// answered reads an answer of the server.
func answered(text []byte, answer any) error {
	var a struct {
		Error *fault `json:"error"`
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return fmt.Errorf("unreadable answer of the server: %w", err)
	}
	if a.Error != nil {
		return a.Error
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
