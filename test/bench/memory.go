package bench

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// memory of a process, in MiB: resident, and resident with what it shares with
// others counted in parts.
type memory struct{ rss, pss float64 }

// memoryOf reads /proc/PID/smaps_rollup.
func memoryOf(pid int) (memory, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return memory{}, err
	}
	defer f.Close()
	return parseRollup(f)
}

func parseRollup(r io.Reader) (memory, error) {
	found := map[string]float64{}
	scan := bufio.NewScanner(r)
	for scan.Scan() {
		fields := strings.Fields(scan.Text())
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		kib, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			return memory{}, fmt.Errorf("smaps_rollup: %w", err)
		}
		found[fields[0]] = kib / 1024
	}
	m := memory{found["Rss:"], found["Pss:"]}
	if m.rss == 0 || m.pss == 0 {
		return memory{}, fmt.Errorf("smaps_rollup has no Rss and Pss")
	}
	return m, scan.Err()
}

// idle are the rows of what the daemons occupy.
func idle(s *system, b *bare) ([]Row, error) {
	server, err := memoryOf(b.server.Process.Pid)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, d := range []struct {
		name, id string
		goal     float64
	}{{"master", "master", 45}, {"minion", "one", 25}} {
		m, err := memoryOf(s.cmd[d.id].Process.Pid)
		if err != nil {
			return nil, err
		}
		beside := "server with TLS, JetStream and three clients"
		rows = append(rows,
			Row{What: d.name + ", idle: resident", Beside: beside, Unit: "MiB", Brine: Series{m.rss}, Bare: Series{server.rss}, Goal: d.goal, Ratio: 1.5},
			Row{What: d.name + ", idle: proportional", Unit: "MiB", Brine: Series{m.pss}})
	}
	return rows, nil
}

// peakOf is the most that a process has had resident, in MiB.
func peakOf(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmHWM", pid)
}
