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

// Format is the number of the form of what a daemon keeps in its cachedir: journal,
// outbox, and the like. It rises with a change that an older program would misread or
// drop; a program reads the form of every older number.
const Format = 1

// ErrNewer is wrapped when the data of a folder is of a newer program, or may be.
var ErrNewer = errors.New("the data is of a newer version")

// formatFile holds the number, and the version that wrote it, for people. A folder
// without it is older than the numbers.
const formatFile = ".format"

// checkFormat refuses a folder that a newer program has written, before anything in it
// is opened: nothing of it is touched. version is that of this program.
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

// markFormat notes that this program writes the folder, which it has locked and checked.
func markFormat(dir, version string) error {
	path, line := filepath.Join(dir, formatFile), fmt.Sprintf("%d %s\n", Format, version)
	if text, err := os.ReadFile(path); err == nil && string(text) == line {
		return nil
	}
	return atomicfile.Write(path, []byte(line), 0o600)
}

// Open locks the folder of a daemon's data, as Lock does, unless it is of a newer
// version.
func Open(dir, version string) (release func(), err error) {
	if err := checkFormat(dir, version); err != nil {
		return nil, err
	}
	if release, err = Lock(dir); err != nil {
		return nil, err
	}
	// Another program may have had the folder in between.
	if err = checkFormat(dir, version); err == nil {
		err = markFormat(dir, version)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}
