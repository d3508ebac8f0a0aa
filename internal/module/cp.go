package module

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/target/fnmatch"
)

// The parameters that functions of cp share.
var (
	cpSource  = function.Param{Name: "path", Kind: function.String, Required: true}
	cpDest    = function.Param{Name: "dest", Kind: function.Path, Required: true}
	cpPrefix  = function.Param{Name: "prefix", Kind: function.String, Default: ""}
	cpUpload  = function.Param{Name: "upload_path", Kind: function.String, Default: ""}
	cpParents = function.Param{Name: "makedirs", Kind: function.Bool, Default: false}
)

// cpModule copies files from the master to the minion.
var cpModule = &function.Module{
	Name: "cp",
	Doc: "Functions that bring files of the master's file_roots, and of the web, to the minion, and files of the minion to the master. The copies are kept under the " +
		"minion's cachedir and checked by their SHA-256; only what has changed is sent. With file_client local, and with " +
		"salt-call --local, the files are those of the minion's own file_roots.",
	Functions: []function.Function{
		{
			Name:    "cache_dest",
			Doc:     "Return the path that the copy of a file has, or would have.",
			Example: `salt '*' cp.cache_dest salt://path/to/file`,
			Params:  []function.Param{cpSource, saltenv},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				files, name, env, err := ofServer(c, c.String("path"))
				if err != nil {
					return nil, err
				}
				place, _ := files.Cached(env, name)
				return place, nil
			},
		},
		{
			Name:    "cache_dir",
			Doc:     "Copy all files below a directory of the master and return the paths of the copies. include_pat and exclude_pat are shell patterns for whole paths.",
			Example: `salt '*' cp.cache_dir salt://path/to/dir include_pat='*.py'`,
			Params:  []function.Param{cpSource, saltenv, {Name: "include_pat", Kind: function.String}, {Name: "exclude_pat", Kind: function.String}},
			Run:     cpCacheDir,
		},
		{
			Name:    "cache_file",
			Doc:     "Copy a file of the master, or of the web, and return the path of the copy.",
			Example: "salt '*' cp.cache_file salt://path/to/file\nsalt '*' cp.cache_file 'salt://path/to/file?saltenv=dev'",
			Params:  []function.Param{cpSource, saltenv},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return fetchSource(ctx, c, c.String("path"), c.String("saltenv"))
			},
		},
		{
			Name:    "cache_files",
			Doc:     "Copy several files and return the paths of the copies.",
			Example: `salt '*' cp.cache_files salt://a,salt://b`,
			Params:  []function.Param{{Name: "paths", Kind: function.Words, Required: true}, saltenv},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				places := []string{}
				for _, address := range c.Words("paths") {
					place, err := fetchSource(ctx, c, address, c.String("saltenv"))
					if err != nil {
						return nil, err
					}
					places = append(places, place)
				}
				return places, nil
			},
		},
		{
			Name:    "cache_master",
			Doc:     "Copy all files of an environment and return the paths of the copies.",
			Example: `salt '*' cp.cache_master`,
			Params:  []function.Param{saltenv},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				files, err := fileServer(c.Host)
				if err != nil {
					return nil, err
				}
				return places(files.FetchAll(ctx, c.String("saltenv"), ""))
			},
		},
		{
			Name:    "envs",
			Doc:     "Return the environments of the file server.",
			Example: `salt '*' cp.envs`,
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				files, err := fileServer(c.Host)
				if err != nil {
					return nil, err
				}
				return files.Environments(ctx)
			},
		},
		{
			Name:    "get_dir",
			Doc:     "Copy a directory of the master, with its own name, into a directory of the minion and return the files that it has now.",
			Example: `salt '*' cp.get_dir salt://path/to/dir /minion/dest`,
			Params:  []function.Param{cpSource, cpDest, saltenv},
			Run:     cpGetDir,
		},
		{
			Name:    "get_file",
			Doc:     "Copy a file of the master to a path on the minion and return that path. An existing file keeps its mode.",
			Example: "salt '*' cp.get_file salt://path/to/file /minion/dest\nsalt '*' cp.get_file salt://path/to/file /new/dir/file makedirs=True",
			Params:  []function.Param{cpSource, cpDest, saltenv, cpParents},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				if _, _, ok := saltAddress(c.String("path"), ""); !ok {
					return nil, function.Invalid("%q is not an address that begins with salt://; cp.get_url takes others", c.String("path"))
				}
				return fetchTo(ctx, c, c.String("path"), c.String("dest"))
			},
		},
		{
			Name:    "get_file_str",
			Doc:     "Return the content of a file of the master, or of the web.",
			Example: `salt '*' cp.get_file_str salt://my/file`,
			Params:  []function.Param{cpSource, saltenv},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				place, err := fetchSource(ctx, c, c.String("path"), c.String("saltenv"))
				if err != nil {
					return nil, err
				}
				return readText(place)
			},
		},
		{
			Name: "get_template",
			Doc: "Render a file of the master as a template of Jinja, with the grains and the pillar of the minion and the names of context, to a path on the minion, and return that path. " +
				"An existing file keeps its mode.",
			Example: `salt '*' cp.get_template salt://nginx.conf /etc/nginx/nginx.conf`,
			Params:  []function.Param{cpSource, cpDest, {Name: "template", Kind: function.String, Default: "jinja"}, saltenv, cpParents, templateContext},
			Run:     cpGetTemplate,
		},
		{
			Name:    "get_url",
			Doc:     "Copy what an address (salt://, http://, https://, file://) names to a path on the minion, by default among its other copies, and return that path. With source_hash, such as sha256=..., it must have that digest.",
			Example: "salt '*' cp.get_url salt://my/file /tmp/mine\nsalt '*' cp.get_url https://www.example.com/index.html /tmp/index.html",
			Params:  []function.Param{cpSource, {Name: "dest", Kind: function.String, Default: ""}, saltenv, cpParents, {Name: "source_hash", Kind: function.String}},
			Run:     cpGetURL,
		},
		{
			Name:    "hash_file",
			Doc:     "Return the digest of a file, of the master or of the minion, and its kind.",
			Example: `salt '*' cp.hash_file salt://path/to/file`,
			Params:  []function.Param{cpSource, saltenv},
			Run:     cpHashFile,
		},
		{
			Name:    "is_cached",
			Doc:     "Return the path of the copy of a file, whether or not it is up to date; an empty text if there is none.",
			Example: `salt '*' cp.is_cached salt://path/to/file`,
			Params:  []function.Param{cpSource, saltenv},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				files, name, env, err := ofServer(c, c.String("path"))
				if err != nil {
					return nil, err
				}
				if place, ok := files.Cached(env, name); ok {
					return place, nil
				}
				return "", nil
			},
		},
		{
			Name:    "list_master",
			Doc:     "Return the files of the master's file server.",
			Example: "salt '*' cp.list_master\nsalt '*' cp.list_master dev prefix=web",
			Params:  []function.Param{saltenv, cpPrefix},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return listMaster(ctx, c, func(name string) []string { return []string{name} })
			},
		},
		{
			Name:    "list_master_dirs",
			Doc:     "Return the directories of the master's file server in which there are files.",
			Example: `salt '*' cp.list_master_dirs`,
			Params:  []function.Param{saltenv, cpPrefix},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return listMaster(ctx, c, func(name string) (dirs []string) {
					for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
						dirs = append(dirs, dir)
					}
					return dirs
				})
			},
		},
		{
			Name:    "list_minion",
			Doc:     "Return the files of which the minion has copies.",
			Example: `salt '*' cp.list_minion`,
			Params:  []function.Param{saltenv},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				files, err := fileServer(c.Host)
				if err != nil {
					return nil, err
				}
				list, err := files.Copies(ctx, c.String("saltenv"))
				return paths(list), err
			},
		},
		{
			Name: "push",
			Doc: "Upload a file to the master, which stores it below minions/ID/files of its cachedir, under its path here, without symbolic links, or under upload_path. " +
				"The master must have file_recv: True. With remove_source the file here is removed.",
			Example: `salt '*' cp.push /etc/fstab`,
			Params:  []function.Param{{Name: "path", Kind: function.Path, Required: true}, {Name: "keep_symlinks", Kind: function.Bool, Default: false}, cpUpload, {Name: "remove_source", Kind: function.Bool, Default: false}},
			Run:     cpPush,
		},
		{
			Name:    "push_dir",
			Doc:     "Upload the files below a directory to the master, as cp.push does; with glob, those whose names match.",
			Example: `salt '*' cp.push_dir /etc/modprobe.d/ glob='*.conf'`,
			Params:  []function.Param{{Name: "path", Kind: function.Path, Required: true}, {Name: "glob", Kind: function.String, Default: ""}, cpUpload},
			Run:     cpPushDir,
		},
		{
			Name: "recv_chunked",
			Doc: "Store a chunk of a file that salt-cp sends, and return True. With the last chunk, which brings the sha256 digest of the whole file, move the file to dest, or into the directory dest under its own name, " +
				"and return its path. Without a chunk, make the directory dest. Events and job lists do not show the chunk.",
			Example: `salt web1 cp.recv_chunked /tmp/hello aGVsbG8K upload=x compressed=False sha256=...`,
			Params: []function.Param{{Name: "dest", Kind: function.String, Required: true}, {Name: "chunk", Kind: function.String}, {Name: "upload", Kind: function.String, Default: ""},
				{Name: "offset", Kind: function.Int, Default: 0}, {Name: "sha256", Kind: function.String, Default: ""}, {Name: "name", Kind: function.String, Default: ""},
				{Name: "compressed", Kind: function.Bool, Default: true}, {Name: "mode", Kind: function.Int}, cpParents},
			Run: cpRecvChunked,
		},
		{
			Name:    "stat_file",
			Doc:     "Return the mode of a file of the master, as octal digits.",
			Example: `salt '*' cp.stat_file salt://path/to/file`,
			Params:  []function.Param{cpSource, saltenv},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				files, name, env, err := ofServer(c, c.String("path"))
				if err != nil {
					return nil, err
				}
				f, err := files.Stat(ctx, env, name)
				return octal(f.Mode), err
			},
		},
	},
}

