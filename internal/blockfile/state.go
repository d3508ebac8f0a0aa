package blockfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/posix"
)

// State is a small file beside the store: how the store was closed, and which sequences may have
// been shown. It is synced before its content matters.
type State struct {
	Clean bool   `json:"clean"` // it was closed properly
	Boot  string `json:"boot"`  // boot id of the machine when it was opened
	// High is the highest sequence of each stream that may have been given out; after a proper
	// close, the last one.
	High map[string]uint64 `json:"high,omitempty"`
	// Lost is everything that was found to be lost, the latest at the end.
	Lost []Lost `json:"lost,omitempty"`
	// Found is what Recover has found to be lost and not yet reported. It is written before anything is repaired:
	// what is repaired is not found again, and Recover may fail, or be killed, behind that.
	Found []Lost `json:"found,omitempty"`
	// Rewrite is the blocks of each stream that may not be on the disk, although the kernel considers them written, and
	// for whose copies there was no room.
	Rewrite map[string][]int `json:"rewrite,omitempty"`
}

// maxLost limits how many are remembered.
const maxLost = 256

func statePath(dir string) string { return filepath.Join(dir, "state.json") }

// ReadState returns the state of the store, the zero value if there is none.
func ReadState(dir string) (State, error) {
	m := State{}
	b, err := os.ReadFile(statePath(dir))
	if err == nil {
		err = json.Unmarshal(b, &m)
		if err != nil { // it is written atomically, so someone else has changed it
			return State{}, fmt.Errorf("read %s: %w", statePath(dir), err)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if m.High == nil {
		m.High = map[string]uint64{}
	}
	return m, err
}

// Write writes the state to disk.
func (m State) Write(dir string) error {
	m.Lost = m.Lost[max(0, len(m.Lost)-maxLost):]
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return atomicfile.Write(statePath(dir), b, 0o600)
}

const unknownBoot = "unknown" // then each start is treated as one after a power failure

// boot identifies the period in which the kernel has lost no written data.
func boot() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return unknownBoot
	}
	return strings.TrimSpace(string(b))
}

// Recover prepares a closed store for the server. After anything but a proper close it checks all
// blocks that it does not know, repairs them, and writes the indexes, so that the server does not
// read everything again. Data that could not be synced before is first written again. A sequence
// that may have been shown is not given out again, whatever was lost: the streams in High continue
// after it. Recover returns what it found, and the new state, which is already written. After an error there is a report only
// if the next Recover does not find the same.
func Recover(dir string) (State, *Report, error) {
	return recoverStore(dir, realDisk(), true)
}

// RecoverAgain is Recover for a store that this process has closed, after Syncer.Renew: what the kernel has is on the
// disk already.
func RecoverAgain(dir string) (State, *Report, error) { return recoverStore(dir, realDisk(), false) }

// disk is what Recover does to the disk, except for the repair of blocks; tests use failing disks.
type disk struct {
	write func(m State, dir string) error
	skip  func(dir, stream string, seq uint64) error
	data  syncFile
}

func realDisk() disk { return disk{write: State.Write, skip: SkipTo, data: posix.SyncData} }

// recoverStore is Recover at a start, and RecoverAgain otherwise.
func recoverStore(dir string, on disk, start bool) (State, *Report, error) {
	m, err := ReadState(dir)
	if err != nil {
		return m, nil, err
	}
	err = m.sync(dir, on.data, start)
	var doubtful []string
	if err == nil {
		doubtful, err = noted(dir)
	}
	if err == nil {
		err = renewNoted(dir, doubtful, on.data)
	}
	if err != nil {
		return m, nil, err
	}
	m.Clean = m.Clean && len(doubtful) == 0
	begun := m.Found
	r, err := inspect(dir, m, func(lost []Lost) error {
		m.Found = merge(m.Found, lost)
		return on.write(m, dir)
	})
	if err != nil {
		return m, nil, err
	}
	r.Lost = merge(m.Found, r.Lost)
	var skip []string
	for stream, high := range m.High {
		last := r.Last[stream]
		torn := r.Torn[stream] || slices.Contains(doubtful, stream) || slices.ContainsFunc(begun, func(l Lost) bool { return l.endOf(stream, last) })
		if last >= high || !m.Clean && !torn && m.sameBoot() {
			continue // no power failure, so nothing was lost
		}
		r.Lost = endAt(r.Lost, stream, last, high)
		skip = append(skip, stream)
	}
	if len(skip) > 0 {
		m.Found = r.Lost
		if err := on.write(m, dir); err != nil {
			return m, nil, err
		}
	}
	for _, stream := range skip {
		if err := on.skip(dir, stream, m.High[stream]); err != nil {
			return m, nil, fmt.Errorf("repair the store: %w", err)
		}
		r.unsure(stream)
	}
	if err := r.index(dir); err != nil {
		return m, nil, fmt.Errorf("write the index of the store: %w", err)
	}
	done := m
	done.Clean, done.Boot, done.Lost, done.Found = false, boot(), append(m.Lost, r.Lost...), nil
	if err := on.write(done, dir); err != nil {
		return m, nil, err
	}
	for _, stream := range doubtful {
		err = errors.Join(err, dropNote(dir, stream))
	}
	return done, r, err
}

