package module

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aymanbagabas/go-udiff"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/posix"
)

// Common parts of the functions that edit a file.
var (
	fileBackup = function.Param{Name: "backup", Default: ".bak"}
	showDiff   = function.Param{Name: "show_changes", Kind: function.Bool, Default: true}
	editDryRun = function.Param{Name: "dry_run", Kind: function.Bool, Default: false}
	appendNew  = function.Param{Name: "append_if_not_found", Kind: function.Bool, Default: false}
	prependNew = function.Param{Name: "prepend_if_not_found", Kind: function.Bool, Default: false}
)

// edited writes the new text of a file, unless it is unchanged or this is a dry run, and returns
// the same as Salt's functions: the changes as a unified diff, or whether there are any.
func edited(c *function.Call, path, old, text string, dry bool) (any, error) {
	if text != old && !dry {
		if err := rewrite(path, old, text, backupSuffix(c)); err != nil {
			return nil, err
		}
	}
	if c.Bool("show_changes") {
		return udiff.Unified(path, path, old, text), nil
	}
	return text != old, nil
}

// backupSuffix returns the suffix for the copy of the old file; "" for no copy.
func backupSuffix(c *function.Call) string {
	suffix, _ := c.Any("backup").(string) // False means none
	return suffix
}

// rewrite replaces the content of a file. Its mode and owner stay. A file with several hard links
// keeps them and is written in place; any other is replaced atomically. Another user who may write
// to the directory cannot redirect the write to another file.
func rewrite(path, old, text, backup string) error {
	path = destination(path)
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	stat, err := posix.StatOf(info)
	if err != nil && os.Geteuid() == 0 {
		return err
	}
	put := func(name, text string) error {
		if os.Geteuid() != 0 {
			return atomicfile.Write(name, []byte(text), info.Mode())
		}
		return atomicfile.WriteOwned(name, []byte(text), info.Mode(), int(stat.UID), int(stat.GID))
	}
	if backup != "" {
		if err := put(path+backup, old); err != nil {
			return err
		}
	}
	if stat.Links > 1 {
		return overwrite(path, info, text)
	}
	return put(path, text)
}

// overwrite writes into the file that info describes, and not into another that has its name now.
func overwrite(path string, info fs.FileInfo, text string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|posix.NoFollow, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	now, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !os.SameFile(info, now):
		return fmt.Errorf("%s has become another file meanwhile", path)
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return err
}

// reFlags are the flags of Python's re that Go supports, by number and letter.
var reFlags = []struct {
	number int
	name   string
	letter string
}{
	{2, "IGNORECASE", "i"}, {8, "MULTILINE", "m"}, {16, "DOTALL", "s"}, {32, "UNICODE", ""},
}

// expression compiles a pattern with Salt's flags: a number, or a list of names.
func expression(pattern string, flags any) (*regexp.Regexp, error) {
	letters := ""
	for _, f := range reFlags {
		n, isNumber := flags.(int64)
		names, _ := flags.([]any)
		if isNumber && int(n)&f.number != 0 || slices.Contains(names, any(f.name)) || flags == any(f.name) {
			letters += f.letter
		}
	}
	if letters != "" {
		pattern = "(?" + letters + ")" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, function.Invalid("%w", err)
	}
	return re, nil
}

// reference matches a group in a replacement in Python's notation.
func reference() *regexp.Regexp { return regexp.MustCompile(`\\(?:g<(\w+)>|(\d{1,2}))`) }

