package chaos

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// guestName is the id of a minion about whose key is decided all the time.
const guestName = "guest"

// makeGuest adds that minion. It asks again and again, whatever is decided.
func (w *world) makeGuest(settings string) {
	w.guest, w.decided = w.machine(guestName, "salt-minion"), decision{act: remove.name, acked: true}
	w.write(w.guest, "minion", fmt.Sprintf("id: %s\nacceptance_wait_time: 1\nacceptance_wait_time_max: 2\nrejected_retry: true\n%s", guestName, settings))
}

// deciders is how many decide about it at the same time.
const deciders = 2

// act is what is decided about a key: its name, and the words of salt-key. The stricter ones come last.
type act struct {
	name  string
	words []string
}

var (
	accept = act{"accept", []string{"-a", guestName, "--include-rejected"}}
	remove = act{"delete", []string{"-d", guestName}}
	reject = act{"reject", []string{"-r", guestName, "--include-accepted"}}
	acts   = []act{accept, remove, reject}
)

// decision is one that was asked for.
type decision struct {
	act          string
	at           *machine // nil if all members know of it
	begun, ended time.Time
	acked        bool
}

// spreadTime is how long a decision takes to be at all members, as long as these reach each other.
const spreadTime = time.Second

// permitted are the acts from which the state of the key may follow: the last that was acknowledged, and what was done at the
// same time or later without an answer. Members that do not know of each other's decisions, since some were
// lost in the meantime, follow the stricter one. Of several that one member makes meanwhile the others hear the last.
func permitted(all []decision, lost func(*machine) bool) []string {
	var out []string
	for _, d := range all {
		superseded := slices.ContainsFunc(all, func(e decision) bool {
			unaware := d.at != nil && (lost(d.at) || lost(e.at))
			return e.acked && e.begun.Sub(d.ended) > spreadTime && !(unaware && strictness(d.act) > weakest(all, e))
		})
		if !superseded && !slices.Contains(out, d.act) {
			out = append(out, d.act)
		}
	}
	return out
}

// weakest is the least strictness of a decision and of those that its member has made after it.
func weakest(all []decision, of decision) int {
	least := strictness(of.act)
	for _, d := range all {
		if of.at != nil && d.at == of.at && d.ended.After(of.ended) {
			least = min(least, strictness(d.act))
		}
	}
	return least
}

func strictness(name string) int {
	return slices.IndexFunc(acts, func(a act) bool { return a.name == name })
}

// decide decides about the key of the guest. There may be none that waits yet.
func (r *round) decide(n int) {
	r.decideOn(acts[n%len(acts)], r.w.next())
	<-time.After(10 * look)
}

func (r *round) decideOn(a act, at *machine) decision {
	d := decision{act: a.name, at: at, begun: time.Now()}
	res := at.tool("", "salt-key", append([]string{"-y"}, a.words...)...)
	d.ended, d.acked = time.Now(), res.code == 0
	r.w.note("%s at %s: exit code %d: %s%s", a.name, at.name, res.code, res.out, res.err)
	if res.hung {
		r.wrong(&r.counts.hung, "salt-key hangs at %s: %s", at.name, res.err)
	}
	if strings.Contains(res.err, "does not match any") {
		return d // nothing was decided
	}
	r.Lock()
	defer r.Unlock()
	r.decisions = append(r.decisions, d)
	if d.acked {
		r.counts.decisions++
	}
	return d
}

// keys are the fingerprints of minions by the state of their keys, as one member lists them.
type keys map[string]map[string]string

func (m *machine) keys() (keys, error) {
	var k keys
	res := m.tool("", "salt-key", "-F", "--out", "json")
	if err := json.Unmarshal([]byte(res.out), &k); err != nil || res.code != 0 {
		return nil, fmt.Errorf("list keys at %s: exit code %d: %s%s", m.name, res.code, res.out, res.err)
	}
	delete(k, "local") // those of the member itself
	return k, nil
}

