package audit

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// Limits of a spool. Refusals, which anybody can cause, leave half of it to jobs and decisions that have taken
// effect. The jobs of users and what rules decide about keys leave a quarter to the jobs of operators and to what people
// decide. One user leaves room for five others at least.
const (
	spoolMax   = 64 << 20 // bytes
	spoolNotes = spoolMax / 2
	spoolUsers = spoolMax / 4 * 3
	// spoolUser is for the jobs of one user who is no operator. They begin none in the last quarter of
	// it, so that what happens to those that have begun can be recorded.
	spoolUser = spoolMax / 8
	// spoolNote is for the refusals and decisions of one principal. All minions together are one in what is about
	// keys: anybody can show keys under any name, and cause decisions of rules.
	spoolNote = spoolNotes / 8
	// spoolLine is the longest record.
	spoolLine = 4 << 20
	// spoolBytes is the largest file that is read: with a mark behind all limits.
	spoolBytes = spoolMax + spoolLine
)

// SpoolOptions configures a Spool.
type SpoolOptions struct {
	Path string // of the file, which is there only while it has records
	// Lost returns why this member can store nothing, if it runs jobs nevertheless; nil if it can, or
	// does not run them. A nil function is that of a master that is no member.
	Lost func() error
	// Stalled returns why what is under way is not stored yet. After a loss jobs are recorded here as long as it does: the
	// members have no leader at once when they are back. A nil function means that they have.
	Stalled func() error
	// Durable returns when the events that are stored are on the disk.
	Durable func() error
	Log     *slog.Logger
}

// Spool is a file with what a master decides while it cannot store anything, and a member of a cluster also starts
// then: audit entries, and the events about jobs and keys. When it can again, also after a restart, the
// Log puts all of it into the chain and the journal, once and in order, and removes the file.
//
// Each record is a line with its checksum, and is on the disk before what it is about takes effect.
// A line that a kill has cut is not a record.
type Spool struct {
	opts SpoolOptions
	lost atomic.Bool // this member could store nothing, and what was under way then is not stored yet

	mu     sync.Mutex
	file   *os.File // nil while there is none
	id     string   // of the file
	n      uint64   // the number of the latest record
	size   int64
	torn   bool                    // the file may have more than size
	marked *spoolMark              // where the first attempt to store the records has begun
	jobs   map[salt.JID]spoolOwner // that the file has
	limits [3]int64                // where records end at the latest, by their share
	ofUser int64                   // spoolUser
	ofNote int64                   // spoolNote
	used   map[string]int64        // bytes about jobs of each user who is no operator
	noted  map[string]int64        // bytes of notes about each principal, see noter
}

// spoolShare is a kind of record that may fill a part of the file.
type spoolShare int

const (
	shareNotes spoolShare = iota
	shareUsers
	shareOperators
)

// spoolOwner is who has started a job.
type spoolOwner struct {
	user  string // as Who.known says
	share spoolShare
}

// spoolMark is what the audit log and the journal ended with when records were about to be put
// there: those that were put come after it.
type spoolMark struct {
	Audit   uint64 `json:"audit"`
	Journal uint64 `json:"journal"`
}

// lower returns a mark that is not behind either.
func (m spoolMark) lower(other spoolMark) *spoolMark {
	return &spoolMark{Audit: min(m.Audit, other.Audit), Journal: min(m.Journal, other.Journal)}
}

// spooled is a record.
type spooled struct {
	ID    string   `json:"id,omitempty"` // of the file, in the first one alone
	N     uint64   `json:"n,omitempty"`  // from 1; none for a mark
	Entry *Entry   `json:"entry,omitempty"`
	JID   salt.JID `json:"jid,omitempty"`
	// Operator is for the start of a job by an operator.
	Operator bool `json:"operator,omitempty"`
	// Effective is for a decision that has taken effect already.
	Effective bool          `json:"effective,omitempty"`
	Events    []event.Event `json:"events,omitempty"`
	Mark      *spoolMark    `json:"mark,omitempty"`
}

