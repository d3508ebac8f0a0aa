package fileserver

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// held is a file that is read only after it was released.
type held struct {
	io.ReadSeeker
	released chan struct{}
	err      error
}

func (h held) Read(b []byte) (int, error) {
	<-h.released
	if h.err != nil {
		return 0, h.err
	}
	return h.ReadSeeker.Read(b)
}

// Many minions ask for a new large file at once: one request reads it, and the others wait for its
// sum as long as they like. If it fails, another one reads the file. The same holds for one that has just
// changed, but for the sum, since it may change again.
func TestOneRequestReadsAFile(t *testing.T) {
	dir := tree(t, map[string]string{"a": "x"})
	info, err := os.Stat(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	of := func(s *sums, ctx context.Context, f io.ReadSeeker, result chan<- string) {
		sum, _, err := s.of(ctx, f, info, func() (fs.FileInfo, error) { return info, nil })
		if err != nil {
			sum = err.Error()
		}
		result <- sum
	}
	synctest.Test(t, func(t *testing.T) {
		s, first := &sums{}, held{strings.NewReader("one"), make(chan struct{}), nil}
		results, others := make(chan string, 1), make(chan string, 2)
		go of(s, t.Context(), first, results)
		synctest.Wait()
		ctx, cancel := context.WithCancelCause(t.Context())
		go of(s, t.Context(), strings.NewReader("other"), others)
		go of(s, ctx, strings.NewReader("other"), others)
		synctest.Wait()
		if len(others) > 0 {
			t.Fatalf("another request has read the file: %s", <-others)
		}
		cancel(errors.New("it has gone"))
		if got := <-others; got != "it has gone" {
			t.Errorf("one that has gone gets %s", got)
		}
		close(first.released)
		if got, want := <-others, <-results; got != want || len(got) != 64 {
			t.Errorf("one request gets %q, the other %q", want, got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s, first := &sums{}, held{strings.NewReader("one"), make(chan struct{}), errors.New("unreadable")}
		results, others := make(chan string, 1), make(chan string, 1)
		go of(s, t.Context(), first, results)
		synctest.Wait()
		go of(s, t.Context(), strings.NewReader("other"), others)
		synctest.Wait()
		close(first.released)
		if got, other := <-results, <-others; got != "unreadable" || len(other) != 64 {
			t.Errorf("one request gets %q, the other %q", got, other)
		}
	})
	now := time.Now().Add(time.Hour)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(now)) // the clock of the test begins in the past
		if err := os.Chtimes(filepath.Join(dir, "a"), now, now); err != nil {
			t.Fatal(err)
		}
		if info, err = os.Stat(filepath.Join(dir, "a")); err != nil {
			t.Fatal(err)
		}
		s, first := &sums{}, held{strings.NewReader("one"), make(chan struct{}), nil}
		results, others := make(chan string, 1), make(chan string, 1)
		go of(s, t.Context(), first, results)
		synctest.Wait()
		go of(s, t.Context(), strings.NewReader("other"), others)
		synctest.Wait()
		if len(others) > 0 {
			t.Fatalf("another request has read the file: %s", <-others)
		}
		close(first.released)
		if one, other := <-results, <-others; one == other || len(one) != 64 || len(other) != 64 {
			t.Errorf("a file that changes has the sums %q and %q", one, other)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("it has gone"))
		go of(s, ctx, strings.NewReader("other"), others)
		if got := <-others; got != "it has gone" {
			t.Errorf("one that has gone gets %s", got)
		}
	})
}

// counted counts how often a file is read from the beginning.
type counted struct {
	io.ReadSeeker
	reads *atomic.Int32
}

func (c counted) Seek(offset int64, whence int) (int64, error) {
	c.reads.Add(1) // it is set to its beginning after it was read
	return c.ReadSeeker.Seek(offset, whence)
}

// Many minions ask for a file that has just changed. Until the first request has read it, it has settled: one
// more request reads it for all that have waited.
func TestThoseThatWaitForAChangedFileShareItsSum(t *testing.T) {
	path := filepath.Join(tree(t, map[string]string{"a": "x"}), "a")
	now := time.Now().Add(time.Hour)
	if err := os.Chtimes(path, now, now); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(now)) // the clock of the test begins in the past
		var s sums
		var reads atomic.Int32
		released, ended := make(chan struct{}), make(chan error, 10)
		ask := func(f io.ReadSeeker) {
			_, _, err := s.of(t.Context(), counted{f, &reads}, info, func() (fs.FileInfo, error) { return info, nil })
			ended <- err
		}
		go ask(held{strings.NewReader("x"), released, nil})
		synctest.Wait()
		for range 9 {
			go ask(strings.NewReader("x"))
		}
		synctest.Wait()
		time.Sleep(time.Second)
		close(released)
		for range 10 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if n := reads.Load(); n != 2 {
			t.Errorf("10 requests have read the file %d times", n)
		}
	})
}

// Many minions ask for a file that changes while the first request reads it, and each time it is looked at: those that
// have waited for the sum of one state get that.
func TestThoseThatWaitForAFileThatGoesOnChangingShareItsSum(t *testing.T) {
	path := filepath.Join(tree(t, map[string]string{"a": "x"}), "a")
	at := time.Now().Add(-time.Hour)
	var mu sync.Mutex
	touched := func() (fs.FileInfo, error) {
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(time.Second)
		if err := os.Chtimes(path, at, at); err != nil {
			return nil, err
		}
		return os.Stat(path)
	}
	info, err := touched()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var s sums
		var reads atomic.Int32
		released, ended := make(chan struct{}), make(chan error, 10)
		ask := func(f io.ReadSeeker) {
			_, of, err := s.of(t.Context(), counted{f, &reads}, info, touched)
			if err == nil && of != info {
				err = errors.New("the sum is of another state")
			}
			ended <- err
		}
		go ask(held{strings.NewReader("x"), released, nil})
		synctest.Wait()
		for range 9 {
			go ask(strings.NewReader("x"))
		}
		synctest.Wait()
		close(released)
		for range 10 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if n := reads.Load(); n != 1 {
			t.Errorf("10 requests have read the file %d times", n)
		}
	})
}
