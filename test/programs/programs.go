// Package programs has the programs of this project for the tests that run them.
package programs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Built is the environment variable that names a directory with all programs, as they are released. With it
// no test has to build them: to link them takes longer than many tests that run them.
const Built = "BRINE_PROGRAMS"

// Tags are the build tags of released programs.
const Tags = "urfave_cli_no_docs"

// Put puts the programs with these names into dir, all if there are none, and lets every user run them. It
// takes those that Built names, and builds them otherwise.
func Put(dir string, names ...string) error {
	from := os.Getenv(Built)
	if from == "" {
		return build(dir, nil, names)
	}
	if len(names) == 0 {
		all, err := os.ReadDir(from)
		if err != nil {
			return err
		}
		for _, e := range all {
			names = append(names, e.Name())
		}
	}
	errs := []error{os.Chmod(dir, 0o755)}
	for _, n := range names {
		errs = append(errs, put(filepath.Join(from, n), filepath.Join(dir, n)))
	}
	return errors.Join(errs...)
}

// PutRaced is Put for programs with the race detector, which are always built.
func PutRaced(dir string, names ...string) error { return build(dir, []string{"-race"}, names) }

func build(dir string, flags, names []string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	const all = "github.com/brinebus/brine/cmd/"
	args := append([]string{"build", "-tags", Tags, "-o", dir + "/"}, flags...)
	for _, n := range names {
		args = append(args, all+n)
	}
	if len(names) == 0 {
		args = append(args, all+"...")
	}
	c := exec.Command("go", args...)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// put makes a file another name of a program, or a copy on another disk.
func put(from, to string) error {
	if os.Link(from, to) == nil {
		return os.Chmod(to, 0o755)
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), os.Chmod(to, 0o755))
}