// errSpoolFull is why nothing more is recorded.
var errSpoolFull = salt.WithHint(errors.New("the record of what is done while it cannot be stored is full"), "start the other members, or look why they are not reached, or why the journal cannot be written: then it is stored, and there is space again")

// errSpoolShare is why nothing more is recorded for a user.
var errSpoolShare = salt.WithHint(errors.New("what this user does while it cannot be stored has filled their share of its record"), "there is space for others, and for this user again when it is stored")

// OpenSpool opens the file, if there is one. A record that a kill has cut is removed.
func OpenSpool(o SpoolOptions) (*Spool, error) {
	s := &Spool{opts: o, jobs: map[salt.JID]spoolOwner{}, ofUser: spoolUser, ofNote: spoolNote, used: map[string]int64{}, noted: map[string]int64{}, limits: [...]int64{shareNotes: spoolNotes, shareUsers: spoolUsers, shareOperators: spoolMax}}
	err := s.open()
	if err != nil {
		err = fmt.Errorf("open %s: %w", o.Path, err)
	}
	return s, err
}

func (s *Spool) open() error {
	f, err := os.OpenFile(s.opts.Path, os.O_RDWR|os.O_APPEND|posix.NoFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	good, bad, err := readSpool(f, spoolBytes, s.know)
	if err == nil && bad > 0 {
		err = s.keepDamaged(f, bad)
	}
	if err == nil && s.id == "" { // it was cut before the first record
		f.Close()
		return os.Remove(s.opts.Path)
	}
	if err == nil {
		err = f.Truncate(good)
	}
	if err != nil {
		f.Close()
		return err
	}
	s.file, s.size = f, good
	s.opts.Log.Warn("what was done while it could not be stored is not stored yet", "file", s.opts.Path, "jobs", len(s.jobs), "records", s.n)
	return nil
}

// know takes a record of the file, of this many bytes, into account.
func (s *Spool) know(r spooled, size int) error {
	if r.ID != "" {
		s.id = r.ID
	}
	s.n = max(s.n, r.N)
	switch {
	case r.Mark == nil:
	case s.marked == nil:
		s.marked = r.Mark
	default:
		s.marked = r.Mark.lower(*s.marked)
	}
	if r.JID == "" && r.Entry != nil {
		s.noted[r.noter()] += int64(size)
	}
	if r.JID != "" {
		owner := s.owner(r)
		s.jobs[r.JID] = owner
		if owner.share == shareUsers {
			s.used[owner.user] += int64(size)
		}
	}
	return nil
}

// owner returns who has started the job of a record. Where the record of the start is damaged, it is
// nobody.
func (s *Spool) owner(r spooled) spoolOwner {
	switch {
	case r.Entry == nil:
		if o, known := s.jobs[r.JID]; known {
			return o
		}
		return spoolOwner{share: shareUsers}
	case r.Operator:
		return spoolOwner{r.Entry.known(), shareOperators}
	}
	return spoolOwner{r.Entry.known(), shareUsers}
}

// damagedSum is how many digits of its hash the name of a copy has.
const damagedSum = 16

// keepDamaged keeps a copy of a file with lines that are no records, the same one for the same text
// however often it is opened. If the first one is damaged, the file gets an id that is the same at each
// start.
func (s *Spool) keepDamaged(f *os.File, bad int) error {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, spoolBytes))
	aside := s.opts.Path + ".damaged-" + Hash(text)[:damagedSum]
	if err == nil {
		err = atomicfile.Write(aside, text, 0o600)
	}
	if s.id == "" && s.n > 0 {
		s.id = Hash(text[:min(len(text), spoolSum)])
	}
	s.opts.Log.Error("records of what was done while it could not be stored are damaged; the others are stored", "damaged", bad, "copy", aside)
	return err
}

// Spool returns the spool, which may be nil.
func (l *Log) Spool() *Spool { return l.opts.Spool }

