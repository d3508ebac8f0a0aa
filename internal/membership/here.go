package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/salt"
)

const (
	// lookupTime limits the lookup of the names in cluster_peers.
	lookupTime = 5 * time.Second
	// lookAgain is the pause between two looks for this member among them.
	lookAgain = time.Second
)

// ErrNotHere is that no entry of cluster_peers has an address of this machine. It may pass: when a machine
// boots, its address or the servers of DNS may come later than its master.
var ErrNotHere = errors.New("none of the members has an address of this machine")

const advise = "set cluster_advertise to the entry of cluster_peers that is this master"

// ofSelf is the setting with the address of this member itself.
const ofSelf = "cluster_advertise"

// local reports whether a name or an address is one of this machine. An error is why that is not known.
type local func(ctx context.Context, host string) (bool, error)

// advertised returns the entry that is this member where the settings alone say it, otherwise "".
func advertised(cfg *config.Master, peers []string) (string, error) {
	if cfg.ClusterAdvertise != "" {
		address, err := withPort(ofSelf, cfg.ClusterAdvertise, cfg.ClusterPort)
		if err == nil && !slices.Contains(peers, address) {
			err = salt.WithHint(fmt.Errorf("cluster_advertise: %q is not in cluster_peers", cfg.ClusterAdvertise), "cluster_peers names all members, this one included")
		}
		return address, err
	}
	if address := net.JoinHostPort(cfg.Interface, strconv.Itoa(cfg.ClusterPort)); slices.Contains(peers, address) {
		return address, nil
	}
	return "", nil
}

// own finds this member among the peers: the one that the settings name, or the one with its port and an
// address of this machine.
func own(ctx context.Context, cfg *config.Master, peers []string, isLocal local) (string, error) {
	if address, err := advertised(cfg, peers); address != "" || err != nil {
		return address, err
	}
	var found, otherPort []string
	var unknown, unknownHere error
	here := strconv.Itoa(cfg.ClusterPort)
	for _, peer := range peers {
		host, port, _ := net.SplitHostPort(peer)
		switch is, err := isLocal(ctx, host); {
		case err != nil:
			unknown = err // it cannot be this machine as long as nobody knows its address
			if port == here {
				unknownHere = err // later it may be this one
			}
		case !is:
		case port == here:
			found = append(found, peer)
		default:
			otherPort = append(otherPort, peer)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", salt.WithHint(fmt.Errorf("cluster_peers: several members have addresses of this machine: %s", strings.Join(found, ", ")), advise)
	case len(otherPort) > 0: // it would listen at a port that no other member dials
		_, port, _ := net.SplitHostPort(otherPort[0])
		mistake := fmt.Errorf("members with an address of this machine have other ports than cluster_port, which is %d: %s", cfg.ClusterPort, strings.Join(otherPort, ", "))
		if unknownHere != nil { // those may be other members on this machine
			mistake = fmt.Errorf("%w and port %d, as far as known: %w; %w", ErrNotHere, cfg.ClusterPort, unknownHere, mistake)
		}
		return "", salt.WithHint(fmt.Errorf("cluster_peers: %w", mistake),
			fmt.Sprintf("set it to the port of this master, as in cluster_port: %s (or cluster_advertise, if something maps that port to %d)", port, cfg.ClusterPort))
	case unknown != nil:
		return "", salt.WithHint(fmt.Errorf("cluster_peers: %w and port %d, as far as known: %w", ErrNotHere, cfg.ClusterPort, unknown), advise)
	}
	return "", salt.WithHint(fmt.Errorf("cluster_peers: %w and port %d", ErrNotHere, cfg.ClusterPort), advise)
}

// ofMachine reports whether a name or an address is one of this machine.
func ofMachine(ctx context.Context, host string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return false, err
	}
	addresses, err := net.InterfaceAddrs()
	for _, ip := range ips {
		if ip.IP.IsLoopback() {
			return true, nil
		}
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip.IP) {
				return true, nil
			}
		}
	}
	return false, err
}

// CheckHere looks for this member among the addresses of this machine, where the settings have no mistake that
// Check finds. The error is a mistake, too, unless it is ErrNotHere.
func CheckHere(ctx context.Context, cfg *config.Master) error {
	if cfg.ClusterID == "" || Check(cfg) != nil {
		return nil
	}
	_, err := identify(ctx, cfg, ofMachine)
	return err
}

// awaitHere returns which member this is, as soon as an entry of cluster_peers has an address of this machine.
func awaitHere(ctx context.Context, cfg *config.Master, isLocal local, tell func(string), log *slog.Logger) (identity, error) {
	for warn := time.Now(); ; {
		i, err := identify(ctx, cfg, isLocal)
		if ctx.Err() != nil {
			return i, context.Cause(ctx)
		}
		if !errors.Is(err, ErrNotHere) {
			return i, config.Mistake(err)
		}
		if now := time.Now(); !now.Before(warn) {
			warn = now.Add(waitTell)
			log.Warn("the master waits until an address of this machine is among those of cluster_peers", "cluster", cfg.ClusterID, "err", err, "hint", salt.Hint(err))
			tell("waiting for an address of this machine: " + err.Error())
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return i, context.Cause(ctx)
		}
	}
}
