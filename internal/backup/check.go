package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/salt"
)

// CheckStore refuses to start a master whose data is in the store of the other mode: it would
// start with nothing, or with what was true long ago. It removes what a restore has left that was killed. member is the name of the member of a
// cluster that this master is, "" for one alone. It is called before the broker opens the
// store; its errors are mistakes in the configuration, which a restart does not mend.
func CheckStore(cacheDir, member string) error {
	if err := clearBefore(cacheDir); err != nil {
		return err
	}
	return LookAtStore(cacheDir, member)
}

// clearBefore removes what a restore has left that was killed.
func clearBefore(cacheDir string) error {
	o, err := readOrder(cacheDir)
	if err != nil {
		return config.Mistake(err)
	}
	return clearKilled(cacheDir, o)
}

// LookAtStore is CheckStore without a start: it changes nothing, and a master may run.
func LookAtStore(cacheDir, member string) error {
	o, err := readOrder(cacheDir)
	if err != nil {
		return config.Mistake(err)
	}
	if moved, err := isHosted(cacheDir); err != nil || moved && o == nil {
		return errors.Join(err, config.Mistake(salt.WithHint(fmt.Errorf("the data of this master is in the JetStream of its nats_servers, as %s says, and by its configuration it has a store of its own", hostedPath(cacheDir)),
			"set nats_jetstream again; or make a backup there with 'salt-run journal.backup DIR', and take it over by 'salt-master --restore DIR'; or remove that file to start with nothing")))
	}
	own, other := StoreDir(cacheDir, member != ""), StoreDir(cacheDir, member == "")
	there, err := hasData(other)
	if err != nil {
		return err
	}
	here, err := hasData(own)
	switch {
	case err != nil:
		return err
	case o != nil && member == "":
		return config.Mistake(salt.WithHint(fmt.Errorf("%s orders a restore for a member of a cluster or with nats_jetstream, and by its configuration this master is neither", orderPath(cacheDir)),
			fmt.Sprintf("set cluster_id or nats_jetstream again, or withdraw the order with 'rm %s'", orderPath(cacheDir))))
	case o != nil:
		return sameMember(own, member)
	case there && here:
		return config.Mistake(salt.WithHint(fmt.Errorf("both %s and %s have data, and only one of them can be used", own, other),
			fmt.Sprintf("%s is the store for the present configuration: move the other one away, or this one and then run 'salt-master --restore %s'", own, other)))
	case there:
		return config.Mistake(salt.WithHint(fmt.Errorf("the data of this master is in %s, the store of a master that is %s", other, describe(member == "")),
			takeOver(other, member)))
	}
	return sameMember(own, member)
}

// takeOver is what to do about data in the store of the other mode. That of a single master is there also after
// 'salt-master --repair' or a restore with the settings of the cluster still in force.
func takeOver(other, member string) string {
	over := fmt.Sprintf("take it over by 'salt-master --restore %s', or move it away to start with nothing", other)
	if member != "" {
		return "after 'salt-master --repair' take cluster_id and cluster_peers out of the configuration. To make a single master a member, " + over
	}
	return over
}

// hostedPath is the file in the directory of a master that says that its store is in the JetStream
// of NATS servers that others run.
func hostedPath(cacheDir string) string { return filepath.Join(cacheDir, "hosted") }

func isHosted(cacheDir string) (bool, error) {
	_, err := os.Lstat(hostedPath(cacheDir))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// CheckHosted is CheckStore for a master whose store is in the JetStream of NATS servers that others
// run: it refuses to start beside a store of its own that has data.
func CheckHosted(cacheDir string) error {
	if err := clearBefore(cacheDir); err != nil {
		return err
	}
	return LookAtHosted(cacheDir)
}

// LookAtHosted is CheckHosted without a start, as LookAtStore.
func LookAtHosted(cacheDir string) error {
	o, err := readOrder(cacheDir)
	if err != nil {
		return config.Mistake(err)
	}
	if o != nil {
		return nil
	}
	for _, cluster := range []bool{false, true} {
		dir := StoreDir(cacheDir, cluster)
		there, err := hasData(dir)
		if err != nil {
			return err
		}
		if there {
			return config.Mistake(salt.WithHint(fmt.Errorf("the data of this master is in %s, and by its configuration it is in the JetStream of nats_servers", dir),
				fmt.Sprintf("take it over by 'salt-master --restore %s', or move it away to go on with what is there", dir)))
		}
	}
	return nil
}

func describe(cluster bool) string {
	if cluster {
		return "a member of a cluster; by its configuration it is alone"
	}
	return "alone; by its configuration it is a member of a cluster"
}

// sameMember refuses to open the store of another member: members tell each other apart by
// their names, and what this one has promised under its old name the others still count on.
func sameMember(store, member string) error {
	if member == "" {
		return nil
	}
	was, err := note(store, memberFile)
	if err == nil && was != "" && was != member {
		return config.Mistake(salt.WithHint(fmt.Errorf("%s is the store of the member %s, and this master is %s", store, was, member),
			"the name comes from the own address in cluster_peers. Set the old address again, or move the store away: the other members have copies of what is in it"))
	}
	return err
}

// CheckCluster refuses to open the store of a member of another cluster. What the members of that had agreed on would be mixed with
// what those of this one have: its streams stay without a leader, and no error names the reason. An earlier version has not written
// down whose store it is. It changes nothing; its errors are mistakes in the configuration.
func CheckCluster(cacheDir, cluster string) error {
	store := StoreDir(cacheDir, true)
	was, err := note(store, clusterFile)
	if err == nil && was != "" && was != cluster {
		return config.Mistake(salt.WithHint(fmt.Errorf("%s is the store of a member of the cluster %s, and this master is a member of %s", store, was, cluster),
			fmt.Sprintf("set cluster_id again, or move the store away; 'salt-master --restore' with its new place takes over what is in it. If the same members only give their cluster another name, remove %s on each", filepath.Join(store, clusterFile))))
	}
	return err
}

// note returns what a file of a store says of its owner, "" if there is none.
func note(store, file string) (string, error) {
	text, err := os.ReadFile(filepath.Join(store, file))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}
