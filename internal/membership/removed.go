package membership

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/member"
)

const (
	// maxListed is how many removed keys a member tells the others, the newest, and takes from the
	// list of another one. With it an answer has some 60 KB at most.
	maxListed = 256
	// maxLearned is how many removed keys a member has at most by what others tell, so that the
	// list has room for what is added here. That of a linked member is added in any case.
	maxLearned = 1024
	// maxName is how many bytes of the name of a member are kept.
	maxName = 64
)

// question is what a member tells when it asks another one what it says of itself, so that a removal is
// learned in both directions, whoever asks.
type question struct {
	Removed []member.Removal `json:"removed,omitempty"`
}

// removals are the removed members, as this member has them in its file and as the others tell them.
type removals struct {
	path string // of the list
	name string // of this member
	key  string // the fingerprint of its own key
	log  *slog.Logger

	throttle logging.Throttle
	file     sync.Mutex // held while the list is changed

	mu   sync.Mutex                  // guards the next fields
	by   map[string][]member.Removal // with the questions of others since the last comparison
	last map[string][]member.Removal // the same, also before that
	came chan struct{}               // signals a list that may have something new

	readmitted map[string]bool // keys that were logged as accepted here; used by learn
}

func (r *removals) signal() chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.came == nil {
		r.came = make(chan struct{}, 1)
	}
	return r.came
}

// newest returns the removed keys that the others are told.
func (r *removals) newest() []member.Removal {
	own, err := member.ReadRemovals(r.path)
	if err != nil { // then nobody is accepted either, and the log of the broker says why
		return nil
	}
	return own.List[max(0, len(own.List)-maxListed):]
}

// hear keeps the list that another member tells with its question, until the comparison. Only those of
// linked members are kept, so that there are few.
func (r *removals) hear(from string, linked map[string]string, body []byte) error {
	var q question
	if err := json.Unmarshal(body, &q); err != nil {
		return fmt.Errorf("unreadable list of removed members: %w", err)
	}
	own, err := member.ReadRemovals(r.path)
	if err != nil {
		return err
	}
	have := own.Fingerprints()
	fresh := slices.ContainsFunc(q.Removed, func(one member.Removal) bool { return !have[one.Fingerprint] && !own.Back[one.Fingerprint] })
	if !fresh || linked[from] == "" || !r.keep(from, q.Removed[:min(len(q.Removed), maxListed)]) {
		return nil
	}
	select {
	case r.signal() <- struct{}{}:
	default:
	}
	return nil
}

// keep reports whether the list is another one than that of the last time: what was not believed, or
// could not be written, is no news.
func (r *removals) keep(from string, list []member.Removal) (other bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string][]member.Removal{}
	}
	if r.last == nil {
		r.last = map[string][]member.Removal{}
	}
	other = !slices.Equal(r.last[from], list)
	r.by[from], r.last[from] = list, list
	return other
}

func (r *removals) take() map[string][]member.Removal {
	r.mu.Lock()
	defer r.mu.Unlock()
	by := r.by
	r.by = nil
	return by
}

// keysOf returns the fingerprints of members by their names.
func keysOf(members []member.Member) map[string]string {
	keys := map[string]string{}
	for _, one := range members {
		keys[one.Name] = one.Key.SHA256()
	}
	return keys
}

// apply refuses the keys that other members have removed, and ends the routes to them.
func (r *removals) apply(all map[string]said, c *broker.Cluster, l *leaving) {
	added, cut := r.learn(all, keysOf(c.Members()))
	if added {
		c.Cut()
	}
	for _, name := range cut { // it may count for elections again, by its link
		l.add(name)
	}
}

// askEvery is how often a member that starts asks the others for removed keys.
const askEvery = time.Second

// start learns of removals while a member starts, before it serves anybody: what is stored then may depend
// on the removed one. It returns what ends that, after a last look.
func (r *removals) start(ctx context.Context, x *cluster.Exchange, c *broker.Cluster, l *leaving) (end func()) {
	going, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			linked, changed := c.Linked()
			r.apply(askLinked(going, x, linked, question{r.newest()}), c, l)
			select {
			case <-changed:
			case <-time.After(askEvery):
			case <-going.Done():
				return
			}
			select { // a link that has changed may change again
			case <-time.After(comparePause):
			case <-going.Done():
				return
			}
		}
	})
	return func() {
		stop()
		wg.Wait()
		r.apply(askLinked(ctx, x, c.Members(), question{r.newest()}), c, l)
	}
}

// askLinked asks members what they say of themselves. Those that start themselves do not answer.
func askLinked(ctx context.Context, x *cluster.Exchange, linked []member.Member, q question) map[string]said {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	all := map[string]said{}
	for _, one := range linked {
		wg.Go(func() {
			var s said
			if err := x.AskLinked(ctx, one.Name, kindStatus, q, &s); err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all[one.Name] = s
		})
	}
	wg.Wait()
	return all
}

