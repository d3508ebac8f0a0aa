// Package wrongclock makes the clock of one running process wrong, for tests of what a daemon does
// then.
//
// A Go program asks the kernel for the time in a page of code that the kernel has put into the process
// (vdso(7)): there a few instructions are replaced, as a debugger does for a breakpoint. What the kernel
// itself writes down, such as the times of files, and the time since the start of the machine stay
// right, and so do the clocks of programs that the process starts. It works on Linux on amd64 only.
package wrongclock

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Clock is the clock of one process.
type Clock struct {
	pid  int
	base int64 // of the page
	at   int64 // of the function in it
}

// wrongTime asks the kernel for the time and adds the seconds that stand behind it:
//
//	mov eax, 228 (clock_gettime); syscall; test edi, edi; jnz end (another clock than that of
//	the day); mov rcx, [rip+seconds]; add [rsi], rcx; end: ret; seconds
var wrongTime = []byte{0xb8, 228, 0, 0, 0, 0x0f, 0x05, 0x85, 0xff, 0x75, 10, 0x48, 0x8b, 0x0d, 6, 0, 0, 0, 0x48, 0x01, 0x0e, 0xc3, 0x90, 0x90}

// Of returns the clock of a process, or why it cannot be changed here.
func Of(pid int) (*Clock, error) {
	c := &Clock{pid: pid}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("clocks of single processes cannot be changed on %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	maps, err := os.ReadFile(c.file("maps"))
	if err != nil {
		return nil, err
	}
	for l := range strings.Lines(string(maps)) {
		if !strings.Contains(l, "[vdso]") {
			continue
		}
		var end int64
		if _, err := fmt.Sscanf(l, "%x-%x", &c.base, &end); err != nil {
			return nil, err
		}
		page := make([]byte, end-c.base)
		if err := c.memory(func(f *os.File) error { _, err := f.ReadAt(page, c.base); return err }); err != nil {
			return nil, err
		}
		return c, c.find(page)
	}
	return nil, errors.New("the process has no page of functions of the kernel")
}

// find finds the function in the page.
func (c *Clock) find(page []byte) error {
	file, err := elf.NewFile(bytes.NewReader(page))
	if err != nil {
		return err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			c.at = c.base + int64(s.Value)
			if int(s.Size) < len(wrongTime)+8 {
				return fmt.Errorf("the function has only %d bytes", s.Size)
			}
			return nil
		}
	}
	return errors.New("the kernel has no function for the time")
}

func (c *Clock) file(name string) string {
	return filepath.Join("/proc", strconv.Itoa(c.pid), name)
}

func (c *Clock) memory(do func(*os.File) error) error {
	f, err := os.OpenFile(c.file("mem"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(do(f), f.Close())
}

// Set makes the clock wrong by so many seconds; 0 makes it right again. The process is stopped for a
// moment.
func (c *Clock) Set(seconds int64) error {
	if err := c.hold(); err != nil {
		return err
	}
	defer func() { _ = syscall.Kill(c.pid, syscall.SIGCONT) }()
	code := binary.LittleEndian.AppendUint64(bytes.Clone(wrongTime), uint64(seconds))
	return c.memory(func(f *os.File) error { _, err := f.WriteAt(code, c.at); return err })
}

// holdTime limits the attempts to stop a process at such a moment: it is in the page for a part of its
// time only.
const holdTime = 20 * time.Second

// hold stops the process at a moment at which no thread is in the page.
func (c *Clock) hold() error {
	for end := time.Now().Add(holdTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err := syscall.Kill(c.pid, syscall.SIGSTOP); err != nil {
			return err
		}
		if c.outside() {
			return nil
		}
		if err := syscall.Kill(c.pid, syscall.SIGCONT); err != nil {
			return err
		}
	}
	return errors.New("the process is always in the function for the time")
}

// outside reports that all threads are stopped outside the page.
func (c *Clock) outside() bool {
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		running := false
		threads, _ := filepath.Glob(c.file("task/*/syscall"))
		for _, name := range threads {
			b, err := os.ReadFile(name) // the last field is where the thread is
			fields := strings.Fields(string(b))
			if err != nil || len(fields) < 3 {
				running = true
				continue
			}
			at, err := strconv.ParseInt(strings.TrimPrefix(fields[len(fields)-1], "0x"), 16, 64)
			if err == nil && at >= c.base && at < c.base+1<<14 {
				return false
			}
		}
		if !running && len(threads) > 0 {
			return true
		}
	}
	return false
}
