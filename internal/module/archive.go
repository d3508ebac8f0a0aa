package module

import (
	"archive/tar"
	"archive/zip"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/target/fnmatch"
)

// archiveModule packs and unpacks files.
var archiveModule = &function.Module{
	Name: "archive",
	Doc:  "Functions that pack and unpack files. zip, unzip, gzip, gunzip and list need no program; tar is that of the system. Nothing is unpacked outside of its directory.",
	Functions: []function.Function{
		{
			Name: "gunzip", Doc: "Replace a gzip file by its unpacked content and return the name of that.", Example: `salt '*' archive.gunzip /tmp/sourcefile.txt.gz`, Params: []function.Param{{Name: "gzipfile", Kind: function.Path, Required: true}}, Run: archiveGunzip,
		},
		{
			Name: "gzip", Doc: "Replace a file by a gzip file and return the name of that.", Example: `salt '*' archive.gzip /tmp/sourcefile.txt`, Params: []function.Param{{Name: "sourcefile", Kind: function.Path, Required: true}}, Run: archiveGzip,
		},
		{
			Name: "is_encrypted", Doc: "Return whether a zip file needs a password.", Example: `salt '*' archive.is_encrypted /path/to/myfile.zip`, Params: []function.Param{{Name: "name", Kind: function.String, Required: true}, saltenv},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				z, err := openZip(ctx, c, c.String("name"))
				if err != nil {
					return nil, err
				}
				defer z.Close()
				return slices.ContainsFunc(z.File, func(f *zip.File) bool { return f.Flags&1 != 0 }), nil
			},
		},
		{
			Name: "list", Doc: "Return the names in a zip file or a tar file (plain, gzip, bzip2); with verbose, directories, files and links in lists of their own. The archive is on the minion, the master (salt://) or the web.",
			Example: "salt '*' archive.list /path/to/myfile.tar.gz\nsalt '*' archive.list salt://foo.zip verbose=True",
			Params:  []function.Param{{Name: "name", Kind: function.String, Required: true}, {Name: "archive_format", Kind: function.String}, {Name: "verbose", Kind: function.Bool, Default: false}, saltenv}, Run: archiveList,
		},
		{
			Name: "tar", Doc: "Run tar with these options on an archive, and return the names that it prints. Sources are packed; dest is the directory for unpacked files.",
			Example: "salt '*' archive.tar czf /tmp/tarfile.tar.gz /tmp/file_1,/tmp/file_2\nsalt '*' archive.tar xf foo.tar dest=/target/directory",
			Params: []function.Param{{Name: "options", Kind: function.String, Required: true}, {Name: "tarfile", Kind: function.String, Required: true}, {Name: "sources", Kind: function.Words}, {Name: "dest", Kind: function.Path},
				{Name: "cwd", Kind: function.Path}, {Name: "runas", Kind: function.String}},
			Run: archiveTar,
		},
		{
			Name: "unzip", Doc: "Unpack a zip file to a directory and return the names. Files that match one of the excludes are left out.", Example: `salt '*' archive.unzip /tmp/zipfile.zip /home/strongbad/ excludes=file_1,file_2`,
			Params: []function.Param{{Name: "zip_file", Kind: function.String, Required: true}, {Name: "dest", Kind: function.Path, Required: true}, {Name: "excludes", Kind: function.Words}, saltenv}, Run: archiveUnzip,
		},
		{
			Name: "zip", Doc: "Pack files and directories into a zip file and return the names. Paths are relative to cwd.", Example: `salt '*' archive.zip /tmp/zipfile.zip /tmp/sourcefile1,/tmp/sourcefile2`,
			Params: []function.Param{{Name: "zip_file", Kind: function.Path, Required: true}, {Name: "sources", Kind: function.Words, Required: true}, {Name: "cwd", Kind: function.Path}}, Run: archiveZip,
		},
	},
}

func archiveTar(ctx context.Context, c *function.Call) (any, error) {
	if which("tar") == nil {
		return nil, function.Unavailable("program tar")
	}
	args := []string{"tar", "-" + strings.TrimLeft(c.String("options"), "-"), c.String("tarfile")}
	if strings.HasPrefix(c.String("tarfile"), "-") || strings.ContainsAny(c.String("options"), " \t\n") {
		return nil, function.Invalid("options are letters such as czf, and an archive does not begin with a hyphen")
	}
	if c.Has("dest") {
		args = append(args, "-C", c.String("dest"))
	}
	p := process.Program{Args: append(append(args, "--"), c.Words("sources")...), Dir: c.String("cwd"), Env: process.Environ(true), Timeout: toolTimeout}
	if c.Has("runas") {
		id, err := findIdentity(ctx, c.String("runas"), "")
		if err != nil {
			return nil, err
		}
		p.Credential, p.Env = id.credential(), id.environ()
	}
	e, err := p.Run(ctx)
	if err != nil {
		return nil, err
	}
	if e.Code != 0 {
		return nil, e.Failure("tar")
	}
	return lineList(e.Stdout), nil
}

func lineList(text string) []string {
	lines := []string{}
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimRight(line, "\r\n"))
	}
	return lines
}

// replaceFile creates the file to with the content that convert makes of from, with the same mode
// and owner, and removes from.
func replaceFile(from, to string, convert func(w io.Writer, r io.Reader) error) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	if err := errors.Join(convert(out, in), keepOwner(to, info), out.Close()); err != nil {
		return errors.Join(err, os.Remove(to))
	}
	return os.Remove(from)
}

func archiveGzip(ctx context.Context, c *function.Call) (any, error) {
	to := c.String("sourcefile") + ".gz"
	return to, replaceFile(c.String("sourcefile"), to, func(w io.Writer, r io.Reader) error {
		z := gzip.NewWriter(w)
		_, err := io.Copy(z, untilDone{ctx, r})
		return errors.Join(err, z.Close())
	})
}

