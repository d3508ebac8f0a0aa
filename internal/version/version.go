// Package version knows which release of Brine this program is. It does not
// compare versions.
package version

import (
	"runtime/debug"
	"strings"
)

// Name is the name of the project, shown behind the number.
const Name = "Brine"

// development is the number of a build that is no release.
const development = "0.1.0-dev"

// version is set by the release build:
//
//	go build -ldflags "-X brine/internal/version.version=0.1.0"
var version string

// Version returns the number without a leading v: the one that the release
// build set, else the tag that the Go toolchain recorded, else that of the
// development tree.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return development
	}
	return fromModule(info.Main.Version)
}

// fromModule returns the number for the version of the main module as the
// toolchain writes it: "(devel)" or a pseudo-version when no tag was near.
func fromModule(v string) string {
	number, tagged := strings.CutPrefix(v, "v")
	if !tagged || strings.HasPrefix(number, "0.0.0-") {
		return development
	}
	return number
}
