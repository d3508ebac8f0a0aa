package journal

import (
	"slices"
	"strings"
	"sync"
)

// How many tags, and jobs, are remembered for completion.
const (
	recentTags = 512
	recentJobs = 128
)

// Recent holds the tags that were stored last, each once, in memory, so that completion need
// not read the store.
type Recent struct {
	mu   sync.Mutex
	tags ring
	jobs ring // ids
}

// ring holds the newest of many words.
type ring struct {
	words []string
	have  map[string]bool
	next  int // the oldest, once it is full
}

func (r *ring) add(word string, most int) {
	switch {
	case r.have[word]:
		return
	case r.have == nil:
		r.have = map[string]bool{}
	}
	r.have[word] = true
	if len(r.words) < most {
		r.words = append(r.words, word)
		return
	}
	delete(r.have, r.words[r.next])
	r.words[r.next] = word
	r.next = (r.next + 1) % most
}

// add takes the tag of an event. Of the tags of one job, one for each of its minions, it keeps
// the first.
func (r *Recent) add(tag string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest, ofJob := strings.CutPrefix(tag, "salt/job/")
	if !ofJob {
		r.tags.add(tag, recentTags)
		return
	}
	if id, isNew := strings.CutSuffix(rest, "/new"); isNew {
		r.tags.add(tag, recentTags)
		r.jobs.add(id, recentJobs)
	}
}

// Tags returns the tags of the newest events since the start, unsorted.
func (r *Recent) Tags() []string { return r.list(&r.tags) }

// Jobs returns the ids of the newest jobs since the start, unsorted.
func (r *Recent) Jobs() []string { return r.list(&r.jobs) }

func (r *Recent) list(of *ring) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(of.words)
}
