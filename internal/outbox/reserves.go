package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Reserves keep space on the disk for the return of each job that is under way: a file
// whose blocks are there before the job begins. A job whose return could not be kept
// does not begin. What is left of them by a kill says which jobs it has ended.
type Reserves struct {
	dir    string
	always bool // a power cut takes back nothing of them either
	names  atomicfile.Group
	log    *slog.Logger
}

// Reserved is the first line of such a file; the return follows it, if it had to be kept
// here, up to the first zero.
type Reserved struct {
	JID      salt.JID      `json:"jid"`
	Box      string        `json:"box"` // the name of the outbox that the return is for
	Commands []job.Command `json:"commands"`
}

const (
	reserveFolder = "running"
	// reserveSize is the space for one return. What is larger is told to be lost, if the
	// disk is full and the daemon ends before there is space.
	reserveSize = 16 << 10
)

// OpenReserves opens those in the minion's data directory. Always says that a power cut
// takes back nothing of them.
func OpenReserves(dataDir string, always bool, log *slog.Logger) (*Reserves, error) {
	dir := filepath.Join(dataDir, reserveFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return &Reserves{dir: dir, always: always, log: log}, nil
}

func (r *Reserves) path(jid salt.JID) string { return filepath.Join(r.dir, string(jid)) }

// Take makes space for the return of a job, in the outbox of the name box.
func (r *Reserves) Take(e *job.Envelope, box string) error {
	names := make([]job.Command, len(e.Commands))
	for i, c := range e.Commands {
		names[i].Function = c.Function
	}
	head, err := json.Marshal(Reserved{e.JID, box, names})
	if err != nil {
		return err
	}
	if err = r.allocate(r.path(e.JID), append(head, '\n')); err != nil {
		_ = os.Remove(r.path(e.JID)) // it has no space, and so no use
	}
	return err
}

func (r *Reserves) allocate(path string, head []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	size := int64(len(head) + reserveSize)
	err = posix.Allocate(f, size)
	if errors.Is(err, errors.ErrUnsupported) {
		_, err = f.Write(make([]byte, size))
	}
	if err == nil {
		_, err = f.WriteAt(head, 0)
	}
	return err
}

// Sync returns when the space for the return of a job is on the disk, where that is waited
// for.
func (r *Reserves) Sync(jid salt.JID) error {
	if !r.always {
		return nil
	}
	listed := make(chan error, 1)
	go func() { listed <- r.names.Do(r.syncNames) }()
	err := posix.SyncPath(r.path(jid))
	return errors.Join(err, <-listed)
}

// syncNames brings to the disk which files there are.
func (r *Reserves) syncNames() error { return posix.SyncPath(r.dir) }

// Drop gives the space back.
func (r *Reserves) Drop(jid salt.JID) {
	if err := os.Remove(r.path(jid)); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.log.Warn("space for a return is not given back", "jid", jid, "err", err)
	}
}

// Keep writes a return into its space: the outbox cannot take it.
func (r *Reserves) Keep(jid salt.JID, ret protocol.Return) error {
	body, err := protocol.Encode(ret)
	if err != nil {
		return err
	}
	if len(body) > reserveSize {
		lost := fmt.Sprintf("ERROR: the job has ended; its return of %d bytes is lost: the disk of the minion was full", len(body))
		if body, err = protocol.Encode(protocol.Return{Report: failedReport(job.Failed, lost), Commands: ret.Commands}); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(r.path(jid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, 64<<10)
	n, _ := f.ReadAt(head, 0)
	end := bytes.IndexByte(head[:n], '\n')
	if end < 0 {
		return errors.New("the space for the return is damaged")
	}
	_, err = f.WriteAt(body, int64(end)+1)
	return err
}

// failedReport is a return that a job did not make itself.
func failedReport(state job.State, text string) job.Report {
	return job.Report{State: state, Text: text, Return: value.Value{V: text}, Retcode: value.Value{V: 1}, Success: value.Value{V: false}}
}

// Recover reads what a kill, or a full disk, has left.
func (r *Reserves) Recover(f func(Reserved, protocol.Return) error) error {
	files, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	for _, file := range files {
		b, err := os.ReadFile(filepath.Join(r.dir, file.Name()))
		if err != nil {
			return err
		}
		head, rest, _ := bytes.Cut(b, []byte("\n"))
		var of Reserved
		if json.Unmarshal(head, &of) == nil && file.Name() == string(of.JID) {
			if err := f(of, leftOf(of, rest)); err != nil {
				return err
			}
		}
		if err := os.Remove(filepath.Join(r.dir, file.Name())); err != nil {
			return err
		}
	}
	return nil
}

// leftOf is the return that was kept, or that of a job which the end of the daemon has
// ended.
func leftOf(of Reserved, rest []byte) protocol.Return {
	body, _, _ := bytes.Cut(rest, []byte{0})
	var kept protocol.Return
	if len(body) > 0 && json.Unmarshal(body, &kept) == nil {
		return kept
	}
	return protocol.Return{Report: failedReport(job.Killed, "the minion's daemon ended while the job was under way"), Commands: of.Commands}
}
