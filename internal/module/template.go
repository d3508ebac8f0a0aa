package module

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/template"
)

// templateContext has names for a template in addition to those of the minion.
var templateContext = function.Param{Name: "context", Kind: function.Map}

// sourceText returns the content at an address.
func sourceText(ctx context.Context, c *function.Call, address string) (string, error) {
	place, err := fetchSource(ctx, c, address, c.String("saltenv"))
	if err != nil {
		return "", err
	}
	return readText(place)
}

// renderSource renders the content at an address, for this minion.
func renderSource(ctx context.Context, c *function.Call, address string) (string, error) {
	text, err := sourceText(ctx, c, address)
	if err != nil {
		return "", err
	}
	return renderText(ctx, c, address, text)
}

// renderText renders text from an address.
func renderText(ctx context.Context, c *function.Call, address, text string) (string, error) {
	out, err := rendered(ctx, c, text)
	if m, ok := errors.AsType[*template.Mistake](err); ok {
		return "", fmt.Errorf("%s: %w", address, m)
	}
	return out, err
}

// rendered renders a text in the language of the argument template.
func rendered(ctx context.Context, c *function.Call, text string) (string, error) {
	if name := c.String("template"); name != "jinja" {
		return "", function.Invalid("the template language %q is not there: jinja is", name)
	}
	if mistakes := c.Host.PillarMistakes(); len(mistakes) > 0 {
		return "", errors.New("nothing is rendered with a pillar that has a mistake: " + strings.Join(mistakes, "; "))
	}
	values := template.Values(c.Host.ID, c.Host.Facts(), c.Host.PillarData())
	for name, v := range contextOf(c) {
		if _, taken := values[name]; taken || name == "salt" {
			return "", function.Invalid("context cannot have the name %q: templates see the minion's by it", name)
		}
		values[name] = v
	}
	return template.Beside().Render(ctx, text, values)
}

// contextOf returns the additional names, for functions that accept them.
func contextOf(c *function.Call) map[string]any {
	for _, p := range c.Params() {
		if p.Name == templateContext.Name {
			return c.Map(p.Name)
		}
	}
	return nil
}

func cpGetTemplate(ctx context.Context, c *function.Call) (any, error) {
	dest := c.String("dest")
	if !filepath.IsAbs(dest) {
		return nil, function.Invalid("dest %q is not an absolute path", dest)
	}
	text, err := renderSource(ctx, c, c.String("path"))
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(dest); err == nil && info.IsDir() || strings.HasSuffix(dest, "/") {
		dest = filepath.Join(dest, filepath.Base(c.String("path")))
	}
	if c.Bool("makedirs") {
		if err := os.MkdirAll(filepath.Dir(dest), 0o755); err != nil {
			return nil, err
		}
	}
	return dest, writeFrom(ctx, dest, &io.LimitedReader{R: strings.NewReader(text), N: math.MaxInt64}, 0o644)
}

// managedParams are the arguments of file.managed.
var managedParams = []function.Param{
	{Name: "name", Kind: function.Path, Required: true}, {Name: "source", Kind: function.String}, {Name: "contents", Kind: function.String},
	{Name: "template", Kind: function.String}, templateContext, {Name: "user", Kind: function.String, Default: ""}, {Name: "group", Kind: function.String, Default: ""},
	{Name: "mode"}, {Name: "makedirs", Kind: function.Bool, Default: false}, {Name: "replace", Kind: function.Bool, Default: true},
	{Name: "show_changes", Kind: function.Bool, Default: true}, {Name: "test", Kind: function.Bool, Default: false}, saltenv,
}

// manageParams are the arguments of file.manage_file, in Salt's order, and further ones of
// file.managed.
var manageParams = []function.Param{
	{Name: "name", Kind: function.Path, Required: true}, {Name: "sfn", Kind: function.String, Default: ""}, {Name: "ret", Kind: function.Map}, {Name: "source", Kind: function.String},
	{Name: "source_sum", Kind: function.Map}, {Name: "user", Kind: function.String, Default: ""}, {Name: "group", Kind: function.String, Default: ""}, {Name: "mode"},
	{Name: "attrs", Kind: function.String, Default: ""}, saltenv, {Name: "backup", Kind: function.String, Default: ""}, {Name: "makedirs", Kind: function.Bool, Default: false},
	{Name: "template", Kind: function.String}, {Name: "show_changes", Kind: function.Bool, Default: true}, {Name: "contents", Kind: function.String},
	templateContext, {Name: "replace", Kind: function.Bool, Default: true}, {Name: "test", Kind: function.Bool, Default: false},
}

// fileManageFile is file.managed as Salt's own states call it.
func fileManageFile(ctx context.Context, c *function.Call) (any, error) {
	for _, name := range []string{"attrs", "backup"} {
		if c.String(name) != "" {
			return nil, function.Invalid("%s is not here: file.managed replaces the file as a whole, and keeps no other", name)
		}
	}
	want := c.Map("source_sum")
	return manage(ctx, c, func(source, text string) error {
		if len(want) == 0 {
			return nil
		}
		form, digest := fmt.Sprint(want["hash_type"]), fmt.Sprint(want["hsum"])
		h, err := newHash(form)
		if err != nil {
			return err
		}
		h.Write([]byte(text))
		if got := hex.EncodeToString(h.Sum(nil)); !strings.EqualFold(got, digest) {
			return function.Invalid("%s has the %s digest %s, not %s", source, form, got, digest)
		}
		return nil
	})
}

