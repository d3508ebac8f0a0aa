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

// dumps is where what goroutines do is written, in the cachedir of a daemon.
const dumps = "goroutines"

// keptDumps is how many files are kept there.
const keptDumps = 8

// DumpAtSignal writes at each SIGUSR1, where there is such a signal, what all goroutines do, into a file below dir, until
// stop, which returns when nothing of it runs.
func DumpAtSignal(dir string, log *slog.Logger) (stop func()) {
	asked := make(chan os.Signal, 1)
	if dumpSignal == nil { // Notify without a signal would take all of them
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
				log.Error("what the goroutines do is not written", "err", err)
				continue
			}
			log.Warn("what the goroutines do is written, as SIGUSR1 asks for", "file", path)
		}
	})
	return func() { signal.Stop(asked); close(end); wg.Wait() }
}

// dump writes a file in dir that only the user of the daemon reads, and removes the oldest.
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

// prune keeps the newest files.
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