func archiveGunzip(ctx context.Context, c *function.Call) (any, error) {
	to, ok := strings.CutSuffix(c.String("gzipfile"), ".gz")
	if !ok {
		return nil, function.Invalid("the name %q does not end with .gz", c.String("gzipfile"))
	}
	return to, replaceFile(c.String("gzipfile"), to, func(w io.Writer, r io.Reader) error {
		z, err := gzip.NewReader(r)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, untilDone{ctx, z})
		return err
	})
}

// packed is one name in an archive.
type packed struct {
	name string
	mode fs.FileMode
}

func archiveList(ctx context.Context, c *function.Call) (any, error) {
	place, err := fetchSource(ctx, c, c.String("name"), c.String("saltenv"))
	if err != nil {
		return nil, err
	}
	list, err := listZip(place)
	if c.String("archive_format") == "tar" || errors.Is(err, zip.ErrFormat) && c.String("archive_format") != "zip" {
		list, err = listTar(ctx, place)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b packed) int { return strings.Compare(a.name, b.name) })
	names, dirs, files, links := []string{}, []string{}, []string{}, []string{}
	for _, p := range list {
		names = append(names, p.name)
		switch {
		case p.mode.IsDir():
			dirs = append(dirs, p.name)
		case p.mode&fs.ModeSymlink != 0:
			links = append(links, p.name)
		default:
			files = append(files, p.name)
		}
	}
	if !c.Bool("verbose") {
		return names, nil
	}
	return map[string]any{"dirs": dirs, "files": files, "links": links}, nil
}

func listZip(place string) ([]packed, error) {
	z, err := zip.OpenReader(place)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	var list []packed
	for _, f := range z.File {
		list = append(list, packed{f.Name, f.Mode()})
	}
	return list, nil
}

func listTar(ctx context.Context, place string) ([]packed, error) {
	f, err := os.Open(place)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := decompressed(f)
	if err != nil {
		return nil, err
	}
	var list []packed
	for t := tar.NewReader(untilDone{ctx, r}); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", place, err)
		}
		list = append(list, packed{h.Name, h.FileInfo().Mode()})
	}
}

// decompressed decompresses a file that begins like gzip or bzip2.
func decompressed(f *os.File) (io.Reader, error) {
	magic := make([]byte, 3)
	if _, err := io.ReadFull(f, magic); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	switch {
	case magic[0] == 0x1f && magic[1] == 0x8b:
		return gzip.NewReader(f)
	case string(magic) == "BZh":
		return bzip2.NewReader(f), nil
	}
	return f, nil
}

// openZip opens a zip file on the minion, the master or a web server.
func openZip(ctx context.Context, c *function.Call, source string) (*zip.ReadCloser, error) {
	path, err := fetchSource(ctx, c, source, c.String("saltenv"))
	if err != nil {
		return nil, err
	}
	return zip.OpenReader(path)
}

func archiveUnzip(ctx context.Context, c *function.Call) (any, error) {
	z, err := openZip(ctx, c, c.String("zip_file"))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	if err := os.MkdirAll(c.String("dest"), 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(c.String("dest"))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	names := []string{}
	for _, f := range z.File {
		if slices.ContainsFunc(c.Words("excludes"), func(pattern string) bool { return fnmatch.Match(pattern, f.Name) }) {
			continue
		}
		if err := unpack(ctx, root, f); err != nil {
			return names, fmt.Errorf("unpack %q: %w", f.Name, err)
		}
		names = append(names, f.Name)
	}
	return names, nil
}

// unpack writes one entry below root. os.Root refuses paths that lead out of it.
func unpack(ctx context.Context, root *os.Root, f *zip.File) error {
	name := strings.TrimSuffix(f.Name, "/")
	if !filepath.IsLocal(name) || strings.Contains(name, `\`) {
		return errors.New("the name leads out of the directory")
	}
	if f.Mode().IsDir() {
		return root.MkdirAll(name, 0o755)
	}
	if !f.Mode().IsRegular() {
		return errors.New("it is not a regular file")
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, f.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, untilDone{ctx, in})
	return errors.Join(err, out.Close())
}

func archiveZip(ctx context.Context, c *function.Call) (_ any, err error) {
	out, err := os.Create(c.String("zip_file"))
	if err != nil {
		return nil, err
	}
	z := zip.NewWriter(out)
	names := []string{}
	for _, source := range c.Words("sources") {
		if !filepath.IsAbs(source) {
			source = filepath.Join(c.String("cwd"), source)
		}
		if !filepath.IsAbs(source) {
			err = function.Invalid("the source %q is relative, and there is no cwd", source)
			break
		}
		base := filepath.Dir(source)
		if c.Has("cwd") {
			base = c.String("cwd")
		}
		if err = packTree(ctx, z, base, source, &names); err != nil {
			break
		}
	}
	if err = errors.Join(err, z.Close(), out.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(c.String("zip_file")))
	}
	return names, nil
}

// packTree packs a file, or everything below a directory. Links are skipped.
func packTree(ctx context.Context, z *zip.Writer, base, source string, names *[]string) error {
	return filepath.WalkDir(source, func(place string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(base, place)
		if err != nil || !filepath.IsLocal(name) {
			name = strings.TrimPrefix(place, "/")
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		h, err := zip.FileInfoHeader(info)
		if err != nil {
			return err
		}
		h.Name, h.Method = name, zip.Deflate
		w, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		in, err := os.Open(place)
		if err != nil {
			return err
		}
		defer in.Close()
		*names = append(*names, name)
		_, err = io.Copy(w, untilDone{ctx, in})
		return err
	})
}
