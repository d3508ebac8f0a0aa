package monitor

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"sync"
	"time"
)

// dumps is the directory for goroutine dumps, in the cachedir of a daemon.
const dumps = "goroutines"

// keptDumps is how many files are kept there.
const keptDumps = 8

// DumpAtSignal writes the stacks of all goroutines to a file below dir at each SIGUSR1, on systems
// with that signal. stop ends this and waits for a running dump.
func DumpAtSignal(dir string, log *slog.Logger) (stop func()) {
	asked := make(chan os.Signal, 1)
	if dumpSignal == nil { // Notify without a signal would catch all signals
		return func() {}
	}
	signal.Notify(asked, dumpSignal)
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-asked:
			}
			path, err := dump(filepath.Join(dir, dumps), time.Now())
			if err != nil {
				log.Error("the dump of goroutines is not written", "err", err)
				continue
			}
			log.Warn("the dump of goroutines that SIGUSR1 asks for is written", "file", path)
		}
	})
	return func() { signal.Stop(asked); close(end); wg.Wait() }
}

// dump writes a file in dir that only the user of the daemon can read, and removes the oldest.
func dump(dir string, now time.Time) (path string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path = filepath.Join(dir, now.UTC().Format("20060102T150405.000000000")+".txt")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := pprof.Lookup("goroutine").WriteTo(f, 2); err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	return path, prune(dir)
}

// prune removes all but the newest files.
func prune(dir string) error {
	all, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(e fs.DirEntry) bool { return e.IsDir() || filepath.Ext(e.Name()) != ".txt" })
	for _, e := range all[:max(0, len(all)-keptDumps)] { // ReadDir sorts, and names are times
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
