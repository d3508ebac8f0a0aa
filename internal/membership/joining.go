package membership

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/salt"
)

// Joining is what stands between a single master and its cluster. Making it changes nothing.
type Joining struct {
	Member  string   // the name that this master will have, "" if the settings do not say it
	Fits    []string // what is as it must be
	Missing []error
}

func (j *Joining) missing(err error) { j.Missing = append(j.Missing, err) }

// probeTime limits a look at another member.
const probeTime = 3 * time.Second

// CheckJoin checks what a master with these settings, which are not in force yet, needs to start as
// a member: the settings, its key, its port, and each of the other members, as both ends will judge
// at the handshake.
func CheckJoin(ctx context.Context, cfg *config.Master, version string, log *slog.Logger) Joining {
	var j Joining
	if cfg.ClusterID == "" {
		j.missing(salt.WithHint(errors.New("cluster_id is not set in the configuration files"), "set cluster_id, cluster_peers and master_sign_pubkey as on the other members; they take effect at the next start only"))
		return j
	}
	if err := Check(cfg); err != nil {
		j.missing(err)
		return j
	}
	i, err := identify(ctx, cfg, ofMachine)
	if err != nil {
		j.missing(err)
		return j
	}
	j.Member = i.name
	j.Fits = append(j.Fits, fmt.Sprintf("the settings: this master is %s of the cluster %s", i.name, cfg.ClusterID))
	if err := portFree(ctx, net.JoinHostPort(cfg.Interface, strconv.Itoa(cfg.ClusterPort))); err != nil {
		j.missing(err)
	}
	p, err := newProbe(cfg, i, version, log)
	if err != nil {
		j.missing(err)
		return j
	}
	j.Fits = append(j.Fits, fmt.Sprintf("the key %s is signed by the signing key %s", p.rule.Key.SHA256(), p.rule.Signer.SHA256()))
	for _, s := range p.all(ctx) {
		if s.err != nil {
			j.missing(s.err)
			continue
		}
		j.Fits = append(j.Fits, fmt.Sprintf("the member %s at %s accepts this master (version %s)", s.met.Name, s.address, s.met.Version))
	}
	return j
}

// Answering returns at which addresses of other members somebody answers, a member or not. The
// master itself does not run. Without cluster_peers there are none.
func Answering(ctx context.Context, cfg *config.Master) (addresses []string, err error) {
	if cfg.ClusterID == "" {
		return nil, nil
	}
	i, err := identify(ctx, cfg, ofMachine)
	if err != nil {
		return nil, err
	}
	for _, peer := range i.peers {
		if peer == i.self {
			continue
		}
		c, err := (&net.Dialer{Timeout: probeTime}).DialContext(ctx, "tcp", peer)
		if err != nil {
			continue
		}
		_ = c.Close() // nothing was sent
		addresses = append(addresses, peer)
	}
	return addresses, context.Cause(ctx)
}

// portFree checks that nobody listens at the port for the other members.
func portFree(ctx context.Context, address string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return salt.WithHint(fmt.Errorf("cluster_port: %w", err), "stop what has the port, or set cluster_port")
	}
	return l.Close()
}

// probe looks at other members.
type probe struct {
	rule        member.Rule
	certificate tls.Certificate
	peers       []string // of the others
}

// newProbe makes the certificate that this master will show.
func newProbe(cfg *config.Master, i identity, version string, log *slog.Logger) (*probe, error) {
	own, err := keyring.ReadOwn(cfg, log)
	if err != nil {
		return nil, err
	}
	rule, err := member.LoadRule(member.NewCard(cfg.ClusterID, i.name, version).Naming(i.peers), own.Public(), cfg.PKIDir, cfg.MasterSignKeyName)
	if err != nil {
		return nil, err
	}
	p := &probe{rule: rule}
	for _, peer := range i.peers {
		if peer != i.self {
			p.peers = append(p.peers, peer)
		}
	}
	p.certificate, err = rule.Own(own.PrivateKey, own.Signature)
	return p, err
}

// seen is what a probe has seen of one member.
type seen struct {
	address string
	met     member.Member
	err     error
}

// all looks at all others at once.
func (p *probe) all(ctx context.Context) []seen {
	list := make([]seen, len(p.peers))
	var wg sync.WaitGroup
	for n, address := range p.peers {
		wg.Go(func() {
			list[n] = seen{address: address}
			if list[n].met, list[n].err = p.look(ctx, address); list[n].err == nil {
				list[n].err = p.compare(list[n].met)
			}
			if list[n].err != nil {
				list[n].err = salt.WithHint(fmt.Errorf("the member at %s: %w", address, list[n].err), salt.Hint(list[n].err))
			}
		})
	}
	wg.Wait()
	return list
}

// compare checks that a member names the same members, this one among them. One of an earlier version does not say that.
func (p *probe) compare(met member.Member) error {
	if met.Peers == "" || met.Peers == p.rule.Card.Peers {
		return nil
	}
	return salt.WithHint(fmt.Errorf("cluster_peers of %s differs from that of this master", met.Name), "write cluster_peers in the same way at all members, this one among them, and restart those that run one by one")
}

// look makes the handshake of a route, and hangs up where the route would begin.
func (p *probe) look(ctx context.Context, address string) (met member.Member, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return met, salt.WithHint(err, "start it with 'systemctl start --no-block salt-master': it waits for this one, and without --no-block so does the command; or open the port between the two machines")
	}
	defer raw.Close()
	var judged error
	c := tls.Client(raw, &tls.Config{
		Certificates: []tls.Certificate{p.certificate}, MinVersion: tls.VersionTLS13,
		InsecureSkipVerify: true, // the rule decides by the key
		VerifyConnection: func(s tls.ConnectionState) error {
			var shown *x509.Certificate
			if len(s.PeerCertificates) > 0 {
				shown = s.PeerCertificates[0]
			}
			met, judged = p.rule.Judge(shown)
			return judged
		},
	})
	if err := c.HandshakeContext(ctx); err != nil {
		if judged != nil {
			return met, judged
		}
		return met, salt.WithHint(fmt.Errorf("it does not make the handshake of a member: %w", err), "cluster_peers names the cluster_port of each member")
	}
	deadline, _ := ctx.Deadline()
	if err := c.SetReadDeadline(deadline); err != nil {
		return met, err
	}
	if _, err := c.Read(make([]byte, 1)); err != nil { // the refusal of the other end comes after the handshake
		return met, salt.WithHint(fmt.Errorf("%s refuses this master: %w", met.Name, err), "its log says why; is the fingerprint "+p.rule.Key.SHA256()+" in its cluster_removed?")
	}
	return met, nil
}
