package chaos

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// guestName is the id of a minion about whose key is decided all the time.
const guestName = "guest"

// makeGuest adds that minion. It asks again and again, whatever is decided.
func (w *world) makeGuest(settings string) {
	w.guest = w.machine(guestName, "salt-minion")
	w.write(w.guest, "minion", fmt.Sprintf("id: %s\nacceptance_wait_time: 1\nacceptance_wait_time_max: 2\nrejected_retry: true\n%s", guestName, settings))
}

// decisions are what is decided about the key, in turn, each at another member.
var decisions = [][]string{{"-a", guestName, "--include-rejected"}, {"-r", guestName, "--include-accepted"}, {"-d", guestName}}

// decide decides about the key of the guest. There may be none that waits yet.
func (r *round) decide(n int) {
	what := decisions[n%len(decisions)]
	at := r.w.next()
	res := at.tool("", "salt-key", append([]string{"-y"}, what...)...)
	r.w.note("%v at %s: exit code %d: %s%s", what, at.name, res.code, res.out, res.err)
	if res.hung {
		r.wrong(&r.counts.hung, "salt-key hangs at %s: %s", at.name, res.err)
	}
	if res.code == 0 {
		r.Lock()
		r.counts.decisions++
		r.Unlock()
	}
	<-time.After(10 * look)
}

// keys are the ids of minions by the state of their keys, as one member lists them.
type keys map[string][]string

func (m *machine) keys() (keys, error) {
	var k keys
	res := m.tool("", "salt-key", "-L", "--out", "json")
	if err := json.Unmarshal([]byte(res.out), &k); err != nil || res.code != 0 {
		return nil, fmt.Errorf("list keys at %s: exit code %d: %s%s", m.name, res.code, res.out, res.err)
	}
	return k, nil
}

// judgeKeys looks whether all members have the same keys once they are at rest, whether the next
// decision counts at all of them, and whether it is carried out.
func (r *round) judgeKeys() {
	if r.w.guest == nil {
		return
	}
	r.agree("the same everywhere", func(k, first keys) bool { return reflect.DeepEqual(k, first) })
	// A key that waits is shown when the guest has asked again.
	var res result
	for end := time.Now().Add(wordTime); time.Now().Before(end); time.Sleep(10 * look) {
		res = r.w.next().tool("", "salt-key", "-y", "-a", guestName, "--include-rejected")
		if k, err := r.w.next().keys(); err == nil && slices.Contains(k["minions"], guestName) {
			break // there is nothing to accept if it was accepted before
		}
	}
	r.agree("accepted", func(k, _ keys) bool { return slices.Contains(k["minions"], guestName) })
	for _, m := range r.w.masters {
		r.answers(m, true)
	}
	if res = r.w.next().tool("", "salt-key", "-y", "-r", guestName, "--include-accepted"); res.code != 0 {
		r.wrong(&r.counts.wrongKeys, "the key cannot be rejected: exit code %d: %s%s", res.code, res.out, res.err)
	}
	r.agree("rejected", func(k, _ keys) bool {
		return slices.Contains(k["minions_rejected"], guestName) && !slices.Contains(k["minions"], guestName)
	})
	for _, m := range r.w.masters {
		r.answers(m, false)
	}
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

// answers looks whether the guest runs the jobs of a member, as it should or should not.
func (r *round) answers(to *machine, should bool) {
	var res result
	for end := time.Now().Add(wordTime); time.Now().Before(end); time.Sleep(10 * look) {
		if res = to.tool("", "salt", "-L", guestName, "-t", "3", "--out", "quiet", "test.ping"); (res.code == 0) == should {
			return
		}
	}
	r.wrong(&r.counts.wrongKeys, "the guest answers %s: %t, but should: %t: exit code %d: %s", to.name, !should, should, res.code, res.err)
}
