package wrongclock

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// asksTime is the variable with which this program only tells the time.
const asksTime = "WRONGCLOCK_ASKS_TIME"

// TestMain lets the test binary be the process whose clock is changed.
func TestMain(m *testing.M) {
	if os.Getenv(asksTime) == "" {
		os.Exit(m.Run())
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(time.Now().UnixNano())
	}
}

// TestAClockIsWrong: else those who use it would show nothing.
func TestAClockIsWrong(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := exec.Command(own)
	p.Env = append(os.Environ(), asksTime+"=1")
	ask, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answer, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ask.Close(); _ = p.Wait() }()
	wrong := func() time.Duration {
		var n int64
		fmt.Fprintln(ask)
		if _, err := fmt.Fscanln(answer, &n); err != nil {
			t.Fatal(err)
		}
		return time.Until(time.Unix(0, n))
	}
	wrong() // the process runs
	c, err := Of(p.Process.Pid)
	if err != nil {
		t.Skip(err)
	}
	for _, by := range []int64{-3600, 7, 0} {
		if err := c.Set(by); err != nil {
			t.Fatal(err)
		}
		want := time.Duration(by) * time.Second
		if off := wrong(); (off - want).Abs() > 3*time.Second {
			t.Errorf("the clock is wrong by %s, not by %s", off, want)
		}
	}
}
