package module

import (
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/function"
)

// sectionName returns the name in a line [NAME], "" for any other line.
func sectionName(line string) string {
	name, ok := strings.CutPrefix(strings.TrimSpace(line), "[")
	name, closed := strings.CutSuffix(name, "]")
	if !ok || !closed {
		return ""
	}
	return name
}

// section returns the lines of the section with that name: its header and content, without empty
// lines and comments before the next one. from is -1 for none.
func section(lines []string, name string) (from, to int) {
	from = slices.IndexFunc(lines, func(line string) bool { return sectionName(line) == name })
	if from < 0 {
		return -1, -1
	}
	to = from + 1
	for i := from + 1; i < len(lines) && sectionName(lines[i]) == ""; i++ {
		if text := strings.TrimSpace(lines[i]); text != "" && text[0] != '#' && text[0] != ';' {
			to = i + 1
		}
	}
	return from, to
}

// cutSection returns the text without a section.
func cutSection(text, name string) (string, bool) {
	lines := slices.Collect(strings.Lines(text))
	from, to := section(lines, name)
	if from < 0 {
		return text, false
	}
	return strings.Join(slices.Delete(lines, from, to), ""), true
}

// rpmRepos returns the repositories in a file by name, each with its settings and the file.
func rpmRepos(f repoFile) map[string]any {
	all := map[string]any{}
	var one map[string]any
	for line := range strings.Lines(f.text) {
		text := strings.TrimSpace(line)
		if name := sectionName(text); name != "" {
			one = map[string]any{"file": f.path}
			all[name] = one
			continue
		}
		key, v, ok := strings.Cut(text, "=")
		if ok && one != nil && text[0] != '#' && text[0] != ';' {
			one[strings.TrimSpace(key)] = strings.TrimSpace(v)
		}
	}
	return all
}

// modRPM changes the settings of a repository, or creates one.
func modRPM(c *function.Call, m *packager, files []repoFile) (any, error) {
	name := c.String("repo")
	if !isRepoWord(name) {
		return nil, function.Invalid("%q is not the name of a repository of %s", name, m.name)
	}
	place, err := newRepoFile(c, m, repoDirs[m.name].dir+"/"+name+repoDirs[m.name].suffix)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(files, func(f repoFile) bool { return rpmRepos(f)[name] != nil })
	isNew := at < 0
	if isNew {
		if c.String("baseurl")+c.String("mirrorlist")+c.String("metalink") == "" {
			return nil, function.Invalid("there is no repository %s; a new one has a baseurl, a mirrorlist or a metalink", name)
		}
		if at = slices.IndexFunc(files, func(f repoFile) bool { return f.path == place }); at < 0 {
			at, files = len(files), append(files, repoFile{path: place})
		}
	}
	f := files[at]
	lines := slices.Collect(strings.Lines(withLineEnd(f.text)))
	if isNew {
		lines = append(lines, "["+name+"]\n", "name="+name+"\n")
	}
	for _, s := range rpmSettings(c) {
		lines = setInSection(lines, name, s[0], s[1])
	}
	f.text = strings.Join(lines, "")
	if err := replaceText(f.path, f.text, 0o644); err != nil {
		return nil, err
	}
	return map[string]any{name: rpmRepos(f)[name]}, nil
}

// rpmSettings returns the settings in the arguments, sorted by name.
func rpmSettings(c *function.Call) (list [][2]string) {
	number := map[bool]string{true: "1", false: "0"}
	for _, p := range rpmParams {
		switch {
		case !c.Has(p.Name):
		case p.Kind == function.Bool:
			list = append(list, [2]string{p.Name, number[c.Bool(p.Name)]})
		default:
			list = append(list, [2]string{p.Name, c.String(p.Name)})
		}
	}
	if disabled, set := disabledRepo(c); set {
		list = append(list, [2]string{"enabled", number[!disabled]})
	}
	return list
}

// setInSection sets a setting in a section; an empty value removes it.
func setInSection(lines []string, name, key, v string) []string {
	from, to := section(lines, name)
	at, end := to, to
	for i := from + 1; i < to; i++ {
		if k, _, ok := strings.Cut(lines[i], "="); ok && strings.TrimSpace(k) == key {
			at, end = i, i+1
			for end < to && strings.HasPrefix(lines[end], " ") {
				end++ // continuation lines of the value
			}
			break
		}
	}
	if v == "" {
		return slices.Delete(lines, at, end)
	}
	return slices.Replace(lines, at, end, key+"="+v+"\n")
}