// ofServer parses an address on the file server, or a path there.
func ofServer(c *function.Call, address string) (files *fileserver.Cache, name, env string, err error) {
	if files, err = fileServer(c.Host); err != nil {
		return nil, "", "", err
	}
	name, env, ok := saltAddress(address, c.String("saltenv"))
	if !ok {
		name, env = address, c.String("saltenv")
	}
	return files, name, env, errors.Join(fileserver.CheckEnvironment(env), fileserver.CheckPath(name))
}

func paths(files []fileserver.File) []string {
	list := make([]string, len(files))
	for i, f := range files {
		list[i] = f.Path
	}
	return list
}

func places(copies []fileserver.Copy, err error) (any, error) {
	list := make([]string, len(copies))
	for i, one := range copies {
		list[i] = one.Place
	}
	return list, err
}

// listMaster lists the server's files below the prefix; of converts each path to entries of the
// list.
func listMaster(ctx context.Context, c *function.Call, of func(string) []string) (any, error) {
	files, err := fileServer(c.Host)
	if err != nil {
		return nil, err
	}
	all, err := files.List(ctx, c.String("saltenv"))
	list := []string{}
	for _, f := range all {
		if fileserver.Below(f.Path, c.String("prefix")) {
			list = append(list, of(f.Path)...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), err
}

func cpCacheDir(ctx context.Context, c *function.Call) (any, error) {
	files, name, env, err := ofServer(c, strings.TrimSuffix(c.String("path"), "/"))
	if err != nil {
		return nil, err
	}
	all, err := files.List(ctx, env)
	if err != nil {
		return nil, err
	}
	list := []string{}
	for _, f := range all {
		include, exclude := c.String("include_pat"), c.String("exclude_pat")
		if !fileserver.Below(f.Path, name) || include != "" && !fnmatch.Match(include, f.Path) || exclude != "" && fnmatch.Match(exclude, f.Path) {
			continue
		}
		place, _, err := files.Fetch(ctx, env, f.Path)
		if err != nil {
			return nil, err
		}
		list = append(list, place)
	}
	return list, nil
}

func cpGetDir(ctx context.Context, c *function.Call) (any, error) {
	files, name, env, err := ofServer(c, strings.TrimSuffix(c.String("path"), "/"))
	if err != nil {
		return nil, err
	}
	copies, err := files.FetchAll(ctx, env, name)
	if err != nil {
		return nil, err
	}
	if len(copies) == 0 {
		return nil, errors.Join(fileserver.ErrNotFound, errors.New("below "+c.String("path")))
	}
	list := []string{}
	for _, one := range copies {
		place := filepath.Join(c.String("dest"), path.Base(name), strings.TrimPrefix(one.Path, name+"/"))
		if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
			return nil, err
		}
		if err := putFile(ctx, one.Place, place); err != nil {
			return nil, err
		}
		list = append(list, place)
	}
	return list, nil
}

// fetchTo copies the file at an address to dest, or into it if that is a directory.
func fetchTo(ctx context.Context, c *function.Call, address, dest string) (any, error) {
	if !filepath.IsAbs(dest) {
		return nil, function.Invalid("dest %q is not an absolute path", dest)
	}
	place, err := fetchSource(ctx, c, address, c.String("saltenv"))
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(dest); err == nil && info.IsDir() || strings.HasSuffix(dest, "/") {
		dest = filepath.Join(dest, filepath.Base(place))
	}
	if c.Bool("makedirs") {
		if err := os.MkdirAll(filepath.Dir(dest), 0o755); err != nil {
			return nil, err
		}
	}
	return dest, putFile(ctx, place, dest)
}

// putFile copies a file atomically. The copy gets the default mode, not the private mode of the
// cache.
func putFile(ctx context.Context, from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, &fs.PathError{Op: "copy", Path: from, Err: errors.New("it is not a regular file")})
	}
	return writeFrom(ctx, to, &io.LimitedReader{R: f, N: math.MaxInt64}, 0o644)
}