// act is from which the state of the key of the guest follows. One that was deleted waits when the guest has asked again.
func (k keys) act() string {
	switch {
	case k["minions"][guestName] != "":
		return accept.name
	case k["minions_rejected"][guestName] != "":
		return reject.name
	}
	return remove.name
}

// judgeKeys looks whether all members have the same keys once they are at rest, which must follow from what was acknowledged;
// and whether the next decisions count at all of them, and are carried out.
func (r *round) judgeKeys() {
	if r.w.guest == nil {
		return
	}
	may := permitted(append([]decision{r.w.decided}, r.decisions...), r.lost)
	r.agree(fmt.Sprintf("the same everywhere, after %q", may), func(k, first keys) bool {
		return reflect.DeepEqual(k.settled(), first.settled()) && slices.Contains(may, k.act())
	})
	// A key that waits is shown when the guest has asked again.
	for end := time.Now().Add(wordTime); time.Now().Before(end); time.Sleep(10 * look) {
		r.decideOn(accept, r.w.next())
		if k, err := r.w.next().keys(); err == nil && k.act() == accept.name {
			break // there is nothing to accept if it was accepted before
		}
	}
	r.agree("accepted", func(k, _ keys) bool { return k.act() == accept.name })
	for _, m := range r.w.masters {
		r.answers(m, true)
	}
	refusal := []act{reject, remove}[r.number%2]
	if d := r.decideOn(refusal, r.w.next()); !d.acked {
		r.wrong(&r.counts.wrongKeys, "nobody can %s the key at %s", refusal.name, d.at.name)
	}
	r.w.decided = decision{act: refusal.name, acked: true}
	r.agree("those after "+refusal.name, func(k, _ keys) bool { return k.act() == refusal.name })
	for _, m := range r.w.masters {
		r.answers(m, false)
	}
}

// lost says that a member may not have known what others decided: the fault was about it, or has left no majority.
func (r *round) lost(m *machine) bool {
	count := 0
	for _, other := range r.w.masters {
		if r.touched[other] {
			count++
		}
	}
	return r.touched[m] || count > len(r.w.masters)/2
}

// agree waits until all members have keys that are good. first are those of the first member.
func (r *round) agree(what string, good func(k, first keys) bool) {
	var bad string
	for end := time.Now().Add(wordTime); time.Now().Before(end); time.Sleep(10 * look) {
		if bad = r.disagree(good); bad == "" {
			return
		}
	}
	r.wrong(&r.counts.wrongKeys, "the keys are not %s: %s", what, bad)
}

func (r *round) disagree(good func(k, first keys) bool) string {
	var first keys
	for _, m := range r.w.masters {
		k, err := m.keys()
		if err != nil {
			return err.Error()
		}
		if first == nil {
			first = k
		}
		if !good(k, first) {
			return fmt.Sprintf("%s has %v, %s %v", m.name, k, r.w.master.name, first)
		}
	}
	return ""
}

// settled are the keys about which somebody has decided: one that waits may come and go.
func (k keys) settled() keys {
	out := keys{}
	for state, list := range k {
		if state != "minions_pre" && len(list) > 0 {
			out[state] = list
		}
	}
	return out
}

// noMatch is the exit code of salt if the target matches no minion with an accepted key.
const noMatch = 2

// answers looks whether the guest runs the jobs of a member, or is no minion any more.
func (r *round) answers(to *machine, should bool) {
	want := 0
	if !should {
		want = noMatch
	}
	var res result
	for end := time.Now().Add(wordTime); time.Now().Before(end); time.Sleep(10 * look) {
		if res = to.tool("", "salt", "-L", guestName, "-t", "3", "--out", "quiet", "test.ping"); res.code == want {
			return
		}
		if !should && res.code == 0 {
			break // it was refused everywhere before
		}
	}
	r.wrong(&r.counts.wrongKeys, "the guest answers %s with exit code %d instead of %d: %s", to.name, res.code, want, res.err)
}
