package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/journal"
)

// sight is the last entry of another master's audit log that this one has seen.
type sight struct {
	N    uint64    `json:"n"`
	Hash string    `json:"hash"`
	Time time.Time `json:"time"`
}

func (s sight) String() string {
	return fmt.Sprintf("entry %d, which was seen here at %s", s.N, s.Time.UTC().Format(time.DateTime))
}

// maxSights limits how many are kept: there are few members, but whoever has the key of one can store anything.
// Those of former members stay until their logs are pruned.
const maxSights = 1024

// errSights is wrapped by the error of readSights.
var errSights = errors.New("it is not known what was seen here of the audit logs of others")

// SeenName is the name of the file with them, in pki_dir.
const SeenName = "audit.seen"

// RenameSeen changes the names of others in the file at path: their audit logs have been restored under new ones. What is noted under a
// new name stays. A file that is missing, or cannot be read, stays as it is: whoever reads it later says so.
func RenameSeen(path string, names map[string]string) error {
	text, err := os.ReadFile(path)
	if err != nil || len(names) == 0 {
		return nil //nolint:nilerr // see above
	}
	seen := map[string]sight{}
	if json.Unmarshal(text, &seen) != nil {
		return nil
	}
	before := maps.Clone(seen)
	for from, to := range names {
		one, is := seen[from]
		if _, there := seen[to]; !is || there {
			continue
		}
		seen[to] = one
		delete(seen, from)
	}
	if maps.Equal(seen, before) {
		return nil
	}
	if text, err = json.MarshalIndent(seen, "", " "); err != nil {
		return err
	}
	return atomicfile.Write(path, append(text, '\n'), 0o600)
}

// readSights returns what is in the file, by member. It is read each time, so that an operator can take out what is
// not to be compared any more. A file that cannot be read is not the same as none: it may know of entries that are gone.
func readSights(l *Log) (map[string]sight, error) {
	if l.opts.SeenFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(l.opts.SeenFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	seen := map[string]sight{}
	if err == nil {
		err = json.Unmarshal(text, &seen)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w; correct it, or remove it to begin anew", errSights, l.opts.SeenFile, err)
	}
	return seen, nil
}

// look notes the ends of the audit logs of others, so that what is changed or cut off later is found out also when
// their members are gone. What does not follow the entry that was seen before is not noted, and told in words.
func look(ctx context.Context, l *Log, all []*Chain) (wrong map[string]string, err error) {
	seen, err := readSights(l)
	if err != nil {
		return nil, err
	}
	next, wrong := maps.Clone(seen), map[string]string{}
	if next == nil {
		next = map[string]sight{}
	}
	var errs []error
	for _, c := range all {
		switch {
		case c.Own:
			continue
		case c.fault != nil:
			errs = append(errs, c.fault)
			continue
		case c.queue == nil:
			wrong[c.Name] = c.missing().Error()
			continue
		}
		at, what, err := follows(ctx, c.queue, seen[c.Name])
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("the audit log of %s: %w", c.Name, err))
		case what != "":
			wrong[c.Name] = what
		default:
			errs = append(errs, note(ctx, l, next, c, at))
		}
	}
	if !maps.Equal(seen, next) {
		text, err := json.MarshalIndent(next, "", " ")
		if err == nil {
			err = atomicfile.Write(l.opts.SeenFile, append(text, '\n'), 0o600)
		}
		errs = append(errs, err)
	}
	return wrong, errors.Join(errs...)
}

// note notes the end of the log of another one in next, unless only what tells of the pruning of that is left: there is nothing to
// compare any more.
func note(ctx context.Context, l *Log, next map[string]sight, c *Chain, at position) error {
	spent, err := isSpent(ctx, c.queue)
	known := next[c.Name].N
	switch {
	case err != nil:
		return fmt.Errorf("the audit log of %s: %w", c.Name, err)
	case spent:
		delete(next, c.Name)
	case at.n <= known:
	case known == 0 && len(next) >= maxSights:
		l.opts.Log.Error("the end of the audit log of another master is not noted here: what is cut off from it would not be found out", "member", c.Name, "limit", maxSights,
			"hint", "take former members out of "+l.opts.SeenFile)
	default:
		next[c.Name] = sight{N: at.n, Hash: at.hash, Time: time.Now().UTC().Truncate(time.Second)}
	}
	return nil
}

// isSpent reports whether everything that a former member has written was removed from its log, see pruneFormer.
func isSpent(ctx context.Context, q *journal.Queue) (spent bool, err error) {
	newest, any, err := q.Newest(ctx)
	if err != nil || !any {
		return false, err
	}
	if e, bad := parse(newest.Body); bad != nil || !byAnother(&e) {
		return false, nil
	}
	span, err := q.Span(ctx)
	if err != nil {
		return false, err
	}
	err = each(ctx, q, span.First, span.Last, func(m journal.Entry) error {
		e, bad := parse(m.Body)
		if spent = bad == nil && byAnother(&e); !spent {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return spent, err
}

// follows returns the last entry of a queue, and what is wrong if that does not follow the one that was seen.
func follows(ctx context.Context, q *journal.Queue, seen sight) (at position, wrong string, err error) {
	at, _, _, err = endOf(ctx, q)
	if err != nil || seen.N == 0 {
		return at, "", err
	}
	if at.n < seen.N {
		return at, numbers(at.n+1, seen.N) + " missing at the end", nil
	}
	hash, seq, err := find(ctx, q, seen.N)
	switch {
	case err != nil:
		return at, "", err
	case seq > 0 && hash != seen.Hash:
		return at, fmt.Sprintf("entry %d is not the one that was written", seen.N), nil
	}
	return at, "", nil // if it is not there it was pruned, or Verify says so
}

// keepOthers notes the ends of the audit logs of others, and prunes those of former members, until Close.
func keepOthers(l *Log) {
	ctx, cancel := context.WithCancel(l.life)
	defer cancel()
	l.wg.Go(func() {
		<-l.stop
		cancel()
	})
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for suspected := map[string]string{}; ; {
		suspected = keepOthersOnce(ctx, l, suspected)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// keepOthersOnce returns what seems to be wrong, and logs what has seemed so at the last look, too: during an election a
// server may answer that lacks the newest entries.
func keepOthersOnce(ctx context.Context, l *Log, suspected map[string]string) (wrong map[string]string) {
	all, err := Chains(ctx, l)
	if err == nil {
		wrong, err = look(ctx, l, all)
	}
	for name, what := range wrong {
		if suspected[name] != "" {
			l.opts.Log.Error("the audit log of another master is not what it was", "member", name, "reason", what, "hint", "salt-run audit.verify member="+name)
		}
	}
	for _, c := range all {
		if wrong[c.Name] == "" && c.unseen == nil {
			err = errors.Join(err, pruneFormer(ctx, c, l.opts.limits(time.Now())))
		}
	}
	if err != nil && ctx.Err() == nil {
		l.opts.Log.Warn("audit logs of others not looked after; it is tried again", "pause", keepEvery, "err", err)
	}
	return wrong
}
