package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Report returns what --versions-report prints: the program, the modules that it
// was built from, and the system, in the sections that Salt has.
func Report(program string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s Version:\n%s\n", Name, reportLine(program, Version()))
	if info, ok := debug.ReadBuildInfo(); ok {
		b.WriteString("Dependency Versions:\n")
		for _, module := range info.Deps {
			b.WriteString(reportLine(module.Path, moduleVersion(module)))
		}
		b.WriteString("\n")
	}
	b.WriteString("System Versions:\n")
	b.WriteString(reportLine("go", runtime.Version()))
	b.WriteString(reportLine("system", runtime.GOOS+"/"+runtime.GOARCH))
	return b.String()
}

// moduleVersion returns the version of the code that was really built in.
func moduleVersion(m *debug.Module) string {
	if m.Replace != nil {
		return m.Replace.Version
	}
	return m.Version
}

func reportLine(name, version string) string {
	return fmt.Sprintf("%45s: %s\n", name, version)
}
