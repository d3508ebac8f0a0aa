package module

import (
	"fmt"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/function"
)

// aptRepo is one repository of apt.
type aptRepo struct {
	kind, uri, dist string
	options         []string // arch=amd64, signed-by=/path
	comps           []string
	note            string // the comment at its end
	disabled        bool
}

// aptLine parses a line of sources.list: "deb [options] uri dist component...", disabled if it
// follows a #. ok is false for any other line.
func aptLine(line string) (r aptRepo, ok bool) {
	line, r.disabled = strings.CutPrefix(strings.TrimSpace(line), "#")
	line, r.note, _ = strings.Cut(line, "#")
	f := strings.Fields(line)
	if len(f) < 3 || f[0] != "deb" && f[0] != "deb-src" {
		return r, false
	}
	rest := f[1:]
	if strings.HasPrefix(rest[0], "[") {
		end := slices.IndexFunc(rest, func(w string) bool { return strings.HasSuffix(w, "]") })
		if end < 0 {
			return r, false
		}
		r.options = strings.Fields(strings.Trim(strings.Join(rest[:end+1], " "), "[]"))
		rest = rest[end+1:]
	}
	if len(rest) < 2 || !strings.Contains(rest[0], ":") {
		return r, false
	}
	r.kind, r.uri, r.dist, r.comps = f[0], rest[0], rest[1], append([]string{}, rest[2:]...)
	return r, true
}

// aptEntry parses a repository as people write it.
func aptEntry(text string) (aptRepo, error) {
	r, ok := aptLine(text)
	bad := slices.ContainsFunc(r.comps, func(s string) bool { return strings.ContainsAny(s, ":[]") })
	if !ok || bad || r.note != "" || strings.ContainsAny(text, "\n\r") {
		return r, function.Invalid("%q is not a repository of apt, which is written as in its files: deb http://deb.debian.org/debian stable main", text)
	}
	return r, nil
}

// String returns the line of sources.list.
func (r aptRepo) String() string {
	words := []string{r.kind}
	if len(r.options) > 0 {
		words = append(words, "["+strings.Join(r.options, " ")+"]")
	}
	text := strings.Join(append(append(words, r.uri, r.dist), r.comps...), " ")
	if r.disabled {
		text = "# " + text
	}
	if r.note != "" {
		text += " #" + r.note
	}
	return text
}

// shown returns the repository in Salt's format.
func (r aptRepo) shown(file string) map[string]any {
	architectures := []string{}
	if text := r.option("arch"); text != "" {
		architectures = strings.Split(text, ",")
	}
	plain := r
	plain.note, plain.disabled = "", false
	return map[string]any{
		"file": file, "type": r.kind, "dist": r.dist, "comps": r.comps, "disabled": r.disabled, "uri": strings.TrimSuffix(r.uri, "/"),
		"architectures": architectures, "line": plain.String(),
	}
}

// is reports whether both are the same repository, ignoring their components and options.
func (r aptRepo) is(o aptRepo) bool {
	return r.kind == o.kind && r.dist == o.dist && strings.TrimSuffix(r.uri, "/") == strings.TrimSuffix(o.uri, "/")
}

func (r aptRepo) option(name string) string {
	for _, o := range r.options {
		if v, ok := strings.CutPrefix(o, name+"="); ok {
			return v
		}
	}
	return ""
}

// with returns the repository with another option.
func (r aptRepo) with(name, v string) aptRepo {
	r.options = slices.DeleteFunc(slices.Clone(r.options), func(o string) bool { return strings.HasPrefix(o, name+"=") })
	r.options = append(r.options, name+"="+v)
	return r
}

// aptRepos returns the repositories in a file.
func aptRepos(f repoFile) (all []aptRepo) {
	if !strings.HasSuffix(f.path, ".sources") {
		for line := range strings.Lines(f.text) {
			if r, ok := aptLine(line); ok {
				all = append(all, r)
			}
		}
		return all
	}
	for _, s := range aptStanzas(f.text) {
		all = append(all, s.repos()...)
	}
	return all
}

// modApt changes the entries of a repository, or creates one.
func modApt(c *function.Call, m *packager, files []repoFile) (any, error) {
	want, err := aptEntry(c.String("repo"))
	if err != nil {
		return nil, err
	}
	change, err := aptChange(c, want)
	if err != nil {
		return nil, err
	}
	place, err := newRepoFile(c, m, aptMain)
	if err != nil {
		return nil, err
	}
	var last aptRepo
	file := ""
	for _, f := range files {
		text, found, err := editApt(f, want, func(r aptRepo) (aptRepo, bool) {
			last, file = change(r), f.path
			return last, true
		})
		if err != nil {
			return nil, err
		}
		if found && text != f.text {
			if err := replaceText(f.path, text, 0o644); err != nil {
				return nil, err
			}
		}
	}
	if file == "" {
		old := ""
		if i := slices.IndexFunc(files, func(f repoFile) bool { return f.path == place }); i >= 0 {
			old = withLineEnd(files[i].text)
		}
		last, file = change(want), place
		if err := replaceText(place, old+last.String()+"\n", 0o644); err != nil {
			return nil, err
		}
	}
	return map[string]any{c.String("repo"): last.shown(file)}, nil
}