// replacement converts Python's notation of a replacement to Go's.
func replacement(text string, literal bool) string {
	text = strings.ReplaceAll(text, "$", "$$")
	if literal {
		return text
	}
	text = reference().ReplaceAllString(text, "$${$1$2}")
	return strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\\`, `\`).Replace(text)
}

// substitute replaces the first count matches, all if count is zero.
func substitute(re *regexp.Regexp, text, with string, count int) (result string, found bool) {
	var b strings.Builder
	end := 0
	for i, m := range re.FindAllStringSubmatchIndex(text, -1) {
		if found = true; count > 0 && i >= count {
			break
		}
		b.WriteString(text[end:m[0]])
		b.Write(re.ExpandString(nil, with, text, m))
		end = m[1]
	}
	b.WriteString(text[end:])
	return b.String(), found
}

// withLineEnd adds a newline at the end, unless the text is empty.
func withLineEnd(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}

func fileReplace(_ context.Context, c *function.Call) (any, error) {
	path := c.String("path")
	re, err := expression(c.String("pattern"), c.Any("flags"))
	if err != nil {
		return nil, err
	}
	old, err := readText(path)
	if errors.Is(err, fs.ErrNotExist) && c.Bool("ignore_if_missing") {
		return false, nil
	}
	if err != nil {
		return nil, err
	}
	text, found := substitute(re, old, replacement(c.String("repl"), c.Bool("backslash_literal")), c.Int("count"))
	if c.Bool("search_only") {
		return found, nil
	}
	missing := c.String("repl")
	if c.Has("not_found_content") {
		missing = c.String("not_found_content")
	}
	// The new text counts as found if the file already contains it.
	if !found && !strings.Contains("\n"+old, "\n"+withLineEnd(missing)) {
		text = added(c, old, withLineEnd(missing))
	}
	return edited(c, path, old, text, c.Bool("dry_run"))
}

// added returns the text with a new part at its end or beginning, as requested.
func added(c *function.Call, old, part string) string {
	switch {
	case c.Bool("append_if_not_found"):
		return withLineEnd(old) + part
	case c.Bool("prepend_if_not_found"):
		return part + old
	}
	return old
}

func fileBlockReplace(_ context.Context, c *function.Call) (any, error) {
	path, begin, end := c.String("path"), c.String("marker_start"), c.String("marker_end")
	old, err := readText(path)
	if err != nil {
		return nil, err
	}
	content := c.String("content")
	if content != "" || c.Bool("append_newline") {
		content = withLineEnd(content)
	}
	lines := strings.SplitAfter(old, "\n")
	first := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, begin) })
	if first < 0 {
		block := begin + "\n" + content + end + "\n"
		if !c.Bool("append_if_not_found") && !c.Bool("prepend_if_not_found") {
			return nil, function.Invalid("the line that begins the block was not found in %s; append_if_not_found=True adds the block", path)
		}
		return edited(c, path, old, added(c, old, block), c.Bool("dry_run"))
	}
	last := slices.IndexFunc(lines[first+1:], func(l string) bool { return strings.Contains(l, end) })
	if last < 0 {
		return nil, function.Invalid("the block in %s has no line that ends it", path)
	}
	text := strings.Join(lines[:first+1], "") + content + strings.Join(lines[first+1+last:], "")
	return edited(c, path, old, text, c.Bool("dry_run"))
}

// fileComment adds a mark before each line whose beginning matches, or removes it if the text after
// it matches.
func fileComment(_ context.Context, c *function.Call, comment bool) (any, error) {
	path, mark := c.String("path"), c.String("char")
	expr := "^(?:" + strings.TrimPrefix(c.String("regex"), "^") + ")"
	if !comment {
		expr = "^" + regexp.QuoteMeta(mark) + `\s*(?:` + strings.TrimPrefix(c.String("regex"), "^") + ")"
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, function.Invalid("%w", err)
	}
	old, err := readText(path)
	if err != nil {
		return nil, err
	}
	lines, found := strings.SplitAfter(old, "\n"), false
	for i, l := range lines {
		switch {
		case l == "" || !re.MatchString(strings.TrimSuffix(l, "\n")):
			continue
		case comment:
			lines[i] = mark + l
		default:
			lines[i] = strings.TrimLeft(l, mark)
		}
		found = true
	}
	if !found {
		return false, nil
	}
	return edited(c, path, old, strings.Join(lines, ""), false)
}

// lineEdit is an edit by file.line.
type lineEdit struct {
	lines   []string
	content string
	match   *regexp.Regexp
	before  *regexp.Regexp
	after   *regexp.Regexp
	where   string // start, end or ""
	indent  bool
}

func fileLine(_ context.Context, c *function.Call) (any, error) {
	path := c.String("path")
	old, err := readText(path)
	if err != nil {
		return nil, err
	}
	p := lineEdit{content: strings.TrimRight(c.String("content"), "\n"), where: c.String("location"), indent: c.Bool("indent")}
	p.lines = strings.Split(strings.TrimSuffix(old, "\n"), "\n")
	if old == "" {
		p.lines = nil
	}
	match := c.String("match")
	if match == "" {
		match = regexp.QuoteMeta(p.content)
	}
	for _, e := range []struct {
		to   **regexp.Regexp
		expr string
	}{{&p.match, match}, {&p.before, c.String("before")}, {&p.after, c.String("after")}} {
		if e.expr == "" {
			continue
		}
		if *e.to, err = regexp.Compile(e.expr); err != nil {
			return nil, function.Invalid("%w", err)
		}
	}
	lines, err := p.apply(c.String("mode"))
	if err != nil {
		return nil, err
	}
	text := withLineEnd(strings.Join(lines, "\n"))
	return edited(c, path, old, text, false)
}

// apply returns the lines after the edit.
func (p lineEdit) apply(mode string) ([]string, error) {
	if p.content == "" && mode != "delete" {
		return nil, function.Invalid("the mode %q needs content", mode)
	}
	switch mode {
	case "delete":
		if p.match == nil {
			return nil, function.Invalid("what to delete is said by match or content")
		}
		return slices.DeleteFunc(slices.Clone(p.lines), p.match.MatchString), nil
	case "replace":
		lines := slices.Clone(p.lines)
		for i, l := range lines {
			if p.match.MatchString(l) {
				lines[i] = p.indented(l)
			}
		}
		return lines, nil
	case "insert":
		return p.insert()
	case "ensure":
		return p.ensure()
	}
	return nil, function.Invalid("the mode is ensure, replace, delete or insert, not %q", mode)
}

// indented returns the content with the indentation of a neighbouring line.
func (p lineEdit) indented(neighbour string) string {
	if !p.indent {
		return p.content
	}
	blanks := neighbour[:len(neighbour)-len(strings.TrimLeft(neighbour, " \t"))]
	return blanks + strings.TrimLeft(p.content, " \t")
}

// insert adds the content at its position, each time it is called.
func (p lineEdit) insert() ([]string, error) {
	switch p.where {
	case "start":
		return append([]string{p.content}, p.lines...), nil
	case "end":
		return append(slices.Clone(p.lines), p.content), nil
	}
	at, neighbour, err := p.at()
	if err != nil {
		return nil, err
	}
	return slices.Insert(slices.Clone(p.lines), at, p.indented(neighbour)), nil
}

// at returns the position between before and after, and the neighbouring line.
func (p lineEdit) at() (int, string, error) {
	for what, re := range map[string]*regexp.Regexp{"before": p.before, "after": p.after} {
		if n := len(slices.DeleteFunc(slices.Clone(p.lines), func(l string) bool { return re == nil || !re.MatchString(l) })); re != nil && n != 1 {
			return 0, "", function.Invalid("%d lines match %s, and it takes one", n, what)
		}
	}
	switch {
	case p.after != nil:
		i := slices.IndexFunc(p.lines, p.after.MatchString)
		return i + 1, p.lines[i], nil
	case p.before != nil:
		i := slices.IndexFunc(p.lines, p.before.MatchString)
		return i, p.lines[i], nil
	}
	return 0, "", function.Invalid("where to is said by location, before or after")
}

// ensure adds the content between before and after once: an existing line stays.
func (p lineEdit) ensure() ([]string, error) {
	at, neighbour, err := p.at()
	if err != nil {
		return nil, err
	}
	want := p.indented(neighbour)
	same := func(i int) bool {
		return i >= 0 && i < len(p.lines) && strings.TrimSpace(p.lines[i]) == strings.TrimSpace(want)
	}
	if p.after != nil && p.before != nil {
		end := slices.IndexFunc(p.lines, p.before.MatchString)
		switch {
		case end < at:
			return nil, function.Invalid("the line of before stands above that of after")
		case end == at+1: // the only line between them
			lines := slices.Clone(p.lines)
			if !same(at) {
				lines[at] = want
			}
			return lines, nil
		case end > at+1:
			return nil, function.Invalid("more than one line stands between before and after")
		}
	}
	if p.after != nil && same(at) || p.after == nil && same(at-1) {
		return p.lines, nil
	}
	return slices.Insert(slices.Clone(p.lines), at, want), nil
}

// fileSed edits a file with sed(1) as Salt calls it.
func fileSed(ctx context.Context, c *function.Call) (any, error) {
	path := c.String("path")
	old, err := readText(path)
	if err != nil {
		return nil, err
	}
	escape := func(s string) string { return strings.ReplaceAll(s, "/", `\/`) }
	script := "s/" + escape(c.String("before")) + "/" + escape(c.String("after")) + "/" + c.String("flags")
	if limit := c.String("limit"); limit != "" {
		script = "/" + escape(limit) + "/" + map[bool]string{true: "! ", false: " "}[c.Bool("negate_match")] + script
	}
	// No command in a script may run a program or write another file.
	text, err := output(ctx, "sed", "--sandbox", "-r", "-e", script, path)
	if err != nil {
		return nil, err
	}
	if text == old {
		return false, nil
	}
	return true, rewrite(path, old, text, backupSuffix(c))
}

// fileGrep returns the same as cmd.run_all: the code 1 of grep(1) means that no line matched.
func fileGrep(ctx context.Context, c *function.Call) (any, error) {
	opts, err := fileLines(c)
	if err != nil {
		return nil, err
	}
	args := append([]string{"grep"}, opts...)
	e, err := tool(ctx, append(args, "-e", c.String("pattern"), "--", c.String("path"))...)
	if err != nil {
		return nil, err
	}
	return map[string]any{"pid": e.PID, "retcode": e.Code, "stdout": strings.TrimSuffix(e.Stdout, "\n"), "stderr": strings.TrimSuffix(e.Stderr, "\n")}, nil
}

// fileDiskusage returns the size of a file, or of all files in a directory, in bytes.
func fileDiskusage(ctx context.Context, c *function.Call) (any, error) {
	var total int64
	err := filepath.WalkDir(c.String("path"), func(p string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was just removed
		}
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}

// fileLstat describes the file or the link itself, with the keys of Python's os.lstat.
func fileLstat(_ context.Context, c *function.Call) (any, error) {
	info, err := os.Lstat(c.String("path"))
	if err != nil {
		return nil, err
	}
	s, err := posix.StatOf(info)
	if err != nil {
		return nil, err
	}
	seconds := func(t int64) float64 { return float64(t) / 1e9 }
	return map[string]any{
		"st_atime": seconds(s.Access), "st_mtime": seconds(s.Modified), "st_ctime": seconds(s.Changed),
		"st_gid": int(s.GID), "st_uid": int(s.UID), "st_mode": int(s.Mode), "st_nlink": int(s.Links), "st_size": info.Size(),
	}, nil
}

// fileCheckPerms corrects owner, group and mode where they differ, and returns what it did.
func fileCheckPerms(ctx context.Context, c *function.Call) (any, error) {
	path := c.String("name")
	was, err := statistics(path, true)
	if err != nil {
		return nil, err
	}
	changes := map[string]any{}
	user, group := c.String("user"), c.String("group")
	uid, gid, err := ownerNumbers(ctx, user, group)
	if err != nil {
		return nil, err
	}
	if uid >= 0 && uid != was["uid"] {
		changes["user"] = user
	}
	if gid >= 0 && gid != was["gid"] {
		changes["group"] = group
	}
	if len(changes) > 0 {
		if err := os.Chown(path, uid, gid); err != nil {
			return nil, err
		}
	}
	if c.Has("mode") && c.Any("mode") != nil {
		mode, err := fileMode(c.Any("mode"))
		if err != nil {
			return nil, err
		}
		now, err := fileModeOf(path)
		if err == nil && now != octal(mode) {
			changes["mode"], err = octal(mode), os.Chmod(path, mode)
		}
		if err != nil {
			return nil, err
		}
	}
	ret := map[string]any{"name": path, "result": true, "comment": "", "changes": changes}
	return []any{ret, map[string]any{"luser": was["user"], "lgroup": was["group"], "lmode": was["mode"]}}, nil
}

func fileModeOf(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	return octal(info.Mode()), nil
}

// sizes parses the size for file.find: 10k, +1m (at least), -500 (at most), 1m-10m (between).
func sizes(text string) (least, most int64, err error) {
	low, high, between := strings.Cut(text, "-")
	switch {
	case text == "":
		return 0, 1<<63 - 1, nil
	case strings.HasPrefix(text, "+"):
		least, err = size(text[1:])
		return least, 1<<63 - 1, err
	case strings.HasPrefix(text, "-"):
		most, err = size(text[1:])
		return 0, most, err
	case between:
		least, err = size(low)
		if err == nil {
			most, err = size(high)
		}
		return least, most, err
	}
	least, err = size(text)
	return least, least, err
}

// size parses bytes, with an optional unit b, k, m, g or t (powers of 1,024).
func size(text string) (int64, error) {
	n := strings.ToLower(text)
	shift := 0
	if i := strings.IndexAny(n, "bkmgt"); i >= 0 && i == len(n)-1 {
		shift = 10 * strings.IndexByte("bkmgt", n[i])
		n = n[:i]
	}
	v, err := strconv.ParseFloat(n, 64)
	if err != nil || v < 0 {
		return 0, function.Invalid("%q is not a size: 500, 10k, +1m, -2g or 1m-10m", text)
	}
	return int64(v * float64(int64(1)<<shift)), nil
}

// findFacts returns the filters of file.find that need the metadata of the file.
func findFacts(c *function.Call) (func(fs.DirEntry) bool, error) {
	smallest, largest, err := sizes(c.String("size"))
	if err != nil {
		return nil, err
	}
	youngest, oldest, err := fileAges(c.String("mtime"))
	if err != nil {
		return nil, err
	}
	if c.String("size") == "" && c.String("mtime") == "" {
		return func(fs.DirEntry) bool { return true }, nil
	}
	now := time.Now()
	return func(d fs.DirEntry) bool {
		info, err := d.Info()
		if err != nil {
			return false
		}
		age := now.Sub(info.ModTime()).Seconds()
		return info.Size() >= smallest && info.Size() <= largest && age >= youngest && age <= oldest
	}, nil
}

// fileAges parses the age for file.find: 2d (at least), -1h (at most).
func fileAges(text string) (least, most float64, err error) {
	if text == "" {
		return 0, 1e18, nil
	}
	n, newer := strings.CutPrefix(text, "-")
	n = strings.TrimPrefix(n, "+")
	var total float64
	for _, m := range regexp.MustCompile(`([0-9.]+)([wdhms]?)`).FindAllStringSubmatch(n, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return 0, 0, function.Invalid("%q is not an age: 2d, 1h30m or -1w", text)
		}
		total += v * map[string]float64{"w": 7 * 86400, "d": 86400, "h": 3600, "m": 60, "s": 1, "": 86400}[m[2]]
	}
	if !regexp.MustCompile(`^([0-9.]+[wdhms]?)+$`).MatchString(n) {
		return 0, 0, function.Invalid("%q is not an age: 2d, 1h30m or -1w", text)
	}
	if newer {
		return 0, total, nil
	}
	return total, 1e18, nil
}
