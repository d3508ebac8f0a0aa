package upstream

import "testing"

func TestWithPort(t *testing.T) {
	for host, want := range map[string]string{
		"salt": "salt:4506", "salt:4510": "salt:4510", "10.0.0.1": "10.0.0.1:4506", "10.0.0.1:1": "10.0.0.1:1",
		"::1": "[::1]:4506", "[::1]": "[::1]:4506", "[::1]:4510": "[::1]:4510", "2001:db8::1": "[2001:db8::1]:4506",
	} {
		if got := WithPort(host, 4506); got != want {
			t.Errorf("WithPort(%q) = %q, want %q", host, got, want)
		}
	}
}
