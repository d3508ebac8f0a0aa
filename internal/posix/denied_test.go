package posix

import (
	"strings"
	"testing"
)

// TestTheHintAboutADeniedFileFitsTheUser: nobody is told to become who they are.
func TestTheHintAboutADeniedFileFitsTheUser(t *testing.T) {
	const otherwise = "run this as root"
	for name, c := range map[string]struct {
		denied
		want string
	}{
		"root":                                {denied{0, false, 0, 0o400}, "SELinux"},
		"root, and the file cannot be seen":   {denied{0, false, -1, 0}, "NFS"},
		"its owner, who may not read it":      {denied{7, false, 7, 0o200}, "chmod u+r /k"},
		"its owner, who may":                  {denied{7, false, 7, 0o600}, "directories above it"},
		"a user that root has become":         {denied{7, true, 0, 0o400}, "uid 7, by the setting user: chown 7 /k"},
		"the same, who may not enter":         {denied{7, true, -1, 0}, "enter the directories above /k"},
		"another user":                        {denied{8, false, 7, 0o400}, otherwise},
		"another user, who may not enter":     {denied{8, false, -1, 0}, otherwise},
		"a system that does not tell its uid": {denied{-1, false, -1, 0}, otherwise},
	} {
		got := c.hint("/k", otherwise)
		if !strings.Contains(got, c.want) || c.want != otherwise && strings.Contains(got, otherwise) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
