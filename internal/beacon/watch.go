package beacon

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/salt"
)

// maxLine limits a line that becomes an event.
const maxLine = 64 << 10

// lines watches the lines appended to a file.
type lines struct {
	file string
	tags map[string]*regexp.Regexp
	open []*logFile // what is at the path is the last one; those before it were rotated away

	begun bool // there was a file at the path: a later one is read from its beginning
	gone  bool // there is none now: the last one was rotated away, too
}

// logFile is a log that is being read. It stays open between two looks: after a rotation nobody knows under
// which name it is, nor whether it still has one.
type logFile struct {
	*os.File
	info   os.FileInfo
	offset int64
	ended  bool // it was rotated away, and a look has read it to its end since
}

// maxRotated limits how many logs that were rotated away are open: each takes room on the disk, also if it
// was removed.
const maxRotated = 4

func newLog(s *settings) (Probe, error) {
	l := &lines{file: s.text("file", ""), tags: map[string]*regexp.Regexp{}}
	if !filepath.IsAbs(l.file) {
		return nil, fmt.Errorf("file is %q: an absolute path is wanted", l.file)
	}
	for tag, v := range s.table("tags") {
		rule, _ := v.(map[string]any)
		expr, _ := rule["regex"].(string)
		re, err := regexp.Compile(expr)
		if err != nil || expr == "" {
			return nil, fmt.Errorf("tags: %s: a regex is wanted: %v", tag, cmpErr(err, "there is none"))
		}
		l.tags[tag] = re
	}
	return l, nil
}

func cmpErr(err error, otherwise string) string {
	if err != nil {
		return err.Error()
	}
	return otherwise
}

// maxRead limits how much of a log is read at one look, in bytes, and maxCertificate the file of a
// certificate.
const (
	maxRead        = 4 << 20
	maxCertificate = 1 << 20
)

// openRegular opens a file to read. Users may have put anything where it is expected: a FIFO would block, and
// a device has no end.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|posix.NoWaiting, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// Look implements Probe. It begins at the end of the file at the first look. A file that was truncated is read
// from its beginning. Of one that was rotated away the rest is read, and then the new one from its beginning.
// What is beyond maxRead is for the next look.
func (l *lines) Look(ctx context.Context, _ time.Time) ([]Event, error) {
	failed := l.follow()
	events, err := l.read(ctx)
	return events, errors.Join(failed, err)
}

// follow opens what is at the path now.
func (l *lines) follow() error {
	f, info, err := openRegular(l.file)
	l.gone = errors.Is(err, fs.ErrNotExist)
	if err != nil {
		return err
	}
	if len(l.open) == 0 {
		one := &logFile{File: f, info: info}
		if !l.begun {
			one.offset = info.Size()
		}
		l.open, l.begun = []*logFile{one}, true
		return nil
	}
	last := l.open[len(l.open)-1]
	if !os.SameFile(last.info, info) {
		l.open = append(l.open, &logFile{File: f, info: info})
		if len(l.open) <= maxRotated+1 {
			return nil
		}
		l.drop(0)
		return fmt.Errorf("%s is rotated faster than it is read: lines are lost", l.file)
	}
	last.Close()
	last.File, last.info = f, info // an old handle of a network file system may have become stale
	if info.Size() < last.offset {
		last.offset = 0
	}
	return nil
}

func (l *lines) drop(i int) {
	l.open[i].Close()
	l.open = slices.Delete(l.open, i, i+1)
}

// Close implements io.Closer.
func (l *lines) Close() error {
	for len(l.open) > 0 {
		l.drop(0)
	}
	return nil
}

