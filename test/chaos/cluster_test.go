package chaos

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/brinebus/brine/test/netlab"
	"github.com/brinebus/brine/test/port"
)

// clusterMinions is how many minions a cluster has: each begins at another member.
const clusterMinions = 3

// makeCluster makes the members of a cluster and their minions. The keys of minions are accepted
// before the first start.
func (w *world) makeCluster(masters int) {
	place := w.places()
	ports := [2]int{w.port, port.Free(w.t)}
	var peers, addresses []string
	for i := range masters {
		m := w.machine(fmt.Sprintf("master%d", i+1), "salt-master")
		m.address = place(m, i+1)
		peer := fmt.Sprintf("%s:%d", m.address, ports[1])
		m.member = strings.NewReplacer(".", "_", ":", "_").Replace(peer)
		w.masters, peers, addresses = append(w.masters, m), append(peers, peer), append(addresses, m.address)
	}
	w.master = w.masters[0]
	users := w.makeUsers()
	for _, m := range w.masters {
		w.write(m, "master", fmt.Sprintf("interface: %s\nret_port: %d\ncluster_id: chaos\ncluster_port: %d\ncluster_peers: [%s]\nmaster_sign_pubkey: true\n%s",
			m.address, ports[0], ports[1], strings.Join(peers, ", "), users))
	}
	for i := range clusterMinions {
		m := w.machine(fmt.Sprintf("web%d", i+1), "salt-minion")
		m.address = place(m, 11+i)
		turned := append(addresses[i%masters:len(addresses):len(addresses)], addresses[:i%masters]...)
		w.write(m, "minion", fmt.Sprintf("id: %s\n", m.name)+toMasters(turned, ports[0]))
		w.minions = append(w.minions, m)
	}
	w.makeGuest(toMasters(addresses, ports[0]))
	place(w.guest, 11+clusterMinions)
	w.makeKeys()
	for i, m := range w.masters {
		w.listeners = append(w.listeners, &listener{w: w, name: fmt.Sprintf("chaos%d", i+1), at: m})
	}
}

// toMasters are the settings of a minion with several masters.
func toMasters(addresses []string, port int) string {
	return fmt.Sprintf("master: [%s]\nmaster_type: failover\nmaster_port: %d\nverify_master_pubkey_sign: true\n", strings.Join(addresses, ", "), port)
}

// places returns what gives each machine its address.
func (w *world) places() func(m *machine, n int) string {
	if !w.lab {
		return func(_ *machine, n int) string { return fmt.Sprintf("127.0.0.%d", n) }
	}
	lab := netlab.New(w.t)
	middle := lab.Switch("switch")
	return func(m *machine, n int) string {
		address := fmt.Sprintf("10.98.0.%d", n)
		m.host = lab.Host(m.name)
		lab.Plug(m.host, middle, address+"/24")
		return address
	}
}

// makeKeys makes the signing pair of the members, and the keys of minions.
func (w *world) makeKeys() {
	for _, m := range w.all() {
		w.must(os.MkdirAll(filepath.Join(m.disk.dir, "pki", "minions"), 0o700))
		w.must(os.Chmod(filepath.Join(m.disk.dir, "pki"), 0o700))
	}
	pair := w.makeKey("master_sign")
	for _, m := range w.masters {
		w.copy(pair+".pem", m, "master_sign.pem")
		w.copy(pair+".pub", m, "master_sign.pub")
	}
	for _, m := range w.all() {
		if m.program == "salt-minion" {
			w.copy(pair+".pub", m, "master_sign.pub")
		}
	}
	for _, m := range w.minions {
		own := w.makeKey(m.name)
		w.copy(own+".pem", m, "minion.pem")
		w.copy(own+".pub", m, "minion.pub")
		for _, master := range w.masters {
			w.copy(own+".pub", master, "minions/"+m.name)
		}
	}
	for _, m := range w.all() { // a power cut may come soon
		w.must(run("sync", "-f", m.disk.dir))
	}
}

// makeKey makes a pair and returns the path of its files without their endings.
func (w *world) makeKey(name string) string {
	if res := w.master.tool("", "salt-key", "-q", "--gen-keys", name, "--gen-keys-dir", w.dir); res.code != 0 {
		w.t.Fatal(res.err)
	}
	return filepath.Join(w.dir, name)
}

// copy puts a file into pki_dir.
func (w *world) copy(from string, m *machine, name string) {
	b, err := os.ReadFile(from)
	w.must(errors.Join(err, os.WriteFile(filepath.Join(m.disk.dir, "pki", name), b, 0o600)))
}

// judgeMembers waits until all members show the same events, and returns what each of them shows.
func (r *round) judgeMembers() map[*machine][]stored {
	var shown map[*machine][]stored
	var differ []string
	for end := time.Now().Add(wordTime); time.Now().Before(end); time.Sleep(5 * look) {
		var err error
		if shown, differ, err = r.differ(); !r.check(err) || len(differ) == 0 {
			return shown
		}
	}
	for _, s := range differ {
		r.wrong(&r.counts.differ, "%s", s)
	}
	return shown
}

// place is where an event is stored.
type place struct {
	journal string
	seq     int
}

// differ says what members show that the first one does not, and the other way round.
func (r *round) differ() (shown map[*machine][]stored, out []string, err error) {
	shown = map[*machine][]stored{}
	var first map[place]id
	for _, m := range r.w.masters {
		list, err := r.w.shown(m, r.since[r.w.master.name], r.tag())
		if err != nil {
			return nil, nil, err
		}
		shown[m] = list
		all := map[place]id{}
		for _, e := range list {
			all[place{e.journal, e.seq}] = e.id
		}
		if first == nil {
			first = all
		}
		if maps.Equal(all, first) {
			continue
		}
		out = append(out, lacks(m, r.w.master, first, all)...)
		out = append(out, lacks(r.w.master, m, all, first)...)
	}
	return shown, out, nil
}

// lacks says what one member shows otherwise than another one, or not at all.
func lacks(m, other *machine, wants, has map[place]id) []string {
	var out []string
	for at, e := range wants {
		if has[at] != e {
			out = append(out, fmt.Sprintf("%s shows %v at %v, %s %v", other.name, e, at, m.name, has[at]))
		}
	}
	return out
}
