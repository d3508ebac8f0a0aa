package function

import (
	"strings"

	"github.com/brinebus/brine/internal/target/fnmatch"
	"github.com/brinebus/brine/internal/value"
)

// access describes what rules must say about the function, beyond matching its name.
func (f *Function) access() string {
	text := map[Class]string{
		Secret:   " Rules grant it by its name or that of its module, never by a pattern: it returns secrets.",
		AsDaemon: " Rules grant it by its name, never by a pattern: it runs as the user of the master.",
	}[f.Class]
	if f.Own {
		text += " Users need no rule for what is their own."
	}
	if f.Calls != nil {
		text += " The functions that it runs must be allowed, too."
	}
	return text
}

// Names returns the names of the modules.
func (t Table) Names() []string {
	names := make([]string, len(t))
	for i, m := range t {
		names[i] = m.Name
	}
	return names
}

// Functions returns the full names of the functions that pattern selects.
func (t Table) Functions(pattern string) []string {
	names := []string{}
	t.Each(pattern, func(m *Module, f *Function) { names = append(names, m.Name+"."+f.Name) })
	return names
}

// Docs returns the documentation of the functions that pattern selects.
func (t Table) Docs(pattern string) map[string]string {
	docs := map[string]string{}
	t.Each(pattern, func(m *Module, f *Function) { docs[m.Name+"."+f.Name] = document(m.Name, f) })
	return docs
}

// Markdown returns a page on all functions of the table, below a heading and an
// introduction.
func (t Table) Markdown(heading, intro string) string {
	var b strings.Builder
	b.WriteString("# " + heading + "\n\n" + intro + "\n")
	for _, m := range t {
		b.WriteString("\n## " + m.Name + "\n\n" + m.Doc + "\n")
		for i := range m.Functions {
			f := &m.Functions[i]
			b.WriteString("\n### " + m.Name + "." + f.Name + "\n\n    " + signature(m.Name, f) + "\n\n" + f.Doc + f.access() + "\n\n")
			for line := range strings.SplitSeq(f.Example, "\n") {
				b.WriteString("    " + line + "\n")
			}
		}
	}
	return b.String()
}

// SignatureLine returns how the function is called, "" if there is none.
func (t Table) SignatureLine(function string) string {
	module, f := t.Find(function)
	if f == nil {
		return ""
	}
	return signature(module, f)
}

// Each visits the selected functions in order.
func (t Table) Each(pattern string, visit func(*Module, *Function)) {
	for _, m := range t {
		for i := range m.Functions {
			if selects(pattern, m.Name, m.Functions[i].Name) {
				visit(m, &m.Functions[i])
			}
		}
	}
}

func selects(pattern, module, function string) bool {
	return pattern == "" || pattern == module || fnmatch.Match(pattern, module+"."+function)
}

// signature writes the parameters in the order in which they are given.
func signature(module string, f *Function) string {
	var parts []string
	star := false
	for i, p := range f.Params {
		if f.Varargs && !star && i == f.positional() {
			parts, star = append(parts, "*args"), true
		}
		parts = append(parts, p.String())
	}
	if f.Varargs && !star {
		parts = append(parts, "*args")
	}
	if f.Kwargs {
		parts = append(parts, "**kwargs")
	}
	return module + "." + f.Name + "(" + strings.Join(parts, ", ") + ")"
}

// String writes the parameter as a signature does.
func (p Param) String() string {
	if p.Required {
		return p.Name
	}
	return p.Name + "=" + value.Repr(p.Default)
}

// document lays out what sys.doc shows for a function.
func document(module string, f *Function) string {
	var b strings.Builder
	b.WriteString(f.Doc)
	b.WriteString("\n\n    " + signature(module, f) + "\n\nCLI Example:\n\n")
	for line := range strings.SplitSeq(f.Example, "\n") {
		b.WriteString("    " + line + "\n")
	}
	return b.String()
}
