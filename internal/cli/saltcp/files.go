package saltcp

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/salt"
)

// item is a file, or an empty directory, and its destination.
type item struct {
	source string
	dest   string
	name   string // name in dest if that is a directory on the minion; "" if dest is the full path
	dir    bool
	mode   fs.FileMode
	keep   bool // keep the mode of the file, and create missing directories
}

// list returns everything to copy. With tree, a directory is copied with everything below it; links
// in it are followed to files but not to directories, which could lead anywhere.
func list(sources []string, dest string, tree bool) ([]item, error) {
	var items []item
	into := len(sources) > 1 || strings.HasSuffix(dest, "/")
	for _, source := range sources {
		info, err := os.Stat(source)
		if err != nil {
			return nil, cli.Fail(cli.Usage, err)
		}
		base := filepath.Base(absolute(source))
		switch {
		case info.IsDir() && !tree:
			return nil, cli.Fail(cli.Usage, salt.WithHint(fmt.Errorf("%s is a directory, only files are supported in non-chunked mode", source), "-C copies directories"))
		case info.IsDir():
			below, err := walk(source, path.Join(dest, base))
			if err != nil {
				return nil, err
			}
			items = append(items, below...)
		case !info.Mode().IsRegular():
			return nil, cli.Usagef("%s is not a regular file", source)
		case into:
			items = append(items, item{source: source, dest: path.Join(dest, base), mode: info.Mode().Perm(), keep: tree})
		default:
			items = append(items, item{source: source, dest: path.Clean(dest), name: base, mode: info.Mode().Perm(), keep: tree})
		}
	}
	seen := map[string]string{}
	for _, it := range items {
		if other, twice := seen[it.dest]; twice {
			return nil, cli.Usagef("%s and %s would both be %s", other, it.source, it.dest)
		}
		seen[it.dest] = it.source
	}
	return items, nil
}

// absolute returns the absolute path of name, or name if the working directory is unknown.
func absolute(name string) string {
	if whole, err := filepath.Abs(name); err == nil {
		return whole
	}
	return name
}

func walk(dir, dest string) ([]item, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return []item{{source: dir, dest: dest, dir: true}}, nil
	}
	var items []item
	for _, e := range entries {
		source, to := filepath.Join(dir, e.Name()), path.Join(dest, e.Name())
		info, err := os.Stat(source)
		switch {
		case err != nil:
			return nil, err
		case e.IsDir():
			below, err := walk(source, to)
			if err != nil {
				return nil, err
			}
			items = append(items, below...)
		case info.Mode().IsRegular():
			items = append(items, item{source: source, dest: to, mode: info.Mode().Perm(), keep: true})
		default:
			return nil, salt.WithHint(cli.Usagef("%s is neither a file nor a directory", source), "links below a directory are followed to files only; nothing was copied")
		}
	}
	return items, nil
}