// read reads the open files, the oldest first. One that was rotated away stays open until a further look finds
// nothing more in it: programs write to it until they open the new one. One that was removed takes room on the disk
// until then.
func (l *lines) read(ctx context.Context) (events []Event, failed error) {
	limit := int64(maxRead)
	for i := 0; i < len(l.open); {
		f, rotated := l.open[i], l.gone || i < len(l.open)-1
		before := f.offset
		found, rest, err := l.readOn(ctx, f, limit, MaxEvents-len(events))
		events = append(events, found...)
		limit -= f.offset - before
		switch {
		case err == nil || !rotated && !errors.Is(err, io.EOF):
			return events, errors.Join(failed, err) // there is more, or it may go better at the next look
		case !errors.Is(err, io.EOF):
			failed = errors.Join(failed, err)
			l.drop(i)
		case rotated && f.ended && f.offset == before:
			if rest != "" { // nobody completes it
				events = append(events, l.matches(rest)...)
			}
			l.drop(i)
		default:
			f.ended = rotated
			i++
		}
	}
	return events, failed
}

// readOn reads complete lines from the offset on. The error is io.EOF when there are no more, and rest is then
// the incomplete one, which is read again.
func (l *lines) readOn(ctx context.Context, f *logFile, limit int64, most int) (events []Event, rest string, err error) {
	if _, err := f.Seek(f.offset, io.SeekStart); err != nil {
		return nil, "", err
	}
	end := f.offset + limit
	for r := bufio.NewReaderSize(f, maxLine); len(events) < most && f.offset < end && ctx.Err() == nil; {
		line, err := r.ReadSlice('\n')
		text := strings.TrimRight(string(line), "\r\n")
		if errors.Is(err, io.EOF) {
			return events, text, err
		}
		f.offset += int64(len(line))
		events = append(events, l.matches(text)...)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return events, "", err
		}
	}
	return events, "", nil
}

func (l *lines) matches(line string) []Event {
	var events []Event
	for _, tag := range slices.Sorted(maps.Keys(l.tags)) {
		if l.tags[tag].MatchString(line) {
			events = append(events, Event{Tag: tag, Data: map[string]any{"tag": tag, "match": "yes", "raw": line, "error": ""}})
		}
	}
	return events
}

// files watches changes of files and directories.
type files struct {
	watcher *fsnotify.Watcher
	rules   map[string]fsnotify.Op // by path
	missing []string               // paths to watch when they exist
}

// operations are the changes, by Salt's names, which are those of inotify.
var operations = map[string]fsnotify.Op{
	"create": fsnotify.Create, "delete": fsnotify.Remove, "delete_self": fsnotify.Remove, "modify": fsnotify.Write, "close_write": fsnotify.Write,
	"moved_to": fsnotify.Create, "moved_from": fsnotify.Rename, "move_self": fsnotify.Rename, "attrib": fsnotify.Chmod,
}

func newFiles(s *settings) (Probe, error) {
	f := &files{rules: map[string]fsnotify.Op{}}
	for path, v := range s.table("files") {
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("files: %s is not an absolute path", path)
		}
		rule, _ := v.(map[string]any)
		mask, err := readMask(rule["mask"])
		if err != nil {
			return nil, fmt.Errorf("files: %s: %w", path, err)
		}
		for key := range rule {
			if key != "mask" {
				return nil, fmt.Errorf("files: %s: it has no setting %q", path, key)
			}
		}
		f.rules[filepath.Clean(path)] = mask
	}
	f.missing = slices.Sorted(maps.Keys(f.rules))
	return f, nil
}

// readMask reads which changes count; the default is that of Salt.
func readMask(v any) (fsnotify.Op, error) {
	list, ok := v.([]any)
	switch {
	case v == nil:
		return fsnotify.Create | fsnotify.Remove | fsnotify.Write, nil
	case !ok:
		return 0, fmt.Errorf("mask is %v: a list of changes is wanted", v)
	}
	var mask fsnotify.Op
	for _, name := range list {
		op, known := operations[strings.ToLower(fmt.Sprint(name))]
		if !known {
			return 0, fmt.Errorf("mask: there is no change %v; there are: %s", name, strings.Join(slices.Sorted(maps.Keys(operations)), ", "))
		}
		mask |= op
	}
	return mask, nil
}

// Close implements io.Closer.
func (f *files) Close() error {
	if f.watcher == nil {
		return nil
	}
	return f.watcher.Close()
}

