package beacon

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/test/deadline"
)

type dict = map[string]any

// one parses the settings of one beacon, which must be right.
func one(t *testing.T, name string, settings any) Beacon {
	t.Helper()
	list, err := Parse(dict{name: settings})
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %v, %v", name, list, err)
	}
	return list[0]
}

// look looks once, which must do well.
func look(t *testing.T, b Beacon) []Event {
	t.Helper()
	events, err := b.Probe.Look(t.Context(), time.Now())
	if err != nil {
		t.Fatalf("%s: %v", b.Name, err)
	}
	return events
}

func TestTheTableOfKindsIsSorted(t *testing.T) {
	if !slices.IsSorted(Kinds()) {
		t.Errorf("%q", Kinds())
	}
}

func TestParse(t *testing.T) {
	list, err := Parse(dict{
		"load":      []any{dict{"averages": dict{"1m": []any{0.0, int64(2)}}}, dict{"interval": int64(10)}, dict{"disable_during_state_run": true}},
		"memusage":  dict{"percent": "63%", "enabled": false},
		"watch_web": []any{dict{"processes": dict{"nginx": "running"}}, dict{"beacon_module": "ps"}, dict{"interval": "1m"}},
	})
	if err != nil || len(list) != 3 {
		t.Fatal(list, err)
	}
	if list[0].Interval != 10*time.Second || !list[0].Enabled || list[1].Enabled || list[1].Interval != time.Second || list[2].Kind != "ps" || list[2].Interval != time.Minute {
		t.Errorf("%+v", list)
	}
	if list, err := Parse(dict{"enabled": false, "memusage": dict{"percent": int64(5)}}); err != nil || list[0].Enabled {
		t.Errorf("all are disabled: %+v, %v", list, err)
	}
	for want, bad := range map[string]any{
		"not a dictionary of beacons":           []any{"load"},
		`there is no beacon "lode"`:             dict{"lode": nil},
		"no setting \"avreages\"":               dict{"memusage": dict{"percent": int64(5), "avreages": nil}},
		"percent is lots":                       dict{"memusage": dict{"percent": "lots"}},
		"not a pair of a least and a highest":   dict{"load": dict{"averages": dict{"2m": []any{0.0, 1.0}}}},
		"is not a range":                        dict{"load": dict{"averages": dict{"1m": []any{2.0, 1.0}}}},
		"averages is empty":                     dict{"load": []any{dict{"averages": dict{}}}},
		"interval is never":                     dict{"memusage": dict{"percent": int64(5), "interval": "never"}},
		"interval is 0":                         dict{"memusage": dict{"percent": int64(5), "interval": int64(0)}},
		"is there twice":                        dict{"memusage": []any{dict{"percent": int64(5)}, dict{"percent": int64(6)}}},
		"which mount points are meant":          dict{"diskusage": nil},
		"a percentage are wanted":               dict{"diskusage": dict{"/": "full"}},
		"neither running nor stopped":           dict{"ps": dict{"processes": dict{"x": "up"}}},
		"an absolute path is wanted":            dict{"log": dict{"file": "x.log", "tags": dict{"a": dict{"regex": "b"}}}},
		"a regex is wanted":                     dict{"log": dict{"file": "/x.log", "tags": dict{"a": dict{"regex": "("}}}},
		"is not an absolute path":               dict{"inotify": dict{"files": dict{"x": nil}}},
		"there is no change moved":              dict{"inotify": dict{"files": dict{"/x": dict{"mask": []any{"moved"}}}}},
		`there is no counter "bytes"`:           dict{"network_info": dict{"interfaces": dict{"lo": dict{"bytes": int64(1)}}}},
		"command is wanted":                     dict{"program": dict{"command": "ls"}},
		"which files are meant":                 dict{"cert_info": nil},
		"a name is made of":                     dict{"../x": dict{"beacon_module": "memusage", "percent": int64(5)}},
		"services: x: it has no setting \"up\"": dict{"service": dict{"services": dict{"x": dict{"up": true}}}},
	} {
		if _, err := Parse(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", bad, err, want)
		}
	}
}