// learn refuses the keys that other members have removed, since this one may not have run at that
// time. linked are the keys of the linked members. It returns whether there are new ones, and the names of
// those that are linked.
func (r *removals) learn(all map[string]said, linked map[string]string) (added bool, cut []string) {
	lists := map[string][]member.Removal{}
	maps.Copy(lists, r.take())
	for name, s := range all {
		lists[name] = append(slices.Clone(lists[name]), s.Removed[:min(len(s.Removed), maxListed)]...)
	}
	own, err := member.ReadRemovals(r.path)
	if err != nil {
		r.throttle.Log(r.log, slog.LevelError, "learn", 1, "it is not known which members are removed", "err", err)
		return false, nil
	}
	for _, c := range claims(lists, linked, own) {
		name, isLinked := r.ownerOf(linked, c.Removal)
		switch {
		case c.Fingerprint == r.key:
			continue
		case own.Back[c.Fingerprint]:
			r.back(c)
			continue
		case len(own.List) >= maxLearned && !isLinked:
			r.throttle.Log(r.log, slog.LevelError, "many", 1, "a member that another one has removed is not added to the list here, which is long", "member", c.by, "fingerprint", c.Fingerprint, "hint", "remove the lines of keys that no longer exist from "+r.path)
			continue
		}
		c.Name = name
		if err := r.add(c.Removal, "told by "+c.by); err != nil {
			r.throttle.Log(r.log, slog.LevelError, "add", 1, "a member that another one has removed is not refused", "member", c.by, "removed", name, "fingerprint", c.Fingerprint, "err", err)
			continue
		}
		r.log.Warn("a member was removed from the cluster, as another one says: it is refused from now on", "member", c.by, "removed", name, "fingerprint", c.Fingerprint)
		own.List, added = append(own.List, c.Removal), true
		if isLinked {
			cut = append(cut, name)
		}
	}
	return added, cut
}

// ownerOf returns the name of a removed member, and whether it is linked. What the link shows counts
// more than what another one says.
func (r *removals) ownerOf(linked map[string]string, one member.Removal) (name string, isLinked bool) {
	for name, key := range linked {
		if key == one.Fingerprint {
			return name, true
		}
	}
	if len(one.Name) > maxName || nameOf(one.Name) != one.Name || one.Name == r.name {
		return "", false
	}
	return one.Name, false
}

// back logs once that a removed key is accepted here nevertheless.
func (r *removals) back(c claim) {
	if r.readmitted[c.Fingerprint] {
		return
	}
	if r.readmitted == nil {
		r.readmitted = map[string]bool{}
	}
	r.readmitted[c.Fingerprint] = true
	r.log.Warn("another member refuses one that is accepted here, since its line is commented out", "member", c.by, "removed", c.Name, "fingerprint", c.Fingerprint, "file", r.path)
}

// add adds a key to the list, which is read at each handshake and several times a second.
func (r *removals) add(one member.Removal, how string) error {
	r.file.Lock()
	defer r.file.Unlock()
	if one.Name != "" {
		one.Name = nameOf(one.Name)
	}
	return member.AddRemoved(r.path, one, fmt.Sprintf("removed %s, %s", time.Now().UTC().Format(time.DateTime), how))
}

// claim is that a key was removed, as the member by says.
type claim struct {
	member.Removal
	by string
}

// claims returns what this member believes of what the linked members say, without what is in its own
// list. Whoever another one calls removed is not believed, so that they cannot put others out in turn. Only if
// two say that of each other, and as many others of either, both are believed, so that neither is accepted:
// nobody here can know which of the two keys was stolen.
func claims(lists map[string][]member.Removal, keys map[string]string, own member.Removals) []claim {
	refused := own.Fingerprints()
	says, votes := map[string]member.Fingerprints{}, map[string]int{} // by whom, of whom
	for name, list := range lists {
		if key := keys[name]; key != "" && !refused[key] {
			says[key] = member.Removals{List: list}.Fingerprints()
			delete(says[key], key)
		}
	}
	for _, one := range says {
		for finger := range one {
			votes[finger]++
		}
	}
	var list []claim
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		key := keys[name]
		for _, r := range lists[name] {
			mutual := says[r.Fingerprint][key] && votes[key] <= votes[r.Fingerprint]
			if !says[key][r.Fingerprint] || refused[r.Fingerprint] || votes[key] > 0 && !mutual || member.CheckFingerprint(r.Fingerprint) != nil {
				continue
			}
			refused[r.Fingerprint] = true
			list = append(list, claim{r, name})
		}
	}
	return list
}
