package attack

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDescriptorsRunOut: a master that cannot open a file any more, nor take a connection,
// goes on with what it has, and serves as before when it can again. Meanwhile clients connect,
// and events come for which the journal has to begin new files.
func TestDescriptorsRunOut(t *testing.T) {
	if !*full && !*all {
		t.Skip("for the full form, and -all")
	}
	v := start(t, row{})
	o := v.operator()
	defer func() { o.Close() }()
	o.once()
	if o.failed > 0 {
		t.Fatal("nobody is served before")
	}
	quiet := o.measure(10)
	before := v.master.descriptors(t, 3)
	for range 20 {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", v.port))
		if err != nil {
			t.Fatal(err) // the kernel takes it
		}
		defer c.Close()
	}
	if err := o.fires("starved", 100); err == nil {
		t.Error("20 MB are stored without a new file: nothing was tried")
	}
	for _, line := range []string{"connections cannot be taken for the moment", "the journal cannot be written", "the journal cannot be opened again yet"} {
		v.await("the line "+line, readyTime, func() bool { return strings.Contains(v.master.said(), line) })
	}
	if !v.master.running() {
		t.Fatalf("the master has ended: %s\n%s", v.master.cmd.ProcessState, v.logs())
	}
	v.master.descriptors(t, before)
	if took := v.recovers(quiet); *full && took > mostRecover {
		t.Errorf("it took %s to recover, want at most %s", took, mostRecover)
	}
	again := v.operator()
	o.Close()
	o.wire = again.wire
	if err := o.fires("after", 3); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	j := v.join("newcomer")
	if <-j.done; j.err != nil {
		t.Errorf("a new minion does not come in: %v", j.err)
	}
	if n := o.lost(); n > 0 {
		t.Errorf("%d of %d acknowledged events and returns are lost", n, o.account())
	}
	v.stop()
}

// descriptors sets how many files the daemon may have open, and returns how many it might.
func (d *daemon) descriptors(t *testing.T, most uint64) (before uint64) {
	t.Helper()
	var was unix.Rlimit
	pid := d.cmd.Process.Pid
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: was.Max}, nil); err != nil {
		t.Fatal(err)
	}
	return was.Cur
}

// fires fires so many events of 200 KB, until one is refused.
func (o *operator) fires(name string, count int) error {
	data := strings.Repeat("x", 200<<10)
	for n := range count {
		tag := fmt.Sprintf("kept/%s/%d", name, n)
		item := map[string]any{"tag": tag, "data": data}
		if err := o.request("fire", map[string]any{"events": []any{item}}, func([]byte) error { return nil }); err != nil {
			return fmt.Errorf("event %d: %w", n, err)
		}
		o.events = append(o.events, tag)
	}
	return nil
}
