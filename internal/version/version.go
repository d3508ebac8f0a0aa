// Package version knows which release of Brine this program is. It does not
// compare versions.
package version

import (
	"runtime/debug"
	"strings"
)

// Name is the name of the project, shown behind the number.
const Name = "Brine"

// Release is the number of the release that this is, or is on the way to.
const Release = "0.2.0"

// development marks a build that is not a release.
const development = Release + "-dev"

// version is set by the release build:
//
//	go build -ldflags "-X github.com/brinebus/brine/internal/version.version=0.1.0"
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
	if number := fromModule(info.Main.Version); number != development {
		return number
	}
	return development + build(info.Settings)
}

// commitLen is how much of a commit tells it from others.
const commitLen = 12

// build names what a development build was made of, as far as the toolchain knows, in
// the form in which a number ignores it when it is compared: +COMMIT.
func build(settings []debug.BuildSetting) string {
	var commit, modified string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			commit = "+" + s.Value[:min(commitLen, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = ".modified"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + modified
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