// TestNamesOfServices: without systemd the program service runs the script of the name, wherever that is.
func TestNamesOfServices(t *testing.T) {
	for _, bad := range []string{"../../tmp/x", "/tmp/x", "x/y", "-x", "--status-all", ""} {
		if _, err := Parse(dict{"service": dict{"services": dict{bad: nil}}}); err == nil || !strings.Contains(err.Error(), "is not the name of a service") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, good := range []string{"nginx", "getty@tty1.service", "x.y-z"} {
		one(t, "service", dict{"services": dict{good: nil}})
	}
}

func TestTheMachine(t *testing.T) {
	for name, settings := range map[string]dict{
		"load":         {"averages": dict{"1m": []any{int64(1e6), int64(2e6)}}},
		"memusage":     {"percent": int64(0)},
		"diskusage":    {"/": int64(0)},
		"network_info": {"interfaces": []any{dict{"lo": dict{"type": "greater", "errin": int64(-1)}}}},
		"ps":           {"processes": dict{"no-such-program": "stopped"}},
	} {
		events := look(t, one(t, name, settings))
		if len(events) != 1 || len(events[0].Data) == 0 {
			t.Errorf("%s: %v", name, events)
		}
	}
	for name, settings := range map[string]dict{
		"load":         {"averages": dict{"1m": []any{int64(0), int64(1e6)}}},
		"memusage":     {"percent": int64(100)},
		"diskusage":    {"/no-such-mount": int64(0)},
		"network_info": {"interfaces": []any{dict{"lo": dict{"type": "equal", "errin": int64(-1)}}}},
		"ps":           {"processes": dict{"no-such-program": "running"}},
	} {
		if events := look(t, one(t, name, settings)); len(events) != 0 {
			t.Errorf("%s: %v", name, events)
		}
	}
}

// TestStatus: what functions tell, or the parts of it that are asked for, under a tag that is the time.
func TestStatus(t *testing.T) {
	asked := func(_ context.Context, name string) (any, error) {
		if name == "nproc" {
			return int64(2), nil
		}
		return dict{"1-min": 0.5, "5-min": 0.25, "of": name}, nil
	}
	for _, test := range []struct {
		settings any
		want     dict
	}{
		{dict{"loadavg": []any{"1-min", "none"}, "nproc": []any{"all"}}, dict{"loadavg": dict{"1-min": 0.5}, "nproc": int64(2)}},
		{dict{"w": []any{"all"}}, dict{"w": dict{"1-min": 0.5, "5-min": 0.25, "of": "w"}}},
	} {
		b := one(t, "status", test.settings)
		b.Probe.(needsStatus).useStatus(asked)
		events := look(t, b)
		if len(events) != 1 || !reflect.DeepEqual(events[0].Data["data"], any(test.want)) || events[0].Tag != events[0].Data["tag"] || !strings.Contains(events[0].Tag, "T") {
			t.Errorf("%v: %v, want %v", test.settings, events, test.want)
		}
	}
	usual := one(t, "status", []any{})
	usual.Probe.(needsStatus).useStatus(asked)
	all := look(t, usual)[0].Data["data"].(dict)
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, []string{"cpustats", "loadavg", "meminfo", "time", "vmstats"}) {
		t.Errorf("without settings: %q", got)
	}
	if _, err := Parse(dict{"status": dict{"pid": []any{"all"}}}); err == nil {
		t.Error("status.pid needs an argument, and was taken")
	}
}

