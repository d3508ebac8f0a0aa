package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Reserves keep disk space for the return of each running job: a file whose blocks are
// allocated before the job begins. A job whose return could not be stored does not begin. The
// files left by a kill show which jobs it has ended.
//
// Creating and removing a file for each job would cost more than everything else that a quick
// job does on the disk: ext4, for one, checks all inodes that were freed in the last seconds
// before it uses one. So the files of ended jobs are reused.
type Reserves struct {
	dir    string
	always bool // they survive a power cut, too
	names  atomicfile.Group
	log    *slog.Logger

	mu    sync.Mutex       // guards what follows
	heads map[salt.JID]int // length of the first line of each file without a return
	spare []spare
	last  uint64 // number of the newest one
}

// spare is an allocated file that belongs to no job. Everything after its first line is zero.
type spare struct {
	path string
	head int
}

// Reserved is the first line of such a file. If the return had to be stored here, it follows,
// up to the first zero byte.
type Reserved struct {
	JID      salt.JID      `json:"jid"`
	Box      string        `json:"box"` // name of the outbox for the return
	Commands []job.Command `json:"commands"`
}

const (
	reserveFolder = "running"
	spareFolder   = "spare"
	maxSpare      = 16
	// reserveSize is the space for one return. A larger one is reported as lost if the disk is
	// full and the daemon ends before there is space.
	reserveSize = 16 << 10
)

// OpenReserves opens those in the minion's data directory. With always they survive a power
// cut.
func OpenReserves(dataDir string, always bool, log *slog.Logger) (*Reserves, error) {
	r := &Reserves{dir: filepath.Join(dataDir, reserveFolder), always: always, log: log, heads: map[salt.JID]int{}}
	if err := os.RemoveAll(r.spareDir()); err != nil { // those of the previous daemon
		return nil, err
	}
	return r, errors.Join(os.MkdirAll(r.dir, 0o700), os.MkdirAll(r.spareDir(), 0o700))
}

func (r *Reserves) spareDir() string { return filepath.Join(filepath.Dir(r.dir), spareFolder) }

func (r *Reserves) path(jid salt.JID) string { return filepath.Join(r.dir, string(jid)) }

// Take allocates space for the return of a job, for the outbox named box.
func (r *Reserves) Take(e *job.Envelope, box string) error {
	names := make([]job.Command, len(e.Commands))
	for i, c := range e.Commands {
		names[i].Function = c.Function
	}
	head, err := json.Marshal(Reserved{e.JID, box, names})
	if err != nil {
		return err
	}
	head = append(head, '\n')
	path := r.path(e.JID)
	if old, ok := r.takeSpare(); ok {
		err = r.reuse(old, path, head)
	} else {
		err = allocate(path, os.O_CREATE|os.O_TRUNC, head, head)
	}
	if err != nil {
		_ = os.Remove(path) // it has no space, so it is useless
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heads[e.JID] = len(head)
	return nil
}

func (r *Reserves) takeSpare() (s spare, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spare) == 0 {
		return s, false
	}
	s = r.spare[len(r.spare)-1]
	r.spare = r.spare[:len(r.spare)-1]
	return s, true
}

// reuse makes a spare file that of a job. It is renamed last: a file whose name and first line
// differ belongs to no job.
func (r *Reserves) reuse(old spare, path string, head []byte) error {
	text := append(head, make([]byte, max(0, old.head-len(head)))...) // overwrites all of the old first line
	err := allocate(old.path, 0, head, text)
	if err == nil {
		err = os.Rename(old.path, path)
	}
	if err != nil {
		_ = os.Remove(old.path) // its content is unknown
	}
	return err
}

// allocate allocates space in a file for head and a return, and writes text at its start.
func allocate(path string, flags int, head, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|flags, 0o600)
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
		_, err = f.WriteAt(text, 0)
	}
	return err
}

// Sync returns when the space for the return of a job is on the disk, with always; otherwise at
// once.
func (r *Reserves) Sync(jid salt.JID) error {
	if !r.always {
		return nil
	}
	listed := make(chan error, 1)
	go func() { listed <- r.names.Do(r.syncNames) }()
	err := posix.SyncPath(r.path(jid))
	return errors.Join(err, <-listed)
}

// syncNames writes the directory to the disk.
func (r *Reserves) syncNames() error { return posix.SyncPath(r.dir) }

// Drop frees the space for later jobs.
func (r *Reserves) Drop(jid salt.JID) {
	path, free := r.free(jid)
	if free.path != "" && os.Rename(path, free.path) == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.spare = append(r.spare, free)
		return
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.log.Warn("space for a return is not freed", "jid", jid, "err", err)
	}
}

// free returns what the file of a job becomes: the zero spare if it holds a return, or if there
// are enough spare files.
func (r *Reserves) free(jid salt.JID) (path string, s spare) {
	r.mu.Lock()
	defer r.mu.Unlock()
	head, clean := r.heads[jid]
	delete(r.heads, jid)
	if clean && len(r.spare) < maxSpare {
		r.last++
		s = spare{filepath.Join(r.spareDir(), strconv.FormatUint(r.last, 10)), head}
	}
	return r.path(jid), s
}

// Keep writes a return into its space, if the outbox cannot store it.
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
	r.mu.Lock()
	delete(r.heads, jid) // it is not reused
	r.mu.Unlock()
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

// failedReport is a return for a job that could not return itself.
func failedReport(state job.State, text string) job.Report {
	return job.Report{State: state, Text: text, Return: value.Value{V: text}, Retcode: value.Value{V: 1}, Success: value.Value{V: false}}
}

// Recover reads what a kill or a full disk has left.
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

// leftOf returns the return that was stored, or one for a job that ended with the daemon.
func leftOf(of Reserved, rest []byte) protocol.Return {
	body, _, _ := bytes.Cut(rest, []byte{0})
	var kept protocol.Return
	if len(body) > 0 && json.Unmarshal(body, &kept) == nil {
		return kept
	}
	return protocol.Return{Report: failedReport(job.Killed, "the minion's daemon ended while the job was under way"), Commands: of.Commands}
}
