package config

import (
	"reflect"
	"testing"
)

func TestSecretsAreNotDisclosed(t *testing.T) {
	got := Disclose(map[string]any{
		"sharedsecret": "marker", "http": map[string]any{"password": "marker", "user": "fred"},
		"list": []any{map[string]any{"auth.ldap.bindpw": "marker"}}, "token_expire": int64(5), "empty_password": nil, "no_password": "",
	})
	want := map[string]any{
		"sharedsecret": Hidden, "http": map[string]any{"password": Hidden, "user": "fred"},
		"list": []any{map[string]any{"auth.ldap.bindpw": Hidden}}, "token_expire": int64(5), "empty_password": nil, "no_password": "",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("disclosed %v, want %v", got, want)
	}
}