// Active returns why this member can store nothing, if jobs are run nevertheless and recorded here;
// otherwise nil.
func (s *Spool) Active() error {
	if s == nil || s.opts.Lost == nil {
		return nil
	}
	why := s.opts.Lost()
	if why == nil && s.lost.Load() && s.opts.Stalled != nil {
		why = s.opts.Stalled()
	}
	s.lost.Store(why != nil)
	return why
}

// Has reports whether the file has a job.
func (s *Spool) Has(jid salt.JID) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, has := s.jobs[jid]
	return has
}

// Jobs returns how many jobs the file has.
func (s *Spool) Jobs() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.jobs)
}

// EachJob calls f with the last of the events with which each job began.
func (s *Spool) EachJob(f func(salt.JID, event.Event) error) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	upto := s.n
	s.mu.Unlock()
	return s.each(upto, func(r spooled) error {
		if r.JID == "" || r.Entry == nil || len(r.Events) == 0 {
			return nil
		}
		return f(r.JID, r.Events[len(r.Events)-1])
	})
}

// State records an event about a job that the file has. It has the share of the job.
func (s *Spool) State(jid salt.JID, e event.Event) error {
	return s.add(spooled{JID: jid, Events: []event.Event{e}})
}

// job records the start of a job and its entry, which are both on the disk when it returns nil.
func (s *Spool) job(e Entry, jid salt.JID, events []event.Event, operator bool) error {
	return s.add(spooled{Entry: &e, JID: jid, Operator: operator, Events: events})
}

// note records an entry about what takes no effect.
func (s *Spool) note(e Entry) error { return s.add(spooled{Entry: &e}) }

// decision records an entry about what has taken effect, and the event that tells of it, if that is stored here.
func (s *Spool) decision(e Entry, about ...event.Event) error {
	return s.add(spooled{Entry: &e, Effective: true, Events: about})
}

// add appends a record. It is on the disk when add returns nil; a note may be lost by a power cut.
func (s *Spool) add(r spooled) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.N = s.n + 1
	line, err := r.line()
	if err != nil {
		return err
	}
	if len(line) > spoolLine {
		return salt.WithHint(fmt.Errorf("%d bytes are too many for one record without the quorum of the cluster: the limit is %d", len(line), spoolLine), "long arguments can be sent when most members are reached again")
	}
	if err := s.room(r, len(line)); err != nil {
		return err
	}
	if err = s.begin(); err == nil {
		err = s.write(line, r.Effective || len(r.Events) > 0)
	}
	if err != nil {
		return fmt.Errorf("record it in %s: %w", filepath.Base(s.opts.Path), err)
	}
	return s.know(r, len(line))
}

// room returns why a record of this many bytes is not added. The caller holds mu.
func (s *Spool) room(r spooled, size int) error {
	if r.JID == "" {
		if s.noted[r.noter()]+int64(size) > s.ofNote {
			return errSpoolShare
		}
		switch {
		case !r.Effective:
			return s.within(shareNotes, size)
		case r.noter() == ofMinions: // a decision of a rule
			return s.within(shareUsers, size)
		}
		return s.within(shareOperators, size)
	}
	owner := s.owner(r)
	of := s.ofUser
	if r.Entry != nil {
		of = of / 4 * 3
	}
	if owner.share == shareUsers && s.used[owner.user]+int64(size) > of {
		return errSpoolShare
	}
	return s.within(owner.share, size)
}

// ofMinions stands for all minions, see spoolNote. No other principal has this name.
const ofMinions = "minions\x00"

// noter returns the principal whose share of notes the entry of a record uses. What others decide about keys, at other masters
// or by hand in the key directory, has one for each: refusals of the nameless must not take it.
func (r spooled) noter() string {
	e := r.Entry
	switch {
	case e.Kind != Key || e.UID != nil || e.User != "":
	case e.Minion != "" || e.Rule != "":
		return ofMinions
	case r.Effective:
		return "\x00" + e.Source
	}
	return e.known()
}