// Look implements Probe: it returns what the system has reported since the last look.
func (f *files) Look(context.Context, time.Time) ([]Event, error) {
	if f.watcher == nil {
		w, err := fsnotify.NewWatcher()
		if err != nil {
			return nil, err
		}
		f.watcher = w
	}
	failed := f.watch()
	var events []Event
	seen := map[string]bool{}
	for len(events) < MaxEvents {
		select {
		case e := <-f.watcher.Events:
			if one, ok := f.event(e); ok && !seen[e.String()] {
				seen[e.String()] = true // ten writes between two looks are one change
				events = append(events, one)
			}
		case err := <-f.watcher.Errors:
			return events, errors.Join(err, failed)
		default:
			return events, failed
		}
	}
	return events, failed
}

// watch begins to watch the paths that exist by now. It returns why others cannot be watched, for example since the
// system allows no more watches.
func (f *files) watch() (failed error) {
	f.missing = slices.DeleteFunc(f.missing, func(path string) bool {
		err := f.watcher.Add(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, fmt.Errorf("%s cannot be watched: %w", path, err))
		}
		return err == nil
	})
	return failed
}

// changes are the names of the changes, as in Salt.
var changes = []struct {
	op   fsnotify.Op
	name string
}{
	{fsnotify.Create, "IN_CREATE"}, {fsnotify.Remove, "IN_DELETE"}, {fsnotify.Write, "IN_MODIFY"}, {fsnotify.Rename, "IN_MOVED_FROM"}, {fsnotify.Chmod, "IN_ATTRIB"},
}

func (f *files) event(e fsnotify.Event) (Event, bool) {
	watched := e.Name
	mask, ok := f.rules[watched]
	if !ok {
		watched = filepath.Dir(e.Name)
		mask = f.rules[watched]
	}
	if e.Has(fsnotify.Remove | fsnotify.Rename) {
		if _, itself := f.rules[e.Name]; itself && !slices.Contains(f.missing, e.Name) {
			f.missing = append(f.missing, e.Name) // an editor replaces the file
		}
	}
	for _, c := range changes {
		if e.Has(c.op) && mask.Has(c.op) {
			return Event{Tag: watched, Data: map[string]any{"path": e.Name, "change": c.name, "tag": watched}}, true
		}
	}
	return Event{}, false
}

// services watches whether services run.
type services struct {
	rules map[string]serviceRule
	was   map[string]bool
	limit time.Duration // for one service
}

type serviceRule struct{ onChange, atStart bool }

func newServices(s *settings) (Probe, error) {
	p := &services{map[string]serviceRule{}, map[string]bool{}, lookTime}
	for name, v := range s.table("services") {
		if err := salt.CheckService(name); err != nil {
			return nil, fmt.Errorf("services: %w", err)
		}
		rule, ok := v.(map[string]any)
		if v != nil && !ok {
			return nil, fmt.Errorf("services: %s: %v is not a dictionary", name, v)
		}
		one := &settings{rest: maps.Clone(rule)}
		if one.rest == nil {
			one.rest = map[string]any{}
		}
		p.rules[name] = serviceRule{onChange: one.truth("onchangeonly", false), atStart: one.truth("emitatstartup", true)}
		one.ignore("delay")
		if err := one.done(); err != nil {
			return nil, fmt.Errorf("services: %s: %w", name, err)
		}
	}
	return p, nil
}

// Look implements Probe.
func (p *services) Look(ctx context.Context, _ time.Time) ([]Event, error) {
	var events []Event
	var failed error
	for _, name := range slices.Sorted(maps.Keys(p.rules)) {
		running, err := isRunning(ctx, name, p.limit)
		if err != nil {
			failed = errors.Join(failed, err)
			if ctx.Err() != nil {
				break // with the events of those before it, whose change is recorded
			}
			continue // one that hangs does not hide the others
		}
		was, seen := p.was[name]
		p.was[name] = running
		rule := p.rules[name]
		if seen && rule.onChange && was == running || !seen && !rule.atStart {
			continue
		}
		events = append(events, Event{Tag: name, Data: map[string]any{"service_name": name, "tag": name, name: map[string]any{"running": running}}})
	}
	return events, failed
}