// managedSource returns the address of the file's content, "" for none. An empty argument counts as
// none: in file.manage_file it precedes other arguments.
func managedSource(c *function.Call) string {
	for _, p := range c.Params() {
		if sfn := "sfn"; p.Name == sfn && c.String(sfn) != "" {
			return "file://" + c.String(sfn)
		}
	}
	return c.String("source")
}

// fileManaged sets the content, owner and mode of a file, and returns the changes.
func fileManaged(ctx context.Context, c *function.Call) (any, error) {
	return manage(ctx, c, func(string, string) error { return nil })
}

// manage is file.managed with a check of the source's content: the check gets the text that is
// written, since a server may send another text the next time.
func manage(ctx context.Context, c *function.Call, check func(source, text string) error) (any, error) {
	name := c.String("name")
	if !filepath.IsAbs(name) {
		return nil, function.Invalid("name %q is not an absolute path", name)
	}
	text, err := managedText(ctx, c, check)
	if err != nil {
		return nil, err
	}
	name = destination(name)
	before, err := stateOf(name)
	if err != nil {
		return nil, err
	}
	after, err := wanted(ctx, c, before, text)
	if err != nil {
		return nil, err
	}
	changes := before.changes(after, name, c.Bool("show_changes"))
	answer := map[string]any{"name": c.String("name"), "changes": changes, "result": true, "comment": fmt.Sprintf("File %s is in the correct state", name)}
	switch {
	case len(changes) == 0:
		return answer, nil
	case c.Bool("test"):
		answer["result"], answer["comment"] = nil, fmt.Sprintf("The file %s is set to be changed", name)
		return answer, nil
	}
	answer["comment"] = fmt.Sprintf("File %s updated", name)
	return answer, after.write(name, c.Bool("makedirs"))
}

// managedText returns the text for the file.
func managedText(ctx context.Context, c *function.Call, check func(source, text string) error) (string, error) {
	source := managedSource(c)
	if (source != "") == c.Has("contents") {
		return "", function.Invalid("one of source and contents says what the file is to hold")
	}
	templated := c.String("template") != ""
	switch {
	case c.Has("contents") && templated:
		return rendered(ctx, c, withLineEnd(c.String("contents")))
	case c.Has("contents"):
		return withLineEnd(c.String("contents")), nil
	}
	text, err := sourceText(ctx, c, source)
	if err == nil {
		err = check(source, text)
	}
	if err != nil || !templated {
		return text, err
	}
	return renderText(ctx, c, source, text)
}

// managed is the state of a file for file.managed.
type managed struct {
	there    bool
	text     string
	mode     fs.FileMode
	uid, gid int
}

func stateOf(name string) (managed, error) {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return managed{mode: 0o644, uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	if err != nil {
		return managed{}, err
	}
	if !info.Mode().IsRegular() {
		return managed{}, function.Invalid("%s is not a regular file", name)
	}
	stat, err := posix.StatOf(info)
	if err != nil {
		return managed{}, err
	}
	text, err := readText(name)
	return managed{true, text, info.Mode(), int(stat.UID), int(stat.GID)}, err
}

// wanted returns the requested state of the file.
func wanted(ctx context.Context, c *function.Call, is managed, text string) (managed, error) {
	if is.there && !c.Bool("replace") {
		text = is.text
	}
	is.there, is.text = true, text
	uid, gid, err := ownerNumbers(ctx, c.String("user"), c.String("group"))
	if err != nil {
		return is, err
	}
	if uid >= 0 {
		is.uid = uid
	}
	if gid >= 0 {
		is.gid = gid
	}
	if c.Has("mode") && c.Any("mode") != "" {
		is.mode, err = fileMode(c.Any("mode"))
	}
	return is, err
}

// changes returns the differences from the requested state.
func (m managed) changes(to managed, name string, show bool) map[string]any {
	out := map[string]any{}
	switch {
	case !m.there:
		out["diff"] = "New file"
	case m.text != to.text && show:
		out["diff"] = udiff.Unified(name, name, m.text, to.text)
	case m.text != to.text:
		out["diff"] = "<show_changes=False>"
	}
	if m.there {
		maps.Copy(out, m.perms(to))
	}
	return out
}

func (m managed) perms(to managed) map[string]any {
	out := map[string]any{}
	if octal(m.mode) != octal(to.mode) {
		out["mode"] = octal(to.mode)
	}
	if m.uid != to.uid {
		out["user"] = to.uid
	}
	if m.gid != to.gid {
		out["group"] = to.gid
	}
	return out
}

// write changes the file to the state m. The file gets its owner and mode before its name.
func (m managed) write(name string, parents bool) error {
	if parents {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
	}
	return atomicfile.WriteOwned(name, []byte(m.text), m.mode, m.uid, m.gid)
}