// sync brings to the disk what the kernel has and the disk may lack: all after a kill, and what there was no room for before.
func (m *State) sync(dir string, data syncFile, start bool) error {
	if !m.sameBoot() && boot() != unknownBoot {
		m.Rewrite = nil // the kernel has nothing more
		return nil
	}
	if err := m.rewrite(dir, data); err != nil || !start || m.Clean {
		return err
	}
	full, err := syncStore(dir, data)
	for stream, blocks := range full {
		all := append(m.Rewrite[stream], blocks...)
		slices.Sort(all)
		m.Rewrite[stream] = slices.Compact(all)
	}
	return err
}

// merge adds what was found to what was found before, by an attempt that did not come to its end.
func merge(before, now []Lost) (all []Lost) {
	for _, l := range before {
		if !slices.ContainsFunc(now, l.same) {
			all = append(all, l)
		}
	}
	return append(all, now...)
}

// endOf reports whether that is the end of the stream, behind last. If an attempt that did not come to its end has found
// it, the block may be cut there by now, without a block that goes on after what is lost.
func (l Lost) endOf(stream string, last uint64) bool {
	return l.Stream == stream && (l.To == 0 || l.To > last)
}

// same reports whether another attempt has found the same: a block has one damage at a place, and a stream without
// a block one end.
func (l Lost) same(other Lost) bool {
	return l.Stream == other.Stream && l.Block == other.Block && l.Offset == other.Offset && l.From == other.From
}

// inspect checks the ends of the streams after a proper close. If they are not where they were, or
// if the close was not proper, it checks everything else too. found is called before anything of what is lost
// is repaired.
func inspect(dir string, m State, found func([]Lost) error) (*Report, error) {
	c := Checker{Dir: dir, Repair: true, found: found}
	if m.Clean && len(m.Found) == 0 {
		r, err := ends(dir)
		whole := err == nil && len(r.Lost) == 0
		for stream, high := range m.High {
			whole = whole && r.Last[stream] >= high
		}
		if whole || err != nil {
			return r, err
		}
	}
	c.known, c.learn = m.sameBoot(), true
	return c.Check()
}

// sameBoot reports whether the kernel has lost nothing since the store was opened.
func (m State) sameBoot() bool { return m.Boot == boot() && m.Boot != unknownBoot }

// ends checks only the newest blocks.
func ends(dir string) (*Report, error) {
	return Checker{Dir: dir, newestOnly: true}.Check()
}

// errNoRoom is why a store was not closed properly.
var errNoRoom = errors.New("no room to write a part of the store again that may not be on the disk")

// Leave records that the store was closed properly.
func (m State) Leave(dir string) error { return m.leave(dir, posix.SyncData) }

func (m State) leave(dir string, data syncFile) error {
	if err := m.rewrite(dir, data); err != nil {
		return err
	}
	if len(m.Rewrite) > 0 {
		return errNoRoom
	}
	r, err := ends(dir)
	if err != nil {
		return err
	}
	m.Clean = true
	for stream := range m.High {
		m.High[stream] = r.Last[stream]
	}
	return m.Write(dir)
}

// endAt records that the end of the stream is lost, up to high.
func endAt(lost []Lost, stream string, last, high uint64) []Lost {
	for i := range lost {
		if l := &lost[i]; l.endOf(stream, last) {
			l.To = high
			return lost
		}
	}
	return append(lost, Lost{Stream: stream, From: last + 1, To: high})
}
