package module

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/go-crypt/crypt"
	"github.com/go-crypt/crypt/algorithm/shacrypt"
)

// The values are those of crypt(3).
func TestShadowHash(t *testing.T) {
	for want, kwargs := range map[string]map[string]any{
		"$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1": {"crypt_salt": "saltstring", "password": "Hello world!"},
		"$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5":                                            {"crypt_salt": "saltstring", "password": "Hello world!", "algorithm": "sha256"},
	} {
		same(t, "shadow_hash", good(t, nil, "random.shadow_hash", kwargs), want)
	}
	decoder := crypt.NewDecoder()
	if err := shacrypt.RegisterDecoder(decoder); err != nil {
		t.Fatal(err)
	}
	first := good(t, nil, "random.shadow_hash", map[string]any{"password": "secret"}).(string)
	second := good(t, nil, "random.shadow_hash", map[string]any{"password": "secret"}).(string)
	d, err := decoder.Decode(first)
	if err != nil || !d.Match("secret") || d.Match("Secret") || first == second || !strings.HasPrefix(first, "$6$") {
		t.Errorf("of a password: %s, %s, %v", first, second, err)
	}
	if good(t, nil, "random.shadow_hash", nil) == good(t, nil, "random.shadow_hash", nil) {
		t.Error("two passwords that nobody knows are the same")
	}
	bad(t, nil, "random.shadow_hash", "unknown algorithm", map[string]any{"algorithm": "md5"})
	for _, salt := range []string{"a$b", "seventeen-letters", "abcdefghijklmnopq", "ä"} {
		bad(t, nil, "random.shadow_hash", "a salt has", map[string]any{"crypt_salt": salt})
	}
}

// TestShadowHashOfOpenSSL compares with another implementation, where there is one.
func TestShadowHashOfOpenSSL(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed")
	}
	for algorithm, flag := range map[string]string{"sha512": "-6", "sha256": "-5"} {
		for _, password := range []string{"secret", "two words", strings.Repeat("long", 20), "ü"} {
			want, err := exec.Command("openssl", "passwd", flag, "-salt", "abc./XYZ", password).Output()
			if err != nil {
				t.Fatal(err)
			}
			got := good(t, nil, "random.shadow_hash", map[string]any{"crypt_salt": "abc./XYZ", "password": password, "algorithm": algorithm})
			same(t, algorithm+" of "+password, got, strings.TrimSpace(string(want)))
		}
	}
}
