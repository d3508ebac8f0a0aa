package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// damaged is the error of a file beside the chain, the head or the key, with invalid content.
// Nothing is written until Repair: otherwise an attacker who destroys the head would get a new one
// for a chain whose end they cut off.
type damaged struct {
	file   string
	reason string
}

func (d *damaged) Error() string { return fmt.Sprintf("%s: %s", d.file, d.reason) }

const repairHint = "an operator repairs it by 'salt-run audit.repair', which keeps the file as evidence; nothing that is written down is done until then"

// Repaired is what Repair found and did. The zero value means that nothing was damaged.
type Repaired struct {
	Files    []Kept
	Good     uint64   // the last entry of the intact part
	Problems []string // of the chain
	Entry    uint64   // the entry about the repair
}

// Kept is a damaged file: its path, what was wrong, and where it was moved.
type Kept struct{ File, Reason, Aside string }

// spoiled records err and reports whether it is about a damaged file.
func (l *Log) spoiled(err error) bool {
	var d *damaged
	if !errors.As(err, &d) {
		return false
	}
	for _, known := range l.damage {
		if known.file == d.file {
			return true
		}
	}
	l.damage = append(l.damage, d)
	l.hurt.Store(true)
	l.opts.Log.Error("the audit log cannot be written: a file of it is damaged", "file", d.file, "reason", d.reason, "hint", repairHint)
	return true
}

// Damaged reports whether nothing is written until Repair.
func (l *Log) Damaged() bool { return l.hurt.Load() }

func (l *Log) refusal() error {
	names := make([]string, len(l.damage))
	for i, d := range l.damage {
		names[i] = filepath.Base(d.file) + " is damaged"
	}
	return salt.WithHint(fmt.Errorf("%w: %s", ErrUnwritten, strings.Join(names, ", ")), repairHint)
}

// Repair writes an entry by who about what is damaged and how far the chain is intact. When that
// entry is on disk, it moves the damaged files aside and creates new ones. After an error the
// damage is unchanged and Repair can be called again.
func (l *Log) Repair(ctx context.Context, who Who) (Repaired, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return Repaired{}, fmt.Errorf("%w: it is closed", ErrUnwritten)
	}
	l.flying.Wait()
	_, err := l.head.read()
	if err != nil && !l.spoiled(err) || len(l.damage) == 0 {
		return Repaired{}, err
	}
	r, err := l.survey(ctx)
	if err != nil {
		return Repaired{}, err
	}
	p, err := l.tellRepair(ctx, who, &r)
	if err != nil {
		return Repaired{}, fmt.Errorf("%w: %w", ErrUnwritten, err)
	}
	if err := l.renew(r.Files, p.at); err != nil {
		return Repaired{}, err
	}
	l.opts.Log.Warn("the audit log is repaired", "user", who.User, "reason", p.entry.Reason)
	l.announce(p)
	return r, nil
}

// survey finds where the chain continues and how far it is intact.
func (l *Log) survey(ctx context.Context) (r Repaired, err error) {
	suffix := time.Now().UTC().Format(".damaged-20060102T150405.000Z")
	for _, d := range l.damage {
		r.Files = append(r.Files, Kept{File: d.file, Reason: d.reason, Aside: d.file + suffix})
	}
	if _, err := l.resume(ctx); err != nil {
		return r, err
	}
	c := newCheck(&l.removed)
	if err := c.all(ctx, l.opts.Queue); err != nil {
		return r, err
	}
	r.Problems = c.finish().Problems
	r.Good = c.good
	return r, nil
}

// resume sets the position where the chain continues: if the head is unreadable, the end of what is
// stored.
func (l *Log) resume(ctx context.Context) (missing string, err error) {
	known, err := l.head.read()
	var d *damaged
	if errors.As(err, &d) {
		l.last, l.seq, _, err = endOf(ctx, l.opts.Queue)
		return "", err
	}
	if err != nil {
		return "", err
	}
	return l.find(ctx, known)
}

// tellRepair writes the entry and returns when it is on disk. It does not use finish, which would
// write into the damaged head.
func (l *Log) tellRepair(ctx context.Context, who Who, r *Repaired) (*Pending, error) {
	e := Entry{Kind: OfLog, Verdict: Noted, Who: who, Fun: "audit.repair", Time: time.Now().UTC(), Reason: r.words(l.unwritten)}
	line, at, err := e.encode(nil, false, l.last)
	if err != nil {
		return nil, err
	}
	ack, err := l.opts.Queue.BeginAfter(line, l.seq)
	if err == nil {
		_, err = ack.Wait(ctx)
	}
	if err == nil && l.opts.Flush != nil {
		err = l.opts.Flush()
	}
	r.Entry = at.n
	return &Pending{entry: e, line: line, at: at}, err
}

// words returns the reason of the entry; unwritten is the number of entries that could not be
// written since.
func (r *Repaired) words(unwritten int) string {
	var all []string
	for _, k := range r.Files {
		all = append(all, fmt.Sprintf("%s was damaged (%s) and is kept as %s", filepath.Base(k.File), k.Reason, filepath.Base(k.Aside)))
	}
	all = append(all, fmt.Sprintf("the entries up to %d fit together", r.Good))
	if len(r.Problems) > 0 {
		all = append(all, "wrong behind them: "+strings.Join(r.Problems, ", "))
	}
	if unwritten > 0 {
		all = append(all, fmt.Sprintf("entries not written meanwhile, which the log has: %d", unwritten))
	}
	return strings.Join(all, "; ")
}

// renew moves the damaged files aside and creates new ones, with the head at the entry.
func (l *Log) renew(files []Kept, at position) error {
	for _, k := range files {
		if _, err := os.Lstat(k.Aside); err == nil {
			return fmt.Errorf("%s is there already", k.Aside)
		}
		// a missing file was moved by an earlier attempt that failed later, see its entry
		if err := os.Rename(k.File, k.Aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	digest, err := openDigester(l.opts.KeyFile)
	if err != nil {
		return err
	}
	h, _, err := openHead(l.opts.HeadFile)
	if err == nil {
		err = h.write(at)
	}
	if err != nil {
		return err
	}
	l.head.close()
	l.head, l.digest = h, digest
	l.last, l.seq = at, l.seq+1
	l.damage, l.unwritten = nil, 0
	l.broken.Store(false)
	l.hurt.Store(false)
	return nil
}
