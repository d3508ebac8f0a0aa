package saltcmd

import (
	"slices"
	"strings"
	"testing"
)

// A minion may be called as a command is: it is meant where a function follows.
func TestSubcommand(t *testing.T) {
	for line, want := range map[string]string{
		"":                                "",
		"login":                           "login",
		"logout":                          "logout",
		"login tls://salt.example.com":    "login tls://salt.example.com",
		"login -a pam tls://host:4506":    "login -a pam tls://host:4506",
		"login --help":                    "login --help",
		"logout -q":                       "logout -q",
		"login test.ping":                 "",
		"logout test.ping":                "",
		"login cmd.run uptime":            "",
		"-t 5 login test.ping":            "",
		"web1 test.ping tls://host":       "",
		"login salt.example.com":          "",
		"logout test.ping tls://the.text": "",
	} {
		c, rest, ok := subcommand(strings.Fields(line))
		got := ""
		if ok {
			got = strings.Join(slices.Concat([]string{c.name}, rest), " ")
		}
		if got != want {
			t.Errorf("salt %s: command %q, want %q", line, got, want)
		}
	}
}
