// Package e2e holds the scripts that use all the binaries together, as a person
// at a shell would: real processes, real keys, a real bus on a loopback port.
//
// It has no code of its own outside of its tests, and nothing imports it. The
// scripts are testdata/*.txtar; README.md lists their commands.
package e2e
