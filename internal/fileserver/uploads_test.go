package fileserver

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

// whole is a file in one piece.
func whole(path, text string) Piece {
	return Piece{Path: path, Upload: "u", Data: []byte(text), SHA256: sum(text)}
}

func TestPut(t *testing.T) {
	dir := t.TempDir()
	d := NewUploads(dir, 100)
	for _, p := range []Piece{
		{Path: "etc/fstab", Upload: "a", Data: []byte("one ")},
		{Path: "etc/fstab", Upload: "a", Offset: 4, Data: []byte("two "), SHA256: ""},
		{Path: "etc/fstab", Upload: "a", Offset: 8, Data: []byte("three"), SHA256: sum("one two three")},
		whole("empty", ""),
		whole("a b/ü", "x"),
		whole("a b/ü", "replaced"),
	} {
		if err := d.Put(t.Context(), "web1", p); err != nil {
			t.Fatalf("%+v: %v", p, err)
		}
	}
	for name, want := range map[string]string{"etc/fstab": "one two three", "empty": "", "a b/ü": "replaced"} {
		place := filepath.Join(dir, "web1", "files", name)
		b, err := os.ReadFile(place)
		if err != nil || string(b) != want {
			t.Errorf("%s is %q, %v; want %q", name, b, err, want)
		}
		if info, err := os.Stat(place); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want 0600", name, info, err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "web1", "parts")); err != nil || len(left) != 0 {
		t.Errorf("left unfinished: %v, %v", left, err)
	}
}

// A minion in the wrong hands reaches nothing outside of its own directory.
func TestUploadsWriteNothingOutside(t *testing.T) {
	dir := t.TempDir()
	d := NewUploads(filepath.Join(dir, "minions"), 100)
	for _, path := range []string{
		"", ".", "..", "/", "/etc/passwd", "../web2/files/x", "../../../x", "a/../../x", "a/..", "./a", "a//b", "a/", `a\b`, "a\nb", "a\x00b", "\xff", strings.Repeat("x", 2000),
		strings.Repeat("x", 256), strings.Repeat("ü", 128), strings.Repeat("x", 256) + "/x", "x/" + strings.Repeat("x", 256) + "/x",
	} {
		if err := d.Put(t.Context(), "web1", whole(path, "evil")); !errors.Is(err, ErrPath) {
			t.Errorf("path %q: %v, want %v", path, err, ErrPath)
		}
	}
	for _, upload := range []string{"", ".", "..", "../files/x", "a/b", "a\x00", strings.Repeat("x", 65)} {
		p := whole("x", "evil")
		p.Upload = upload
		if err := d.Put(t.Context(), "web1", p); !errors.Is(err, ErrOrder) {
			t.Errorf("upload %q: %v, want %v", upload, err, ErrOrder)
		}
	}
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, _ error) error {
		if !e.IsDir() {
			t.Errorf("%s was written", path)
		}
		return nil
	})
}