func cpGetURL(ctx context.Context, c *function.Call) (any, error) {
	place, err := fetchSource(ctx, c, c.String("path"), c.String("saltenv"))
	if err != nil {
		return nil, err
	}
	if want := c.String("source_hash"); want != "" {
		form, digits, ok := strings.Cut(strings.Replace(want, ":", "=", 1), "=")
		if !ok {
			form, digits = "sha256", want
		}
		if got, err := hashFile(ctx, place, form); err != nil || !strings.EqualFold(got, digits) {
			return nil, errors.Join(err, function.Invalid("%s has the %s digest %s, not %s", c.String("path"), form, got, digits))
		}
	}
	if c.String("dest") == "" {
		return place, nil
	}
	return fetchTo(ctx, c, c.String("path"), c.String("dest"))
}

func cpHashFile(ctx context.Context, c *function.Call) (any, error) {
	if local := c.String("path"); filepath.IsAbs(local) {
		sum, err := hashFile(ctx, local, "sha256")
		return map[string]any{"hsum": sum, "hash_type": "sha256"}, err
	}
	files, name, env, err := ofServer(c, c.String("path"))
	if err != nil {
		return nil, err
	}
	f, err := files.Stat(ctx, env, name)
	return map[string]any{"hsum": f.SHA256, "hash_type": "sha256"}, err
}