// TestJournald: a program in place of journalctl, which notes what it is asked for.
func TestJournald(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho \"$*\" >>" + dir + "/asked\ncat " + dir + "/messages 2>/dev/null\nexit 0\n"
	if err := os.WriteFile(filepath.Join(dir, "journalctl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	b := one(t, "journald", dict{"services": dict{"ssh": dict{"SYSLOG_IDENTIFIER": "sshd", "PRIORITY": int64(6)}, "all": dict{"SYSLOG_IDENTIFIER": "sshd"}}})
	b.Probe.(*journald).program = filepath.Join(dir, "journalctl")
	if events := look(t, b); len(events) != 0 {
		t.Errorf("at the first look: %v", events)
	}
	write(t, filepath.Join(dir, "messages"), `{"__CURSOR":"s=1","SYSLOG_IDENTIFIER":"sshd","PRIORITY":"6","MESSAGE":"one","_PID":"17"}`+"\n"+
		`{"__CURSOR":"s=2","SYSLOG_IDENTIFIER":"sshd","PRIORITY":"3","MESSAGE":"two"}`+"\n"+`{"__CURSOR":"s=3","cut`, os.O_APPEND)
	events := look(t, b)
	if len(events) != 3 || events[0].Tag != "all" || events[1].Tag != "ssh" || events[2].Tag != "all" {
		t.Fatalf("%v", events)
	}
	if d := events[1].Data; d["tag"] != "ssh" || d["MESSAGE"] != "one" || d["PRIORITY"] != int64(6) || d["_PID"] != int64(17) {
		t.Errorf("%v", d)
	}
	look(t, b)
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	if lines := strings.Split(string(asked), "\n"); err != nil || !strings.HasSuffix(lines[2], "--after-cursor=s=2 SYSLOG_IDENTIFIER=sshd + PRIORITY=6 SYSLOG_IDENTIFIER=sshd") || !strings.Contains(lines[1], "--since=@") {
		t.Errorf("asked: %s %v", asked, err)
	}
	for _, bad := range []any{dict{"--file": "x"}, dict{"message": "x"}, dict{}, "x"} {
		if _, err := Parse(dict{"journald": dict{"services": dict{"x": bad}}}); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}

// TestMoreThanIsReadOfTheJournalAtATime: when more messages have come than are read at a time, the looks go on
// with them one after the other.
func TestMoreThanIsReadOfTheJournalAtATime(t *testing.T) {
	dir := t.TempDir()
	message := `{"__CURSOR":"s=%d","SYSLOG_IDENTIFIER":"sshd","MESSAGE":"` + strings.Repeat("x", 1<<10) + `"}`
	script := `#!/bin/sh
cursor=0
for arg; do case $arg in --after-cursor=s=*) cursor=${arg#*s=} ;; --lines=0) exit ;; esac; done
exec awk -v n=$cursor 'BEGIN { while (n++ < 5500) printf "%s\n", n, "" }'
`
	script = strings.Replace(script, `"%s\n", n, ""`, `"`+strings.ReplaceAll(message, `"`, `\"`)+`\n", n`, 1)
	if err := os.WriteFile(filepath.Join(dir, "journalctl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	b := one(t, "journald", dict{"services": dict{"all": dict{"SYSLOG_IDENTIFIER": "sshd"}}})
	b.Probe.(*journald).program = filepath.Join(dir, "journalctl")
	look(t, b)
	for i := range 3 {
		events := look(t, b)
		if len(events) != MaxEvents {
			t.Fatalf("%d events of the look %d", len(events), i)
		}
		if got, want := events[0].Data["__CURSOR"], fmt.Sprintf("s=%d", i*MaxEvents+1); got != want {
			t.Errorf("the look %d begins with the message %v, want %s", i, got, want)
		}
	}
}

// TestJournaldOfThisMachine writes into the real journal, where there is one.
func TestJournaldOfThisMachine(t *testing.T) {
	if _, err := os.Stat("/run/systemd/journal/socket"); err != nil {
		t.Skip("no journald runs on this machine: the beacon was tried with a program in the place of journalctl only")
	}
	name := "brine-test-" + rand.Text()
	b := one(t, "journald", dict{"services": dict{"mine": dict{"SYSLOG_IDENTIFIER": name}}})
	look(t, b)
	if out, err := exec.Command("systemd-cat", "-t", name, "echo", "hello").CombinedOutput(); err != nil {
		t.Skipf("nothing can be written into the journal: %v %s", err, out)
	}
	for range 100 {
		if events := look(t, b); len(events) > 0 {
			if events[0].Data["MESSAGE"] != "hello" || events[0].Tag != "mine" {
				t.Errorf("%v", events)
			}
			return
		}
		if out, err := exec.Command("journalctl", "--sync").CombinedOutput(); err != nil {
			t.Skipf("the journal cannot be read: %v %s", err, out)
		}
	}
	t.Error("the message has not come")
}

func write(t *testing.T, path, text string, flags int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flags, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestLinesOfALog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	b := one(t, "log", dict{"file": file, "tags": dict{"fail": dict{"regex": "^error"}}})
	if _, err := b.Probe.Look(t.Context(), time.Now()); err == nil {
		t.Error("a file that is not there was read")
	}
	raws := func() (list []any) {
		for _, e := range look(t, b) {
			if e.Tag != "fail" {
				t.Errorf("tag %q", e.Tag)
			}
			list = append(list, e.Data["raw"])
		}
		return list
	}
	check := func(want ...any) {
		t.Helper()
		if got := raws(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	write(t, file, "error: old\n", 0)
	check() // what was there before is not told
	write(t, file, "error: one\nfine\nerror: tw", os.O_APPEND)
	check("error: one")
	write(t, file, "o\n", os.O_APPEND)
	check("error: two")
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, file, "error: after rotation\n", 0)
	check("error: after rotation")
	write(t, file, "error: cut\n", os.O_TRUNC)
	check("error: cut")
	write(t, file, strings.Repeat("error\n", 3*MaxEvents), os.O_APPEND)
	if a, b, c := len(raws()), len(raws()), len(raws()); a != MaxEvents || b != MaxEvents || c != MaxEvents {
		t.Errorf("%d, %d and %d events of a look, want %d each", a, b, c, MaxEvents)
	}
	write(t, file, strings.Repeat("x", 3*maxLine)+"\nerror: behind a long line\n", os.O_APPEND)
	check("error: behind a long line")
}

// TestTheRestOfARotatedLog: what was written between the last look and the rotation is not lost, however much it is and
// although the file is removed, nor what a program writes to it that has not opened the new one yet.
func TestTheRestOfARotatedLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	b := one(t, "log", dict{"file": file, "tags": dict{"fail": dict{"regex": "error"}}})
	l := b.Probe.(*lines)
	check := func(what string, want ...any) {
		t.Helper()
		var got []any
		for _, e := range look(t, b) {
			got = append(got, e.Data["raw"])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	write(t, file, "error: before\n", 0)
	check("the first look")
	many := make([]any, MaxEvents+1)
	for i := range many {
		many[i] = fmt.Sprintf("error %d", i)
		write(t, file, fmt.Sprintln(many[i]), os.O_APPEND)
	}
	writer, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	events, err := l.Look(t.Context(), time.Now())
	if len(events) != MaxEvents || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("before there is a new one: %d events, %v", len(events), err)
	}
	write(t, file, "error: new\n", 0)
	check("the rest, then the new one", many[MaxEvents], "error: new")
	if _, err := writer.WriteString("error: late\nerror: cut"); err != nil {
		t.Fatal(err)
	}
	write(t, file, "error: newer\n", os.O_APPEND)
	check("what is written late", "error: late", "error: newer")
	check("a last line without an end", "error: cut")
	if len(l.open) != 1 {
		t.Errorf("%d files are open", len(l.open))
	}

	for i := range maxRotated + 2 { // with more before each rotation than a look takes
		write(t, file, strings.Repeat("error\n", 10*MaxEvents), os.O_APPEND)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		write(t, file, "", 0)
		_, err := l.Look(t.Context(), time.Now())
		if lost := i >= maxRotated; (err != nil) != lost || len(l.open) > maxRotated+1 {
			t.Errorf("rotation %d: %v, %d files are open", i, err, len(l.open))
		}
	}
	if err := l.Close(); err != nil || len(l.open) != 0 {
		t.Errorf("closed: %v, %d files are open", err, len(l.open))
	}
}

// TestALogThatIsGone: a log that was removed, without a new one, does not stay open. A later one is read from its
// beginning.
func TestALogThatIsGone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	b := one(t, "log", dict{"file": file, "tags": dict{"fail": dict{"regex": "error"}}})
	l := b.Probe.(*lines)
	check := func(what string, open int, gone bool, want ...any) {
		t.Helper()
		events, err := l.Look(t.Context(), time.Now())
		var got []any
		for _, e := range events {
			got = append(got, e.Data["raw"])
		}
		if !slices.Equal(got, want) || len(l.open) != open || errors.Is(err, os.ErrNotExist) != gone {
			t.Errorf("%s: %q, %v, %d files are open; want %q, %d", what, got, err, len(l.open), want, open)
		}
	}
	write(t, file, "error: old\n", 0)
	check("the first look", 1, false)
	write(t, file, "error: one\nerror: cut", os.O_APPEND)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	check("it is gone", 1, true, "error: one")
	check("it is still gone", 0, true, "error: cut")
	check("nothing is left", 0, true)
	write(t, file, "error: new\n", 0)
	check("a later one", 1, false, "error: new")
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	check("it is renamed", 1, true)
	if err := os.Rename(file+".1", file); err != nil {
		t.Fatal(err)
	}
	check("it is back", 1, false)
	check("it stays", 1, false)
}

// TestWhatUsersPutAtAPath: a FIFO does not block a beacon, what is huge does not fill the memory, and a look at
// a log has an end.
func TestWhatUsersPutAtAPath(t *testing.T) {
	dir := t.TempDir()
	pipe, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "file")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, file, "a\n", 0)
	log := func(path string) Beacon {
		return one(t, "log", dict{"file": path, "tags": dict{"fail": dict{"regex": "^error"}}})
	}
	certificate := func(path string) Beacon {
		return one(t, "cert_info", dict{"files": []any{path}})
	}
	fails := func(b Beacon, what string) {
		t.Helper()
		deadline.Call(t, func() {
			if _, err := b.Probe.Look(t.Context(), time.Now()); err == nil {
				t.Errorf("%s is read as a %s", what, b.Name)
			}
		}, what)
	}
	for _, path := range []string{pipe, "/dev/null", dir} {
		fails(log(path), path)
		fails(certificate(path), path)
	}

	b := log(file)
	look(t, b)
	if err := os.Truncate(file, 1<<30); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	l := b.Probe.(*lines)
	offset := func() int64 { return l.open[0].offset }
	if _, err := l.Look(ended, time.Now()); err != nil || offset() > 2 {
		t.Errorf("it has read up to %d although it should end: %v", offset(), err)
	}
	if look(t, b); offset() > maxRead+maxLine {
		t.Errorf("at one look it has read %d bytes", offset())
	}
	if was := offset(); len(look(t, b)) != 0 || offset() <= was {
		t.Errorf("after %d bytes the next look has read none", was)
	}
	write(t, file, "x", os.O_TRUNC)
	if err := os.Truncate(file, maxCertificate+1); err != nil {
		t.Fatal(err)
	}
	if _, err := certificate(file).Probe.Look(t.Context(), time.Now()); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a certificate that is too large: %v", err)
	}
}

func TestFilesThatChange(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	write(t, file, "a", 0)
	b := one(t, "inotify", dict{"files": dict{file: dict{"mask": []any{"modify"}}, dir: dict{"mask": []any{"create"}}}})
	t.Cleanup(func() { b.Probe.(io.Closer).Close() })
	if events := look(t, b); len(events) != 0 {
		t.Fatal(events)
	}
	write(t, file, "b", os.O_APPEND)
	write(t, filepath.Join(dir, "new"), "", 0)
	var got []string
	for deadline := time.Now().Add(time.Minute); len(got) < 2 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		for _, e := range look(t, b) {
			if what := e.Data["change"].(string) + " " + filepath.Base(e.Data["path"].(string)); !slices.Contains(got, what) {
				got = append(got, what) // the file and its folder both tell of a change
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"IN_CREATE new", "IN_MODIFY f"}) {
		t.Errorf("%q", got)
	}
}

// TestAFileThatCannotBeWatched: that is an error, but not that there is no such file yet; what can be watched is.
func TestAFileThatCannotBeWatched(t *testing.T) {
	dir := t.TempDir()
	loop, file := filepath.Join(dir, "loop"), filepath.Join(dir, "file")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	b := one(t, "inotify", dict{"files": dict{loop: nil, file: nil}})
	t.Cleanup(func() { b.Probe.(io.Closer).Close() })
	for range 2 {
		if _, err := b.Probe.Look(t.Context(), time.Now()); err == nil || !strings.Contains(err.Error(), loop) || strings.Contains(err.Error(), file) {
			t.Errorf("of a path that is a loop, and one that is not there: %v", err)
		}
	}
	if err := os.Remove(loop); err != nil {
		t.Fatal(err)
	}
	look(t, b)
}

// TestServicesThatCannotBeAsked: a service is not taken for stopped when nothing is known of it, and what was found
// of others is told.
func TestServicesThatCannotBeAsked(t *testing.T) {
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	text := "#!/bin/sh\nfor last; do :; done\ncase $last in\n  b) echo >" + gate + "; exec sleep 600 ;;\n  c|d) exec sleep 600 ;;\nesac\n"
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))

	hangs := one(t, "service", dict{"services": dict{"c": nil}})
	hangs.Probe.(*services).limit = 10 * time.Millisecond
	if events, err := hangs.Probe.Look(t.Context(), time.Now()); err == nil || len(events) != 0 {
		t.Errorf("without an answer: %v, %v", events, err)
	}

	both := one(t, "service", dict{"services": dict{"c": nil, "d": nil}})
	both.Probe.(*services).limit = 10 * time.Millisecond
	if _, err := both.Probe.Look(t.Context(), time.Now()); err == nil || !strings.Contains(err.Error(), "whether c runs") || !strings.Contains(err.Error(), "whether d runs") {
		t.Errorf("the one after the one that does not answer was not asked: %v", err)
	}

	two := one(t, "service", dict{"services": dict{"a": nil, "b": nil}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel() // b is asked
		_, _ = os.ReadFile(gate)
	}()
	events, err := two.Probe.Look(ctx, time.Now())
	if err == nil || len(events) != 1 || events[0].Tag != "a" {
		t.Errorf("when the second fails: %v, %v", events, err)
	}
}

func TestCertificates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.pem")
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "web1"}, NotAfter: time.Now().Add(10 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), 0)
	if events := look(t, one(t, "cert_info", dict{"files": []any{file}, "notify_days": int64(5)})); len(events) != 0 {
		t.Errorf("ten days are left, and %v", events)
	}
	events := look(t, one(t, "cert_info", dict{"files": []any{file, file + ".none"}}))
	if len(events) != 1 || events[0].Data["certificates"].([]any)[0].(dict)["subject"] != "CN=web1" {
		t.Errorf("%v", events)
	}
	write(t, file, "none", os.O_TRUNC)
	if _, err := one(t, "cert_info", dict{"files": []any{file}}).Probe.Look(t.Context(), time.Now()); err == nil {
		t.Error("no certificate was read as one")
	}
}

