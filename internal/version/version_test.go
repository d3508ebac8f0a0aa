package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestFromModule(t *testing.T) {
	for recorded, want := range map[string]string{
		"v0.1.0":  "0.1.0",
		"v1.2.3":  "1.2.3",
		"(devel)": development,
		"":        development,
		"v0.0.0-20261121112450-64595dc00000+dirty": development,
	} {
		if got := fromModule(recorded); got != want {
			t.Errorf("fromModule(%q) = %q, want %q", recorded, got, want)
		}
	}
}

func TestBuild(t *testing.T) {
	for want, settings := range map[string][]debug.BuildSetting{
		"":                       {{Key: "vcs.modified", Value: "true"}},
		"+64595dc0aaaa":          {{Key: "vcs.revision", Value: "64595dc0aaaabbbbcccc"}, {Key: "vcs.modified", Value: "false"}},
		"+64595dc0aaaa.modified": {{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "64595dc0aaaabbbbcccc"}},
	} {
		if got := build(settings); got != want {
			t.Errorf("build(%v) = %q, want %q", settings, got, want)
		}
	}
}

func TestReport(t *testing.T) {
	got := Report("salt-try")
	for _, want := range []string{"Brine Version:\n", " salt-try: " + Version() + "\n", "\nDependency Versions:\n", " go: go1."} {
		if !strings.Contains(got, want) {
			t.Errorf("Report lacks %q:\n%s", want, got)
		}
	}
}
