package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/test/port"
)

// trioGoal is what a cluster of three masters may cost beside three bare servers.
const trioGoal = 1.5

// trio is a cluster of three masters with simulated minions, and three bare servers with as many
// responders.
type trio struct {
	daemons
	members []*system
	bare    *bare
	urls    []string // of the bare servers
	servers []int    // their processes
}

// addresses are those of the members for minions.
func (c *trio) addresses() (list []string) {
	for i, s := range c.members {
		list = append(list, fmt.Sprintf("127.0.0.%d:%d", i+1, s.port))
	}
	return list
}

func (c *trio) stop() {
	for _, s := range c.members {
		s.stop()
	}
	c.daemons.stop()
}

// three measures a cluster of three masters beside a cluster of three bare servers.
func three(ctx context.Context, o Options) ([]Row, error) {
	c := &trio{daemons: daemons{dir: filepath.Join(o.Dir, "trio")}}
	defer c.stop()
	if err := c.makeMembers(ctx, o); err != nil {
		return nil, err
	}
	certificates, err := c.makeKeys(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(c.startMembers(ctx), c.startBare(o.Bin)); err != nil {
		return nil, err
	}
	select { // they come to rest
	case <-time.After(o.Pause):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	rows, err := c.idle()
	if err != nil {
		return nil, err
	}
	rate, err := c.connectRates(ctx, certificates, o.Connects)
	if err != nil {
		return rows, err
	}
	rows = append(rows, rate)
	if err := c.startFleets(o); err != nil {
		return rows, err
	}
	walls, err := c.pings(ctx, o)
	return append(rows, walls...), err
}

// makeMembers writes the settings of the members, and makes the pair that signs their keys.
func (c *trio) makeMembers(ctx context.Context, o Options) error {
	ports := [2]int{}
	for i := range ports {
		var err error
		if ports[i], err = port.Reserve(); err != nil {
			return err
		}
	}
	for i := range 3 {
		s := &system{daemons: daemons{dir: filepath.Join(c.dir, fmt.Sprintf("m%d", i+1))}, bin: o.Bin, port: ports[0]}
		err := s.configure("master", "master", fmt.Sprintf("interface: 127.0.0.%d\nret_port: %d\ncluster_id: trio\ncluster_port: %d\ncluster_peers: [127.0.0.1, 127.0.0.2, 127.0.0.3]\nmaster_sign_pubkey: True\n", i+1, ports[0], ports[1]))
		if err := errors.Join(err, os.MkdirAll(filepath.Join(s.root("master"), "pki", "minions"), 0o700)); err != nil {
			return err
		}
		c.members = append(c.members, s)
	}
	first := c.members[0]
	_, err := once(ctx, first.program("salt-key"), "-q", "-c", first.conf("master"), "--gen-keys", "master_sign", "--gen-keys-dir", filepath.Join(first.root("master"), "pki"))
	return err
}

// makeKeys makes the keys of the simulated minions, and of those that only connect, and gives all
// members the same.
func (c *trio) makeKeys(ctx context.Context, o Options) (certificates []tls.Certificate, err error) {
	first := c.members[0]
	keys := filepath.Dir(first.keyFile("minions", "x"))
	if _, err := once(ctx, first.program("fleet"), "keys", keys, strconv.Itoa(o.Trio)); err != nil {
		return nil, err
	}
	if err := os.Rename(keys+".keys", c.fleetKeys()+".keys"); err != nil {
		return nil, err
	}
	for n := range workers {
		key, err := pki.Generate(pki.Ed25519, 0)
		if err != nil {
			return nil, err
		}
		one, err := key.Certificate(fmt.Sprintf("client%d", n))
		if err := errors.Join(err, first.admit(fmt.Sprintf("client%d", n), key)); err != nil {
			return nil, err
		}
		certificates = append(certificates, one)
	}
	sign := func(s *system, end string) string { return filepath.Join(s.root("master"), "pki", "master_sign."+end) }
	for _, s := range c.members[1:] {
		err := errors.Join(os.CopyFS(filepath.Join(s.root("master"), "pki", "minions"), os.DirFS(keys)), copyFile(sign(first, "pem"), sign(s, "pem")), copyFile(sign(first, "pub"), sign(s, "pub")))
		if err != nil {
			return nil, err
		}
	}
	return certificates, copyFile(sign(first, "pub"), filepath.Join(c.fleetKeys()+".keys", "master_sign.pub"))
}

func (c *trio) fleetKeys() string { return filepath.Join(c.dir, "minions") }

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	return errors.Join(err, os.WriteFile(to, b, 0o600))
}

// startMembers starts the members, and waits until each leads what it writes.
func (c *trio) startMembers(ctx context.Context) error {
	for _, s := range c.members {
		_, err := s.launch("master", s.program("salt-master"), "-c", s.conf("master"))
		if err != nil {
			return err
		}
	}
	first := c.members[0]
	return until(ctx, "the members", 100*time.Millisecond, func() (bool, error) {
		r, err := once(ctx, first.program("salt-run"), "-c", first.conf("master"), "cluster.status", "--out=json")
		var status struct {
			Members map[string]struct{ Leads bool }
		}
		if err != nil || json.Unmarshal(r.out, &status) != nil {
			return false, nil //nolint:nilerr // it is not there yet
		}
		leads := 0
		for _, m := range status.Members {
			if m.Leads {
				leads++
			}
		}
		return leads == 3, nil
	})
}

func (c *trio) startBare(bin string) error {
	c.bare = &bare{daemons: daemons{dir: c.dir}, bin: bin}
	var routes []string
	for range 3 {
		n, err := port.Reserve()
		if err != nil {
			return err
		}
		routes = append(routes, fmt.Sprintf("127.0.0.1:%d", n))
	}
	for i, r := range routes {
		cmd, address, err := c.startTalking(filepath.Join(bin, "bareserver"), "-cluster", r, "-routes", strings.Join(routes, ","), fmt.Sprintf("-signs=%v", i == 0), filepath.Join(c.dir, fmt.Sprintf("bare%d", i)))
		if err != nil {
			return err
		}
		c.urls, c.servers = append(c.urls, address), append(c.servers, cmd.Process.Pid)
	}
	return nil
}

// idle are the rows of the memory of each member beside that of a bare server.
func (c *trio) idle() ([]Row, error) {
	row := Row{What: "a member of three, idle: resident", Beside: "a server of three with TLS and JetStream", Unit: "MiB", Ratio: trioGoal}
	for i, s := range c.members {
		ours, err := memoryOf(s.list[0].Process.Pid)
		if err != nil {
			return nil, err
		}
		theirs, err := memoryOf(c.servers[i])
		if err != nil {
			return nil, err
		}
		row.Brine, row.Bare = append(row.Brine, ours.rss), append(row.Bare, theirs.rss)
	}
	return []Row{row}, nil
}

// connectRates compares connects a second, distributed over three, in turns.
func (c *trio) connectRates(ctx context.Context, certificates []tls.Certificate, n int) (Row, error) {
	row := Row{What: "connects a second at three, mTLS, Ed25519", Beside: "three servers with the same TLS and an authentication callback", Unit: "/s", Ratio: 1 / trioGoal, More: true}
	for round := range connectRounds + 1 {
		ours, err := connectsAt(ctx, c.addresses(), certificates, n)
		if err != nil {
			return row, err
		}
		theirs, err := connectsAt(ctx, c.urls, certificates, n)
		if err != nil {
			return row, err
		}
		if round > 0 { // the first warms up
			row.Brine, row.Bare = append(row.Brine, ours), append(row.Bare, theirs)
		}
	}
	return row, nil
}

// connectsAt makes n connections, distributed over these addresses at the same time, and returns
// how many a second.
func connectsAt(ctx context.Context, addresses []string, certificates []tls.Certificate, n int) (float64, error) {
	var wg sync.WaitGroup
	errs := make([]error, len(addresses))
	begin := time.Now()
	for i, a := range addresses {
		var own []tls.Certificate
		for k := i; k < len(certificates); k += len(addresses) {
			own = append(own, certificates[k])
		}
		wg.Go(func() { _, errs[i] = connects(ctx, a, own, n/len(addresses)) })
	}
	wg.Wait()
	return float64(n/len(addresses)*len(addresses)) / time.Since(begin).Seconds(), errors.Join(errs...)
}

// startFleets connects the simulated minions and the responders, to the three in turn.
func (c *trio) startFleets(o Options) error {
	fleet, urls := filepath.Join(o.Bin, "fleet"), []string{}
	for _, u := range c.urls {
		urls = append(urls, "tls://"+u)
	}
	_, _, err := c.startObeying(fleet, "brine", strings.Join(c.addresses(), ","), c.fleetKeys())
	if err == nil {
		_, _, err = c.startObeying(fleet, "bare", strings.Join(urls, ","), strconv.Itoa(o.Trio))
	}
	return err
}

// pings measures test.ping over the minions of all members, from start to exit, in turns with a
// bare scatter-gather, with one that stores the request and the answers, with one that also stores
// what else Brine stores of a job before it is sent, one after the other, though Brine need not wait for the decision
// before it stores the rest, and with one that shows an answer only once it is stored, as Brine does: that is the same work.
func (c *trio) pings(ctx context.Context, o Options) ([]Row, error) {
	row := Row{What: fmt.Sprintf("`salt '*' test.ping`, %d minions of three members: wall", o.Trio), Beside: "a request to as many responders at three servers", Unit: "ms", Ratio: trioGoal}
	equal := Row{What: row.What, Beside: equalWork + " by three servers", Unit: "ms"}
	whole := Row{What: row.What, Beside: equal.Beside + ", and before that a decision and a plan", Unit: "ms"}
	shown := Row{What: row.What, Beside: whole.Beside + "; answers are shown when they are stored", Unit: "ms", Ratio: trioGoal}
	subjects := make([]string, o.Trio)
	for i := range subjects {
		subjects[i] = "job." + strconv.Itoa(i)
	}
	first := c.members[0]
	if err := until(ctx, "all minions", 100*time.Millisecond, func() (bool, error) {
		r, err := once(ctx, first.program("salt-run"), "-c", first.conf("master"), "manage.present", "--out", "json")
		return err == nil && strings.Count(string(r.out), `"m`) >= o.Trio, nil
	}); err != nil {
		return nil, err
	}
	for round := range o.Fleets.Rounds + warmUp {
		ours, err := once(ctx, first.salt("m*", "test.ping", "--out", "quiet", "--hide-timeout")...)
		if err != nil {
			return nil, err
		}
		theirs, err := once(ctx, c.bare.command("scatter", c.urls[0], subjects...)...)
		if err != nil {
			return nil, err
		}
		signed, err := once(ctx, c.bare.command("signed", c.urls[0], strconv.Itoa(o.Trio))...)
		if err != nil {
			return nil, err
		}
		all, err := once(ctx, c.bare.command("signed", c.urls[0], strconv.Itoa(o.Trio), "2")...)
		if err != nil {
			return nil, err
		}
		stored, err := once(ctx, c.bare.command("signed", c.urls[0], strconv.Itoa(o.Trio), "2", "shown")...)
		if err != nil {
			return nil, err
		}
		if round >= warmUp {
			shown.Brine, shown.Bare = append(shown.Brine, ours.wall.Seconds()*1e3), append(shown.Bare, stored.wall.Seconds()*1e3)
			whole.Brine, whole.Bare = append(whole.Brine, ours.wall.Seconds()*1e3), append(whole.Bare, all.wall.Seconds()*1e3)
			row.Brine, row.Bare = append(row.Brine, ours.wall.Seconds()*1e3), append(row.Bare, theirs.wall.Seconds()*1e3)
			equal.Brine, equal.Bare = append(equal.Brine, ours.wall.Seconds()*1e3), append(equal.Bare, signed.wall.Seconds()*1e3)
		}
	}
	return []Row{row, equal, whole, shown}, nil
}