func TestPrograms(t *testing.T) {
	b := one(t, "temperature", dict{"beacon_module": "program", "command": []any{"/bin/sh", "-c", `echo '{"tag": "cpu", "celsius": 71}'; echo; echo '{}'`}})
	events := look(t, b)
	if len(events) != 2 || events[0].Tag != "cpu" || events[0].Data["celsius"] != 71.0 || b.Runs == "" {
		t.Errorf("%v, runs %q", events, b.Runs)
	}
	for _, script := range []string{"echo no json", "echo null", "exit 3"} {
		if _, err := one(t, "program", dict{"command": []any{"/bin/sh", "-c", script}}).Probe.Look(t.Context(), time.Now()); err == nil {
			t.Errorf("%s: no error", script)
		}
	}
}

// probe is a Probe of a test.
type probe func(now time.Time) ([]Event, error)

func (p probe) Look(_ context.Context, now time.Time) ([]Event, error) { return p(now) }

func TestEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		fired := map[string]int{}
		e := NewEngine(func(_ context.Context, name string, events []Event) error {
			mu.Lock()
			defer mu.Unlock()
			fired[name] += len(events)
			return nil
		}, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { e.Run(ctx) })
		tell := probe(func(time.Time) ([]Event, error) { return []Event{{Data: dict{}}}, nil })
		e.Set([]Beacon{
			{Name: "often", Interval: time.Second, Enabled: true, Probe: tell},
			{Name: "seldom", Interval: 10 * time.Second, Enabled: true, Probe: tell},
			{Name: "never", Interval: time.Second, Probe: tell},
			{Name: "broken", Interval: time.Second, Enabled: true, Probe: probe(func(time.Time) ([]Event, error) { panic("x") })},
			{Name: "slow", Interval: time.Second, Enabled: true, Probe: probe(func(time.Time) ([]Event, error) { time.Sleep(4500 * time.Millisecond); return tell(time.Time{}) })},
			{Name: "flood", Interval: time.Hour, Enabled: true, Probe: probe(func(time.Time) ([]Event, error) {
				return slices.Repeat([]Event{{Data: dict{}}}, 10*MaxEvents), nil
			})},
		})
		time.Sleep(20*time.Second + 500*time.Millisecond)
		mu.Lock()
		if fired["often"] != 21 || fired["seldom"] != 3 || fired["never"] != 0 || fired["slow"] != 4 || fired["flood"] != MaxEvents {
			t.Errorf("in twenty seconds: %v", fired)
		}
		mu.Unlock()
		e.Set(nil)
		time.Sleep(10 * time.Second)
		mu.Lock()
		was := fired["often"]
		mu.Unlock()
		time.Sleep(10 * time.Second)
		if fired["often"] != was {
			t.Error("a beacon that was taken away looks on")
		}
		stop()
		wg.Wait()
	})
}