func (s *Spool) within(share spoolShare, size int) error {
	if s.size+int64(size) > s.limits[share] {
		return errSpoolFull
	}
	return nil
}

// begin makes the file if there is none. The caller holds mu, as for write.
func (s *Spool) begin() error {
	if s.file != nil {
		return nil
	}
	head := spooled{ID: rand.Text()}
	line, err := head.line()
	if err == nil {
		err = atomicfile.Write(s.opts.Path, line, 0o600)
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(s.opts.Path, os.O_RDWR|os.O_APPEND|posix.NoFollow, 0)
	if err != nil {
		return err
	}
	s.file, s.id, s.size = f, head.ID, int64(len(line))
	if why := s.Active(); why != nil {
		s.opts.Log.Warn("without the quorum of the cluster, what is done is recorded in a file until it can be stored", "file", s.opts.Path, "err", why)
	} else {
		s.opts.Log.Warn("what has taken effect and cannot be stored is recorded in a file until it can", "file", s.opts.Path)
	}
	return nil
}

// write appends a line, or nothing.
func (s *Spool) write(line []byte, sync bool) error {
	if s.torn {
		if err := s.file.Truncate(s.size); err != nil {
			return err
		}
		s.torn = false
	}
	_, err := s.file.Write(line)
	if err == nil && sync {
		err = s.file.Sync()
	}
	if err != nil {
		s.torn = s.file.Truncate(s.size) != nil
		return err
	}
	s.size += int64(len(line))
	return nil
}

// pending returns the number of the latest record that is to be stored, 0 for none.
func (s *Spool) pending() uint64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// mark returns where the first attempt to store the records began, and whether that was an
// earlier one; begin returns it for the first one. It is for one caller at a time.
func (s *Spool) mark(begin func() (spoolMark, error)) (m spoolMark, again bool, err error) {
	s.mu.Lock()
	known := s.marked
	s.mu.Unlock()
	if known != nil {
		return *known, true, nil
	}
	if m, err = begin(); err != nil {
		return m, false, err
	}
	line, err := spooled{Mark: &m}.line()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = s.write(line, true) // above all limits: without it nothing is stored, and there is no space again
	}
	if err == nil {
		s.marked = &m
	}
	return m, false, err
}

// lower makes sure that the mark is not behind what the audit log and the journal end with, at a start: after an older
// backup was restored it would be, and what is stored then would count as older than the mark.
func (s *Spool) lower(end spoolMark) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.marked == nil || *s.marked.lower(end) == *s.marked {
		return nil
	}
	m := s.marked.lower(end)
	line, err := spooled{Mark: m}.line()
	if err == nil {
		err = s.write(line, true)
	}
	if err == nil {
		s.marked = m
	}
	return err
}

// each calls f for the records up to a number.
func (s *Spool) each(upto uint64, f func(spooled) error) error {
	file, err := os.Open(s.opts.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	_, _, err = readSpool(file, spoolBytes, func(r spooled, _ int) error {
		if r.N == 0 || r.N > upto {
			return nil
		}
		return f(r)
	})
	return err
}

// done removes the file, unless there are records behind that number.
func (s *Spool) done(upto uint64) (removed bool, jobs int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n > upto || s.file == nil {
		return false, 0, nil
	}
	if err := os.Remove(s.opts.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, 0, err
	}
	s.file.Close()
	jobs = len(s.jobs)
	s.file, s.id, s.n, s.size, s.torn, s.marked = nil, "", 0, 0, false, nil
	clear(s.jobs)
	clear(s.used)
	clear(s.noted)
	return true, jobs, nil
}

// close closes the file.
func (s *Spool) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		s.file.Close()
	}
}

// name is that of a record, in the chain and in the journal.
func (s *Spool) name(n uint64) string { return s.id + ":" + strconv.FormatUint(n, 10) }

// number is the inverse of name, 0 for the name of another file.
func (s *Spool) number(name string) uint64 {
	id, text, _ := strings.Cut(name, ":")
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || id != s.id {
		return 0
	}
	return n
}
