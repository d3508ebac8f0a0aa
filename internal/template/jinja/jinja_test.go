package jinja

import (
	"errors"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/template"
)

var values = map[string]any{
	"grains": map[string]any{"os": "Debian", "cpus": int64(4), "evil": "{{ pillar.secret }}{% for %}"},
	"pillar": map[string]any{"secret": "geheim", "users": []any{"ann", "bob"}, "db": map[string]any{"port": int64(5432), "name": "it's"}},
	"opts":   map[string]any{"id": "web1"},
}

func TestRender(t *testing.T) {
	for in, want := range map[string]string{
		"plain\n":                                  "plain\n",
		"{{ grains.os }} {{ grains['os'] }}":       "Debian Debian",
		"{{ opts.id }}:{{ pillar.db.port + 1 }}\n": "web1:5433\n",
		"{{ grains.get('nosuch', 'd') }}{{ nosuch | default('e') }}":                                          "de",
		"{% if grains.os == 'Debian' and grains.cpus >= 4 %}yes{% else %}no{% endif %}":                       "yes",
		"{% for u in pillar.users -%}\n{{ loop.index }}{{ u | upper }}\n{%- endfor %}":                        "1ANN2BOB",
		"{% for k, v in pillar.db.items() %}{{ k }}={{ v }};{% endfor %}":                                     "name=it's;port=5432;",
		"{% set x = 'a' %}{{ x ~ 1 }}{# nothing #}{% raw %}{{ x }}{% endraw %}":                               "a1{{ x }}",
		"{% macro f(a, b=2) %}<{{ a }}{{ b }}>{% endmacro %}{{ f(1) }}":                                       "<12>",
		"{{ salt['pillar.get']('db:port', 1) }}{{ salt['grains.get']('no:such', 'd') }}":                      "5432d",
		"{{ pillar.users | join(',') }} {{ pillar.users | length }} {{ 'a b'.split(' ') | last }}":            "ann,bob 2 b",
		"{{ pillar.db | json }}|{{ pillar.users | yaml }}|{{ pillar.db.name | quote }}":                       `{"name":"it's","port":5432}|["ann","bob"]|'it'"'"'s'`,
		"{{ pillar.db.name | yaml_squote }} {{ pillar.db.name | yaml_dquote }}":                               `'it''s' "it's"`,
		"{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}": "3",
		// what a minion says of itself is text, whatever it looks like
		"{{ grains.evil }}": "{{ pillar.secret }}{% for %}",
		"{% set e = grains.evil %}{{ e }}{{ e | upper }}": "{{ pillar.secret }}{% for %}{{ PILLAR.SECRET }}{% FOR %}",
	} {
		got, err := Render(in, values)
		if err != nil || got != want {
			t.Errorf("%q makes %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	for in, want := range map[string]template.Mistake{
		"a\n{{ nosuch }}":                       {Line: 2, Text: "nosuch is not defined"},
		"a\n\n{{ pillar.nosuch }}":              {Line: 3, Text: "attribute 'nosuch' not found"},
		"{{ pillar.secret | nosuch }}":          {Line: 1, Text: "filter 'nosuch' not found"},
		"a\n{% if true %}\n":                    {Line: 3, Text: "Unexpected EOF, expected tag elif or else or endif"},
		"a\n{{ 1 + }}":                          {Line: 2, Text: "it cannot be read or evaluated as a template"},
		"{{ 1 % 0 }}":                           {Text: "it cannot be evaluated: runtime error: integer divide by zero"},
		"{{ pillar.secret.nosuch.more }}":       {Line: 1, Text: "attribute 'nosuch' not found"},
		"{{ salt['pillar.get']() }}":            {Line: 1, Text: "pillar.get takes a name and a default"},
		"{{ pillar.secret }}{{ 'geheim'|bad }}": {Line: 1, Text: "filter 'bad' not found"},
	} {
		_, err := Render(in, values)
		var got *template.Mistake
		if !errors.As(err, &got) || *got != want {
			t.Errorf("%q: %#v, want %+v", in, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: the error shows a value: %v", in, err)
		}
	}
}

// Whatever reads files, runs a program or leaves the given values is not available.
func TestTemplatesCannotReachFilesOrPrograms(t *testing.T) {
	for _, in := range []string{
		"{% include '/etc/passwd' %}", "{% include 'template' %}", "{% import '/etc/passwd' as x %}", "{% from '/etc/passwd' import x %}", "{% extends '/etc/passwd' %}",
		"{{ salt['cmd.run']('id') }}", "{{ salt.cmd.run('id') }}", "{{ lipsum(5) }}", "{{ self.nosuch() }}",
		"{{ ''.__class__ }}", "{{ grains.__class__.__mro__ }}", "{{ config.items() }}", "{{ opts.master }}",
		"{{ 'x' | random }}", "{{ x.y() }}", "{{ range.__globals__ }}",
	} {
		if got, err := Render(in, values); err == nil {
			t.Errorf("%q makes %q", in, got)
		}
	}
}

func TestOutputIsBounded(t *testing.T) {
	line := strings.Repeat("x", 1<<16)
	_, err := Render("{% for i in range(1000000) %}"+line+"{% endfor %}", values)
	if err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a gigabyte of output: %v", err)
	}
}

func FuzzRender(f *testing.F) {
	for _, s := range []string{"{{ grains.os }}", "{% if x %}", "{% for i in pillar.users %}{{ i }}{% endfor %}", "{{ 1 % 0 }}", "{#", "{{ '", "{%- raw -%}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 200 || strings.ContainsAny(text, "*0123456789") || strings.Contains(text, "macro") {
			return // what takes long is for the program that is ended then
		}
		out, err := Render(text, values)
		var m *template.Mistake
		if err != nil && (out != "" || !errors.As(err, &m)) {
			t.Errorf("%q: %q, %v", text, out, err)
		}
	})
}