// TestEventsThatCannotBeFired: a beacon whose events make fire panic does not end the minion, and the others go on.
func TestEventsThatCannotBeFired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fired := 0
		e := NewEngine(func(_ context.Context, name string, events []Event) error {
			events[0].Data["name"] = name
			if name == "good" {
				fired++
			}
			return nil
		}, slog.New(slog.DiscardHandler))
		tell := func(events ...Event) Probe { return probe(func(time.Time) ([]Event, error) { return events, nil }) }
		e.Set([]Beacon{
			{Name: "good", Interval: time.Second, Enabled: true, Probe: tell(Event{Data: dict{}})},
			{Name: "none", Interval: time.Second, Enabled: true, Probe: tell(Event{})},
			{Name: "many", Interval: time.Second, Enabled: true, Probe: tell(slices.Repeat([]Event{{}}, MaxEvents+1)...)},
		})
		ctx, stop := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer stop()
		e.Run(ctx)
		if fired != 4 {
			t.Errorf("the good one has fired %d times", fired)
		}
	})
}

// stuck is a Probe that does not return before it is let go.
type stuck struct {
	let    chan struct{}
	closed bool
}

func (s *stuck) Look(context.Context, time.Time) ([]Event, error) {
	<-s.let
	return []Event{{Data: dict{}}}, nil
}

func (s *stuck) Close() error {
	s.closed = true
	return nil
}

// TestAStopIsNotDelayedByALook: a beacon that does not return, such as one on a network file system that is gone,
// does not stop the daemon from stopping.
func TestAStopIsNotDelayedByALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fired := 0
		e := NewEngine(func(context.Context, string, []Event) error { fired++; return nil }, slog.New(slog.DiscardHandler))
		s := &stuck{let: make(chan struct{})}
		e.Set([]Beacon{{Name: "disk", Interval: time.Second, Enabled: true, Probe: s}})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { e.Run(ctx); close(ended) }()
		synctest.Wait()
		stop()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("it waits for the beacon")
		}
		if s.closed {
			t.Error("a beacon is closed while it looks")
		}
		close(s.let)
		<-ended
		synctest.Wait()
		if fired != 0 {
			t.Error("a beacon that was abandoned fires an event")
		}
	})
}