// aptChange returns the change of an entry by the arguments: components of the repository are added
// to its own, those of comps replace them.
func aptChange(c *function.Call, want aptRepo) (func(aptRepo) aptRepo, error) {
	comps, architectures := c.Words("comps"), c.Words("architectures")
	for _, word := range append(slices.Clone(comps), architectures...) {
		if strings.ContainsAny(word, " \t#:,[]") {
			return nil, function.Invalid("%q is neither a component nor an architecture", word)
		}
	}
	if key := c.String("signedby"); strings.ContainsAny(key, " #,[]") {
		return nil, function.Invalid("the path %q cannot stand in a line of apt", key)
	}
	return func(r aptRepo) aptRepo {
		r.comps = slices.Clone(r.comps)
		for _, comp := range want.comps {
			if !slices.Contains(r.comps, comp) {
				r.comps = append(r.comps, comp)
			}
		}
		if comps != nil {
			r.comps = comps
		}
		for _, o := range want.options {
			if name, v, ok := strings.Cut(o, "="); ok {
				r = r.with(name, v)
			}
		}
		if architectures != nil {
			r = r.with("arch", strings.Join(architectures, ","))
		}
		if c.Has("signedby") {
			r = r.with("signed-by", c.String("signedby"))
		}
		if disabled, set := disabledRepo(c); set {
			r.disabled = disabled
		}
		return r
	}, nil
}

// editApt changes the entries of a repository in a file; one with keep false is removed.
func editApt(f repoFile, want aptRepo, change func(aptRepo) (r aptRepo, keep bool)) (text string, found bool, err error) {
	if strings.HasSuffix(f.path, ".sources") {
		return editStanzas(f, want, change)
	}
	var b strings.Builder
	for line := range strings.Lines(f.text) {
		r, ok := aptLine(line)
		if !ok || !r.is(want) {
			b.WriteString(line)
			continue
		}
		found = true
		after, keep := change(r)
		switch {
		case !keep:
		case after.String() == r.String():
			b.WriteString(line) // unchanged
		default:
			b.WriteString(after.String() + "\n")
		}
	}
	return b.String(), found, nil
}

// aptStanza is one repository or several in the newer format: lines with fields.
type aptStanza struct {
	lines []string // including line ends
	blank []string // the empty lines after it
}

// aptStanzas splits a file in the newer format at its empty lines. Joined again, they are the file.
func aptStanzas(text string) (all []aptStanza) {
	var s aptStanza
	for line := range strings.Lines(text) {
		empty := strings.TrimSpace(line) == ""
		if !empty && len(s.blank) > 0 {
			all, s = append(all, s), aptStanza{}
		}
		if empty {
			s.blank = append(s.blank, line)
		} else {
			s.lines = append(s.lines, line)
		}
	}
	return append(all, s)
}

// field returns the value of a field with its continuation lines, and its position; at is -1 if it
// is missing.
func (s *aptStanza) field(name string) (value string, at, end int) {
	for i, line := range s.lines {
		key, v, ok := strings.Cut(line, ":")
		if !ok || !strings.EqualFold(key, name) {
			continue
		}
		end = i + 1
		for end < len(s.lines) && strings.HasPrefix(s.lines[end], " ") {
			v += s.lines[end]
			end++
		}
		return strings.TrimSpace(v), i, end
	}
	return "", -1, -1
}

func (s *aptStanza) words(name string) []string {
	v, _, _ := s.field(name)
	return append([]string{}, strings.Fields(v)...)
}

// repos returns the repositories of the stanza: one for each type, address and suite.
func (s *aptStanza) repos() (all []aptRepo) {
	enabled, _, _ := s.field("Enabled")
	one := aptRepo{comps: s.words("Components"), disabled: strings.EqualFold(enabled, "no")}
	if list := s.words("Architectures"); len(list) > 0 {
		one = one.with("arch", strings.Join(list, ","))
	}
	if key := s.words("Signed-By"); len(key) == 1 {
		one = one.with("signed-by", key[0])
	}
	for _, one.kind = range s.words("Types") {
		for _, one.uri = range s.words("URIs") {
			for _, one.dist = range s.words("Suites") {
				all = append(all, one)
			}
		}
	}
	return all
}

// set sets the value of a field.
func (s *aptStanza) set(name, v string) {
	_, at, end := s.field(name)
	if at < 0 {
		if n := len(s.lines); n > 0 {
			s.lines[n-1] = withLineEnd(s.lines[n-1])
		}
		at, end = len(s.lines), len(s.lines)
	}
	s.lines = slices.Replace(s.lines, at, end, name+": "+v+"\n")
}

// editStanzas changes a repository that has its own stanza.
func editStanzas(f repoFile, want aptRepo, change func(aptRepo) (aptRepo, bool)) (text string, found bool, err error) {
	var b strings.Builder
	for _, s := range aptStanzas(f.text) {
		repos := s.repos()
		if slices.ContainsFunc(repos, want.is) {
			if len(repos) > 1 {
				return "", false, fmt.Errorf("a stanza of %s means %d repositories at once: edit it by file.replace", f.path, len(repos))
			}
			found = true
			after, keep := change(repos[0])
			if !keep {
				continue
			}
			s.apply(repos[0], after)
		}
		b.WriteString(strings.Join(s.lines, "") + strings.Join(s.blank, ""))
	}
	return b.String(), found, nil
}

// apply writes the differences.
func (s *aptStanza) apply(before, after aptRepo) {
	if !slices.Equal(before.comps, after.comps) {
		s.set("Components", strings.Join(after.comps, " "))
	}
	if before.disabled != after.disabled {
		s.set("Enabled", map[bool]string{true: "no", false: "yes"}[after.disabled])
	}
	for option, field := range map[string]string{"arch": "Architectures", "signed-by": "Signed-By"} {
		if v := after.option(option); v != before.option(option) {
			s.set(field, strings.ReplaceAll(v, ",", " "))
		}
	}
}
