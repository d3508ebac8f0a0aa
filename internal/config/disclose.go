package config

import (
	"slices"
	"strings"
)

// Hidden is shown in place of a secret.
const Hidden = "** hidden **"

// secretWords are parts of the names of settings whose values are secrets.
var secretWords = []string{"password", "passwd", "secret", "token_key", "bindpw"}

// Disclose returns settings without the secrets in them, for showing them: what a runner
// returns is in the journal, what a tool prints is in the terminal's scrollback and in bug
// reports.
func Disclose(settings map[string]any) map[string]any {
	open, _ := disclosed(settings).(map[string]any)
	return open
}

// disclosed is Disclose for any part of the settings.
func disclosed(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(x))
		for name, value := range x {
			if out[name] = disclosed(value); isSecret(name) && value != nil && value != "" {
				out[name] = Hidden
			}
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, value := range x {
			out[i] = disclosed(value)
		}
		return out
	}
	return v
}

func isSecret(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(name, w) })
}
