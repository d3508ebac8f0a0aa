package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/brinebus/brine/test/port"
)

// thinSize is how much there is behind a disk that says it has 1 GiB.
const thinSize = 48 << 20

// thin is a disk with less behind it than it says. When that is used up it goes on to take
// what is written, as far as the kernel knows, and fails when it is to be synced. Its filesystem
// has no log, which would stop it altogether then.
type thin struct {
	*disk
	pool    string
	restore func() // what the device had before; nil for nothing
}

func newThin(dir string) (thin, error) {
	d := thin{&disk{image: filepath.Join(dir+".pool", "image"), dir: dir, real: true, options: "loop"}, dir + ".pool", nil}
	if err := errors.Join(os.Mkdir(d.dir, 0o755), os.Mkdir(d.pool, 0o755)); err != nil {
		return d, err
	}
	if err := run("mount", "-t", "tmpfs", "-o", fmt.Sprint("size=", thinSize), "none", d.pool); err != nil {
		return d, err
	}
	err := errors.Join(os.WriteFile(d.image, nil, 0o600), os.Truncate(d.image, 1<<30))
	if err == nil {
		err = run("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", d.image)
	}
	if err == nil {
		err = d.mount()
	}
	if err == nil {
		err = d.byPages()
	}
	if err != nil {
		d.remove()
	}
	return d, err
}

// byPages has each page written by a request of its own. A loop device of a recent kernel (6.15)
// reports a request as done of which its file took only the beginning: a write that begins in
// a page that is there and goes on in pages without room would count as synced.
func (d *thin) byPages() error {
	name, err := d.device()
	if err != nil {
		return err
	}
	setting := filepath.Join("/sys/block", name, "queue/max_sectors_kb")
	before, err := os.ReadFile(setting)
	if err != nil {
		return err
	}
	d.restore = func() { _ = os.WriteFile(setting, before, 0) } // the device keeps it for the next disk
	return os.WriteFile(setting, []byte(strconv.Itoa(os.Getpagesize()>>10)), 0)
}

func (d thin) remove() {
	if d.restore != nil {
		d.restore()
	}
	d.disk.remove()
	unmount(d.pool)
}

// starve leaves nothing behind the disk, and feed gives it back.
func (d thin) starve() error {
	f, err := os.Create(filepath.Join(d.pool, "other"))
	if err != nil {
		return err
	}
	defer f.Close()
	zeros := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(zeros)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	return nil
}

func (d thin) feed() error { return os.Remove(filepath.Join(d.pool, "other")) }

// What a sync could not bring to the disk, and the kernel takes for written since, is brought
// there by the next start: what the bus shows after it is there after a power cut.
func TestAFailedSyncBeforeAKillAndAPowerCut(t *testing.T) {
	dir := diskDir(t)
	d, err := newThin(filepath.Join(dir, "disk"))
	if err != nil {
		t.Skipf("no disk here: %v", err)
	}
	defer d.remove()
	m := &machine{t: t, name: "master", program: "salt-master", etc: filepath.Join(dir, "etc"), disk: d.disk}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(m.etc, 0o755))
	must(os.WriteFile(filepath.Join(m.etc, "master"), fmt.Appendf(nil, "%sinterface: 127.0.0.1\nret_port: %d\n", m.settings(), port.Free(t)), 0o600))
	must(m.start())
	defer func() { _ = m.end(syscall.SIGKILL) }()

	fire := func(tag string, n int, timeout string) result {
		return m.tool(strings.Repeat(fmt.Sprintf("{\"text\":%q}\n", strings.Repeat("x", 200)), n), "salt-event", "fire", tag, "--stdin", "-t", timeout)
	}
	if res := fire("thin/before", 1000, "30s"); res.code != 0 {
		t.Fatal(res.err)
	}
	must(d.starve())
	if res := fire("thin/starved", 300, "1s"); res.code == 0 {
		t.Error("what cannot be synced is reported as stored")
	}
	must(m.end(syscall.SIGKILL))
	must(d.feed())
	must(m.start())
	if res := fire("thin/after", 1, "30s"); res.code != 0 {
		t.Fatal(res.err)
	}
	shown := func() map[string]bool {
		res := m.tool("", "salt-event", "listen", "--tag", "thin", "--until-end", "--format", "json")
		if res.code != 0 {
			t.Fatal(res.err)
		}
		lines := map[string]bool{}
		for line := range strings.Lines(res.out) {
			lines[line] = true
		}
		return lines
	}
	before := shown()
	t.Logf("%d events are shown", len(before))
	must(m.crash())
	after := shown()
	lost := 0
	for line := range before {
		if !after[line] {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d events that were shown are lost\n%s", lost, len(before), m.said())
	}
}