func isRunning(ctx context.Context, name string, limit time.Duration) (bool, error) {
	args := []string{"systemctl", "--quiet", "is-active", "--", name}
	if _, err := exec.LookPath("systemctl"); err != nil {
		args = []string{"service", name, "status"}
	}
	p := process.Program{Args: args, Env: process.Environ(true), Timeout: limit}
	e, err := p.Run(ctx)
	if err == nil && e.TimedOut {
		err = fmt.Errorf("%s does not tell within %v whether %s runs", args[0], limit, name)
	}
	return err == nil && e.Code == 0, err
}

// lookTime limits the run time of programs that a beacon starts.
const lookTime = 30 * time.Second

// certificates watches when certificates expire.
type certificates struct {
	files []string
	days  float64
}

func newCertificates(s *settings) (Probe, error) {
	c := certificates{days: 45} // as in Salt
	if v := s.take("notify_days"); v != nil {
		n, ok := number(v)
		if !ok {
			return nil, fmt.Errorf("notify_days is %v: a number of days is wanted, -1 for always", v)
		}
		c.days = n
	}
	c.files = s.words("files")
	if len(c.files) == 0 {
		return nil, errors.New("which files are meant: files: [/etc/ssl/certs/mine.pem]")
	}
	return c, nil
}

// Look implements Probe.
func (c certificates) Look(_ context.Context, now time.Time) ([]Event, error) {
	list := []any{}
	for _, file := range c.files {
		cert, err := readCertificate(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if left := cert.NotAfter.Sub(now).Hours() / 24; c.days >= 0 && left > c.days {
			continue
		}
		list = append(list, map[string]any{
			"cert_path": file, "issuer": cert.Issuer.String(), "subject": cert.Subject.String(), "serial_number": cert.SerialNumber.String(),
			"notBefore": cert.NotBefore.UTC().Format(time.RFC3339), "notAfter": cert.NotAfter.UTC().Format(time.RFC3339),
			"has_expired": now.After(cert.NotAfter), "signature_algorithm": cert.SignatureAlgorithm.String(),
		})
	}
	if len(list) == 0 {
		return nil, nil
	}
	return []Event{{Data: map[string]any{"certificates": list}}}, nil
}

func readCertificate(path string) (*x509.Certificate, error) {
	f, _, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCertificate+1))
	if err == nil && len(b) > maxCertificate {
		err = fmt.Errorf("it is larger than %d MiB", maxCertificate>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if block, _ := pem.Decode(b); block != nil {
		b = block.Bytes
	}
	cert, err := x509.ParseCertificate(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cert, nil
}

// program runs a custom program: each line that it prints is a JSON object, the data of an event
// whose tag ends with its "tag".
type program struct{ args []string }

func newProgram(s *settings) (Probe, error) {
	p := &program{s.words("command")}
	if len(p.args) == 0 || !filepath.IsAbs(p.args[0]) {
		return nil, errors.New("command is wanted: the absolute path of a program, and its arguments, as a list")
	}
	return p, nil
}

// Look implements Probe.
func (p *program) Look(ctx context.Context, _ time.Time) ([]Event, error) {
	run := process.Program{Args: p.args, Env: process.Environ(true), Timeout: lookTime}
	e, err := run.Run(ctx)
	switch {
	case err != nil:
		return nil, err
	case e.TimedOut:
		return nil, fmt.Errorf("%s: no end within %v", p.args[0], lookTime)
	case e.Code != 0:
		return nil, e.Failure(p.args[0])
	}
	var events []Event
	for line := range bytes.Lines([]byte(e.Stdout)) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var data map[string]any
		if err := json.Unmarshal(line, &data); err != nil {
			return events, fmt.Errorf("%s: a line is not a JSON object: %w", p.args[0], err)
		}
		if data == nil { // of null, which some programs print for nothing
			return events, fmt.Errorf("%s: a line is not a JSON object: it is null", p.args[0])
		}
		tag, _ := data["tag"].(string)
		delete(data, "tag")
		events = append(events, Event{Tag: tag, Data: data})
	}
	return events, nil
}
