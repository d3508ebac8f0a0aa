package saltpam

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/cli"
)

// A request that is not valid is refused before PAM is called, with nothing on standard output that
// could count as consent.
func TestInvalidRequestsDoNotReachPAM(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "fred", "a list": "[]", "a wrong type": `{"user": 7}`,
		"too long": `{"service": "login", "user": "` + strings.Repeat("x", maxQuestion) + `"}`,
	} {
		var out, said strings.Builder
		env := &cli.Env{Name: "salt-pam", Stdin: strings.NewReader(text), Stdout: &out, Stderr: &said, Getenv: func(string) string { return "" }}
		if code := Run(context.Background(), env); code != cli.Usage || out.Len() > 0 || !strings.Contains(said.String(), "read the question") {
			t.Errorf("%s: ends with %d, answers %q and says %q", name, code, out.String(), said.String())
		}
	}
	env := &cli.Env{Name: "salt-pam", Args: []string{"fred"}, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }}
	if code := Run(context.Background(), env); code != cli.Usage {
		t.Errorf("a question on the command line ends with %d", code)
	}
}
