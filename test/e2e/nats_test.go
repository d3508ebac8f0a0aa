package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/brinebus/brine/test/natslab"
)

// labKey finds the NATS servers of a script among its values.
type labKey struct{}

// natsServers makes real NATS servers with JetStream, starts them, and kills and starts single ones.
func natsServers(s *system, ts *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	lab, _ := ts.Value(labKey{}).(**natslab.Cluster)
	switch args[0] {
	case "make":
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		*lab = natslab.New(s.tb, n)
		(*lab).JetStream = true
		return os.WriteFile(filepath.Join(s.work, "nats.yml"), []byte((*lab).Settings()), 0o644)
	case "start":
		config, err := os.ReadFile(ts.MkAbs(args[1]))
		if err == nil {
			(*lab).Start(string(config))
		}
		return err
	}
	n, err := strconv.Atoi(args[1])
	if err != nil || *lab == nil || n >= len((*lab).Servers) {
		return errors.Join(errUsage, err)
	}
	switch args[0] {
	case "kill":
		(*lab).Servers[n].Kill()
	case "again":
		(*lab).Servers[n].Start()
	default:
		return errUsage
	}
	return nil
}
