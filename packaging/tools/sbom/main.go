// Command sbom prints the bill of materials of Go programs, as CycloneDX 1.6 in JSON: the
// modules that are linked into them, with their versions and sums, as the linker wrote them
// down. The same programs give the same bytes: no time, no serial number.
//
//	sbom NAME VERSION PROGRAM...
package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: sbom NAME VERSION PROGRAM...")
		os.Exit(64)
	}
	if err := run(os.Stdout, os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom: error:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, name, version string, programs []string) error {
	linked, err := modules(programs)
	if err != nil {
		return err
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{Type: cdx.ComponentTypeApplication, Name: name, Version: version, BOMRef: name}}
	components := make([]cdx.Component, 0, len(linked))
	for _, m := range linked {
		components = append(components, component(m))
	}
	bom.Components = &components
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
}

// modules returns what is linked into any of the programs, each once, sorted; and the
// standard library, whose weaknesses are those of the programs too.
func modules(programs []string) ([]*debug.Module, error) {
	found := map[string]*debug.Module{}
	for _, p := range programs {
		info, err := buildinfo.ReadFile(p)
		if err != nil {
			return nil, err
		}
		std := &debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}
		for _, m := range append(info.Deps, std) {
			if m.Replace != nil {
				m = m.Replace
			}
			found[m.Path+"@"+m.Version] = m
		}
	}
	list := make([]*debug.Module, 0, len(found))
	for _, m := range found {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *debug.Module) int { return strings.Compare(a.Path+"@"+a.Version, b.Path+"@"+b.Version) })
	return list, nil
}

func component(m *debug.Module) cdx.Component {
	url := "pkg:golang/" + m.Path + "@" + m.Version
	c := cdx.Component{Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: url, BOMRef: url}
	if m.Sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
	}
	return c
}