// Whatever links somebody else has put there: what is written stays within.
func TestLinksLeadNowhere(t *testing.T) {
	dir := t.TempDir()
	d := NewUploads(filepath.Join(dir, "minions"), 100)
	if err := d.Put(t.Context(), "web1", whole("first", "x")); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(dir, "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(outside, "victim")
	if err := os.WriteFile(victim, []byte("untouched"), 0o644); err != nil {
		t.Fatal(err)
	}
	files := filepath.Join(dir, "minions", "web1", "files")
	for name, to := range map[string]string{"dir": outside, "file": victim, "up": "../../../outside"} {
		if err := os.Symlink(to, filepath.Join(files, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"dir/victim", "up/victim", "dir/new", "up/new"} {
		if err := d.Put(t.Context(), "web1", whole(path, "evil")); err == nil {
			t.Errorf("%s was taken", path)
		}
	}
	if err := d.Put(t.Context(), "web1", whole("file", "mine")); err != nil { // it replaces the link
		t.Error(err)
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "untouched" {
		t.Errorf("the victim is %q, %v", b, err)
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) != 1 {
		t.Errorf("outside there are %v, %v", list, err)
	}
}

func TestPiecesThatDoNotFit(t *testing.T) {
	dir := t.TempDir()
	d := NewUploads(dir, 10)
	put := func(offset int64, text, sum string) error {
		return d.Put(t.Context(), "web1", Piece{Path: "x", Upload: "u", Offset: offset, Data: []byte(text), SHA256: sum})
	}
	steps := []struct {
		name string
		err  error
		want error
	}{
		{"without a beginning", put(5, "x", ""), ErrOrder},
		{"negative", put(-1, "x", ""), ErrOrder},
		{"the beginning", put(0, "12345", ""), nil},
		{"the beginning again", put(0, "12345", ""), nil},
		{"a gap", put(6, "x", ""), ErrOrder},
		{"what was cut off", put(5, "x", ""), ErrOrder},
		{"too large at once", put(0, "12345678901", ""), ErrTooLarge},
		{"the beginning", put(0, "12345", ""), nil},
		{"too large in the end", put(5, "678901", ""), ErrTooLarge},
		{"another content", put(0, "12345", sum("54321")), ErrSum},
	}
	for _, s := range steps {
		if !errors.Is(s.err, s.want) || (s.err == nil) != (s.want == nil) {
			t.Errorf("%s: %v, want %v", s.name, s.err, s.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "web1", "files", "x")); err == nil {
		t.Error("a file that did not come whole is there")
	}
}

func TestRoom(t *testing.T) {
	dir := t.TempDir()
	d := NewUploads(dir, 10)
	for i := range maxTimes + 1 {
		if err := d.Put(t.Context(), "web1", whole(fmt.Sprint("file", i), "1234567890")); err != nil {
			t.Fatalf("file %d: %v", i, err)
		}
	}
	if err := d.Put(t.Context(), "web1", whole("more", "x")); !errors.Is(err, ErrFull) {
		t.Errorf("more bytes: %v", err)
	}
	if err := d.Put(t.Context(), "web2", whole("more", "x")); err != nil {
		t.Errorf("another minion: %v", err)
	}
	for i := range maxUploads - 1 {
		if err := os.WriteFile(filepath.Join(dir, "web2", "files", fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Put(t.Context(), "web2", whole("one more", "")); !errors.Is(err, ErrFull) {
		t.Errorf("more files: %v", err)
	}
}

func TestUploadsThatAreNotFinished(t *testing.T) {
	dir := t.TempDir()
	d := NewUploads(dir, 10)
	begin := func(id salt.MinionID, i int) error {
		return d.Put(t.Context(), id, Piece{Path: "x", Upload: fmt.Sprint("u", i), Data: []byte("x")})
	}
	for i := range maxParts {
		if err := begin("web1", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := begin("web1", maxParts); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
	if err := begin("web2", maxParts); err != nil {
		t.Errorf("another minion: %v", err)
	}
	old := time.Now().Add(-2 * partAge)
	if err := os.Chtimes(filepath.Join(dir, "web1", "parts", "u1"), old, old); err != nil {
		t.Fatal(err)
	}
	if err := begin("web1", maxParts); err != nil {
		t.Errorf("when one is given up: %v", err)
	}
}

func FuzzPut(f *testing.F) {
	for _, path := range []string{"etc/fstab", "../x", "/x", "a/../b", "a\\b", ""} {
		f.Add(path, "u")
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, path, upload string) {
		d := NewUploads(filepath.Join(dir, "in"), 1000)
		err := d.Put(t.Context(), "web1", Piece{Path: path, Upload: upload, Data: []byte("x"), SHA256: sum("x")})
		list, readErr := os.ReadDir(dir)
		if readErr != nil || len(list) > 1 || len(list) == 1 && list[0].Name() != "in" {
			t.Fatalf("path %q, upload %q: %v is outside, %v", path, upload, list, readErr)
		}
		if err == nil {
			if _, err := os.ReadFile(filepath.Join(dir, "in", "web1", "files", path)); err != nil {
				t.Fatalf("path %q was taken and is not there: %v", path, err)
			}
			os.RemoveAll(filepath.Join(dir, "in"))
		}
	})
}

// TestDirectoriesAreBounded: one file can make hundreds of directories, and one that is refused makes none.
func TestDirectoriesAreBounded(t *testing.T) {
	dir := t.TempDir()
	d := NewUploads(dir, 100)
	refused := false
	for i := range 10 {
		name := fmt.Sprintf("d%d/", i) + strings.Repeat("x/", 300) + "y"
		if err := d.Put(t.Context(), "web1", whole(name+strings.Repeat("y", 255), "x")); !errors.Is(err, ErrPath) {
			t.Fatalf("%d: a name of 256 bytes: %v", i, err)
		}
		err := d.Put(t.Context(), "web1", whole(name, "x"))
		if refused = refused || errors.Is(err, ErrFull); err != nil && !refused {
			t.Fatal(err)
		}
	}
	made := 0
	err := filepath.WalkDir(filepath.Join(dir, "web1"), func(_ string, e fs.DirEntry, err error) error {
		made++
		return err
	})
	if err != nil || made > 2*maxDirs || !refused {
		t.Errorf("%d directories are there, %v; refused at last: %t", made, err, refused)
	}
	if err := d.Put(t.Context(), "web2", whole("a", "x")); err != nil {
		t.Errorf("another minion: %v", err)
	}
	left := 0
	err = filepath.WalkDir(filepath.Join(dir, "web1", "files"), func(_ string, e fs.DirEntry, err error) error {
		if !e.IsDir() {
			left++
		}
		return err
	})
	if err != nil || made < left*300 || made > left*310+10 {
		t.Errorf("%d files have %d directories, %v", left, made, err)
	}
}

// TestABusyMinionDelaysNobody: who places the files of all minions does not wait for an upload.
func TestABusyMinionDelaysNobody(t *testing.T) {
	d := NewUploads(t.TempDir(), 100)
	fetch := func(w io.Writer) error {
		_, err := io.WriteString(w, "x")
		return err
	}
	place := func(id salt.MinionID) error { return d.Place(id, Upload{Path: "a", Size: 1, SHA256: sum("x")}, fetch) }
	unlock := d.lock("web1") // as during an upload
	if err := place("web1"); !errors.Is(err, ErrBusy) {
		t.Errorf("a file of the busy one: %v", err)
	}
	if err := d.Withdraw("web1", "a"); !errors.Is(err, ErrBusy) {
		t.Errorf("the removal of one: %v", err)
	}
	if err := place("web2"); err != nil {
		t.Errorf("a file of another one: %v", err)
	}
	waits := make(chan func())
	go func() { waits <- d.lock("web1") }()
	unlock()
	unlock = <-waits // also if it came only now
	if err := place("web1"); !errors.Is(err, ErrBusy) {
		t.Errorf("while the next one uploads: %v", err)
	}
	unlock()
	if err := place("web1"); err != nil {
		t.Errorf("when it has ended: %v", err)
	}
	if len(d.busy) > 0 {
		t.Errorf("%d minions count as busy for ever", len(d.busy))
	}
}

// TestTheLongestNamesAreTaken: what is refused is only what no usual file system takes.
func TestTheLongestNamesAreTaken(t *testing.T) {
	dir := t.TempDir()
	d := NewUploads(dir, 100)
	long := strings.Repeat("x", 255)
	name := long + "/" + long + "/" + long
	if err := d.Put(t.Context(), "web1", whole(name, "x")); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "web1", "files", name)); err != nil || string(text) != "x" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestWhatCannotBePlacedIsNotFetched: the reason is found before the content of another master is fetched, and
// the file that is in the way stays.
func TestWhatCannotBePlacedIsNotFetched(t *testing.T) {
	dir := t.TempDir()
	d := NewUploads(dir, 100)
	for _, name := range []string{"file", "dir/file"} {
		if err := d.Put(t.Context(), "web1", whole(name, "kept")); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"file/x", "file/x/y", "dir", strings.Repeat("x", 256)} {
		fetched := false
		err := d.Place("web1", Upload{Path: name, Size: 1, SHA256: sum("x")}, func(io.Writer) error {
			fetched = true
			return nil
		})
		if err == nil || fetched {
			t.Errorf("%.20s: %v, fetched: %t", name, err, fetched)
		}
	}
	for _, name := range []string{"file/x", "file/x/y", "dir", "file/" + strings.Repeat("x", 255)} { // none of them is there
		if err := d.Withdraw("web1", name); err != nil {
			t.Errorf("the removal of %.20s: %v", name, err)
		}
	}
	for _, name := range []string{"file", "dir/file"} {
		if text, err := os.ReadFile(filepath.Join(dir, "web1", "files", name)); err != nil || string(text) != "kept" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}
