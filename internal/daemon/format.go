package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/salt"
)

// Format is the format version of the data in a daemon's cachedir: journal, outbox, and the like.
// It increases with a change that an older program would misread or drop; a program reads all older
// formats.
const Format = 1

// ErrNewer is wrapped if the data in a directory was, or may have been, written by a newer program.
var ErrNewer = errors.New("the data is of a newer version")

// formatFile contains the format version, and for people the version of the program that wrote it.
// A directory without it is older than the first format version.
const formatFile = ".format"

// checkFormat refuses a directory that was written by a newer program, before anything in it is
// opened or changed. version is that of this program.
func checkFormat(dir, version string) error {
	path := filepath.Join(dir, formatFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var number int
	var writer string
	if _, err := fmt.Sscan(string(text), &number, &writer); err != nil || number < 1 {
		return salt.WithHint(fmt.Errorf("%w: %s does not say of which; nothing was touched", ErrNewer, path),
			fmt.Sprintf("if this program wrote all that is in %s, remove the file", dir))
	}
	if number <= Format {
		return nil
	}
	return salt.WithHint(fmt.Errorf("%w: %s was written by version %s in format %d; this is version %s, which reads up to format %d; nothing was touched", ErrNewer, dir, writer, number, version, Format),
		fmt.Sprintf("start version %s or a later one, or give this one a cachedir of its own", writer))
}

// markFormat records that this program writes the directory, which it has locked and checked.
func markFormat(dir, version string) error {
	path, line := filepath.Join(dir, formatFile), fmt.Sprintf("%d %s\n", Format, version)
	if text, err := os.ReadFile(path); err == nil && string(text) == line {
		return nil
	}
	return atomicfile.Write(path, []byte(line), 0o600)
}

// Open locks the data directory of a daemon, as Lock does, unless a newer version has written it.
func Open(dir, version string) (release func(), err error) {
	if err := checkFormat(dir, version); err != nil {
		return nil, err
	}
	if release, err = Lock(dir); err != nil {
		return nil, err
	}
	// Another program may have used the directory in between.
	if err = checkFormat(dir, version); err == nil {
		err = markFormat(dir, version)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}
