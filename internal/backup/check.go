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
// start with nothing, or with what was true long ago. member is the name of the member of a
// cluster that this master is, "" for one alone. It is called before the broker opens the
// store; its errors are mistakes in the configuration, which a restart does not mend.
func CheckStore(cacheDir, member string) error {
	o, err := readOrder(cacheDir)
	if err != nil {
		return config.Mistake(err)
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
		return config.Mistake(salt.WithHint(fmt.Errorf("%s orders a restore as a member of a cluster, and this master is alone", orderPath(cacheDir)),
			"set cluster_peers again, or remove that file"))
	case o != nil:
		return sameMember(own, member)
	case there && here:
		return config.Mistake(salt.WithHint(fmt.Errorf("both %s and %s have data, and only one of them can be what counts", own, other),
			fmt.Sprintf("%s is the store for the present configuration: move the other one away, or this one and then run 'salt-master --restore %s'", own, other)))
	case there:
		return config.Mistake(salt.WithHint(fmt.Errorf("the data of this master is in %s, the store of a master that is %s", other, describe(member == "")),
			fmt.Sprintf("take it over by 'salt-master --restore %s', or move it away to start with nothing", other)))
	}
	return sameMember(own, member)
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
	text, err := os.ReadFile(filepath.Join(store, memberFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if was := strings.TrimSpace(string(text)); was != member {
		return config.Mistake(salt.WithHint(fmt.Errorf("%s is the store of the member %s, and this master is %s", store, was, member),
			"the name comes from the own address in cluster_peers. Set the old address again, or move the store away: the other members have copies of what is in it"))
	}
	return nil
}
