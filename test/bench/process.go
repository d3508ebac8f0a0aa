package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// limit bounds everything that is waited for.
const limit = 30 * time.Second

// daemons are the processes that a measurement needs; the latest is stopped first.
type daemons struct {
	dir  string // their logs
	list []*exec.Cmd
}

// launch runs a program until stop, its words in a file.
func (d *daemons) launch(name string, command ...string) (*exec.Cmd, error) {
	log, err := os.Create(filepath.Join(d.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr, cmd.Stdout = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d.list = append(d.list, cmd)
	return cmd, nil
}

// startTalking runs a program until stop and returns its first line.
func (d *daemons) startTalking(command ...string) (cmd *exec.Cmd, line string, err error) {
	p, line, err := d.startObeying(command...)
	if err != nil {
		return nil, "", err
	}
	return p.cmd, line, nil
}

// obeying is a program that answers each line with one.
type obeying struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

// startObeying runs a program until stop and returns its first line.
func (d *daemons) startObeying(command ...string) (p *obeying, line string, err error) {
	p = &obeying{cmd: exec.Command(command[0], command[1:]...)}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	p.out = bufio.NewReader(out)
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, "", err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, "", err
	}
	d.list = append(d.list, p.cmd)
	if line, err = p.read(); err != nil {
		return nil, "", fmt.Errorf("%s did not start: %w", filepath.Base(command[0]), err)
	}
	return p, line, nil
}

func (p *obeying) read() (string, error) {
	line, err := p.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

// tell says one line and returns what is answered.
func (p *obeying) tell(line string) (string, error) {
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		return "", err
	}
	return p.read()
}

// end stops one process and waits for it.
func (d *daemons) end(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM) // it has ended already
	_ = cmd.Wait()                          // by our signal
	for i, c := range d.list {
		if c == cmd {
			d.list = append(d.list[:i], d.list[i+1:]...)
			return
		}
	}
}

// stop ends all.
func (d *daemons) stop() {
	for len(d.list) > 0 {
		d.end(d.list[len(d.list)-1])
	}
}

// ran is one run of a short-lived program.
type ran struct {
	wall, cpu time.Duration
	out       []byte
}

// once runs a program from start to exit, which must be a success.
func once(ctx context.Context, command ...string) (ran, error) { return onceExit(ctx, 0, command...) }

// onceExit runs a program from start to exit with that code.
func onceExit(ctx context.Context, code int, command ...string) (ran, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	out, err := os.CreateTemp("", "bench")
	if err != nil {
		return ran{}, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	var words bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, out // a file: no goroutine of ours copies
	begin := time.Now()
	err = cmd.Run()
	r := ran{wall: time.Since(begin)}
	if _, e := out.Seek(0, io.SeekStart); e == nil {
		_, _ = words.ReadFrom(out) // only for the words of an error
	}
	r.out = words.Bytes()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		return r, fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, r.out)
	}
	r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return r, nil
}

// until repeats f until it returns true or an error, for a bounded time. The
// pauses are short, since what is waited for is being measured.
func until(ctx context.Context, what string, pause time.Duration, f func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("waited %s in vain for %s", limit, what))
	defer cancel()
	for {
		done, err := f()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
