package job

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func newKey(t testing.TB) *pki.PrivateKey {
	t.Helper()
	k, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sample() *Envelope {
	return &Envelope{
		JID: "20261121113344286549", Target: "web*", TargetType: "glob", Delimiter: ":", User: "fred", From: "web9", Returner: "smtp", ReturnTag: "monitoring",
		ReturnConfig: "other", ReturnKwargs: value.Value{V: map[string]any{"port": int64(25)}}, Follow: true,
		Commands: []Command{{Function: "cmd.run", Args: []any{"uptime"}, Kwargs: map[string]any{"timeout": int64(5)}}, {Function: "test.ping"}},
		Compound: true, Live: true, Expires: noon.Add(time.Minute), Heartbeat: 2, Reach: salt.Reach{Judged: []string{"key"}},
	}
}

func TestSealAndOpen(t *testing.T) {
	for name, kind := range map[string]struct {
		kind pki.KeyType
		bits int
	}{"ed25519": {pki.Ed25519, 0}, "rsa": {pki.RSA, 2048}} {
		t.Run(name, func(t *testing.T) {
			key, err := pki.Generate(kind.kind, kind.bits)
			if err != nil {
				t.Fatal(err)
			}
			b, err := Seal(sample(), key)
			if err != nil {
				t.Fatal(err)
			}
			e, err := Open(b, key.Public(), noon)
			if err != nil {
				t.Fatal(err)
			}
			want := sample()
			want.Commands[1].Args, want.Commands[1].Kwargs = []any{}, map[string]any{}
			if !reflect.DeepEqual(e, want) {
				t.Errorf("opened %+v, want %+v", e, want)
			}
		})
	}
}

// Whatever is changed of a sealed job, it is not a job of this master any more.
func TestEveryFieldIsSigned(t *testing.T) {
	key := newKey(t)
	b, err := Seal(sample(), key)
	if err != nil {
		t.Fatal(err)
	}
	var s signed
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(s.Job, &fields); err != nil {
		t.Fatal(err)
	}
	if want := reflect.TypeFor[Envelope]().NumField(); len(fields) != want {
		t.Fatalf("the sample fills %d of %d fields", len(fields), want)
	}
	for name := range fields {
		for what, value := range map[string]json.RawMessage{"changed": json.RawMessage(`"20261121113344286550"`), "removed": nil} {
			altered := map[string]json.RawMessage{}
			for k, v := range fields {
				altered[k] = v
			}
			altered[name] = value
			if value == nil {
				delete(altered, name)
			}
			job, err := json.Marshal(altered)
			if err != nil {
				t.Fatal(err)
			}
			if e, err := Open(seal(t, job, s.Sig), key.Public(), noon); !errors.Is(err, ErrSignature) || e != nil {
				t.Errorf("%s %s: %+v, %v; want ErrSignature", name, what, e, err)
			}
		}
	}
}

func seal(t testing.TB, job, sig []byte) []byte {
	t.Helper()
	b, err := json.Marshal(signed{Job: job, Sig: sig})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOpenRefuses(t *testing.T) {
	key, other := newKey(t), newKey(t)
	good, err := Seal(sample(), key)
	if err != nil {
		t.Fatal(err)
	}
	var s signed
	if err := json.Unmarshal(good, &s); err != nil {
		t.Fatal(err)
	}
	signAs := func(k *pki.PrivateKey, text string) []byte {
		sig, err := k.Sign([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return sig
	}
	foreign, err := Seal(sample(), other)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"nothing":                 nil,
		"no JSON":                 []byte("run this"),
		"null":                    []byte("null"),
		"a list":                  []byte("[]"),
		"no signature":            seal(t, s.Job, nil),
		"empty signature":         seal(t, s.Job, []byte{}),
		"another master":          foreign,
		"no context":              seal(t, s.Job, signAs(key, string(s.Job))),
		"context of a signed pub": seal(t, s.Job, signAs(key, string(key.Public().PEM())+string(s.Job))),
		"context twice":           seal(t, s.Job, signAs(key, signContext+signContext+string(s.Job))),
		"the context within":      seal(t, []byte(`"`+`"`), signAs(key, signContext)),
		"a bit":                   flip(good),
		"two jobs":                []byte(strings.Replace(string(good), `{"job":`, `{"job":`+string(s.Job)+`,"job":{"jid":"x"},"Job":`, 1)[:len(good)]),
		"later job wins":          []byte(`{"job":` + string(s.Job) + `,"sig":"` + base64.StdEncoding.EncodeToString(s.Sig) + `","job":{"jid":"20261121113344286550"}}`),
	} {
		if e, err := Open(b, key.Public(), noon); !errors.Is(err, ErrSignature) || e != nil {
			t.Errorf("%s: %+v, %v; want ErrSignature", name, e, err)
		}
	}
	if _, err := Open(good, pki.PublicKey{}, noon); !errors.Is(err, ErrSignature) {
		t.Errorf("with no key at all: %v", err)
	}
}

// flip changes one bit of the signature.
func flip(b []byte) []byte {
	b = bytes.Clone(b)
	i := bytes.Index(b, []byte(`"sig":"`)) + len(`"sig":"`)
	if b[i] == 'A' {
		b[i] = 'B'
	} else {
		b[i] = 'A'
	}
	return b
}

// What is signed and makes no sense is refused too: the key says who, not that it
// is right.
func TestOpenOfSignedNonsense(t *testing.T) {
	key := newKey(t)
	for name, job := range map[string]string{
		"no object":        `[]`,
		"no jid":           `{"commands":[{"fun":"test.ping"}],"expires":"2026-11-21T12:01:00Z"}`,
		"a path as jid":    `{"jid":"../../../../etc/x","commands":[{"fun":"test.ping"}],"expires":"2026-11-21T12:01:00Z"}`,
		"no command":       `{"jid":"20261121113344286549","expires":"2026-11-21T12:01:00Z"}`,
		"no function":      `{"jid":"20261121113344286549","commands":[{}],"expires":"2026-11-21T12:01:00Z"}`,
		"odd function":     `{"jid":"20261121113344286549","commands":[{"fun":"__import__('os')"}],"expires":"2026-11-21T12:01:00Z"}`,
		"args no list":     `{"jid":"20261121113344286549","commands":[{"fun":"test.ping","arg":"x"}],"expires":"2026-11-21T12:01:00Z"}`,
		"kwargs no map":    `{"jid":"20261121113344286549","commands":[{"fun":"test.ping","kwarg":[]}],"expires":"2026-11-21T12:01:00Z"}`,
		"unreadable times": `{"jid":"20261121113344286549","commands":[{"fun":"test.ping"}],"expires":"soon"}`,
	} {
		sig, err := key.Sign([]byte(signContext + job))
		if err != nil {
			t.Fatal(err)
		}
		if e, err := Open(seal(t, []byte(job), sig), key.Public(), noon); err == nil || e != nil {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

func TestExpiry(t *testing.T) {
	key := newKey(t)
	e := sample()
	b, err := Seal(e, key)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		now  time.Time
		want error
	}{
		"before":          {e.Expires.Add(-time.Nanosecond), nil},
		"at the moment":   {e.Expires, ErrExpired},
		"after":           {e.Expires.Add(time.Hour), ErrExpired},
		"in another zone": {e.Expires.Add(-time.Second).In(time.FixedZone("x", 14*3600)), nil},
	} {
		got, err := Open(b, key.Public(), c.now)
		if !errors.Is(err, c.want) || got == nil || got.JID != e.JID {
			t.Errorf("%s: %v, %v; want %v and the job", name, got, err, c.want)
		}
	}
	e.Expires = time.Time{}
	if b, err = Seal(e, key); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(b, key.Public(), noon); !errors.Is(err, ErrExpired) {
		t.Errorf("a job without an expiry: %v, want ErrExpired", err)
	}
}

func FuzzOpen(f *testing.F) {
	key := newKey(f)
	good, err := Seal(sample(), key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"job":{},"sig":""}`))
	f.Add([]byte(strings.Repeat("[", 10_000)))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Open(b, key.Public(), noon)
		if err == nil || e != nil {
			var s, want signed
			if json.Unmarshal(b, &s) != nil || json.Unmarshal(good, &want) != nil || !bytes.Equal(s.Job, want.Job) {
				t.Errorf("opened %q: %+v, %v", b, e, err)
			}
		}
	})
}

// The types of arguments are part of a job: 1, 1.0 and "1" are three things.
func TestCommandKeepsTypes(t *testing.T) {
	huge, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	for name, v := range map[string]any{
		"int": int64(1), "float": 1.0, "text": "1", "huge": huge, "nil": nil, "bool": true, "bytes": "\xff\x00", "empty": "",
		"list": []any{int64(1), 1.0, []any{}}, "map": map[string]any{"a": 1.0, "b": map[string]any{}},
	} {
		in := Command{Function: "test.arg", Args: []any{v}, Kwargs: map[string]any{"k": v}}
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out Command
		if err := json.Unmarshal(b, &out); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(out, in) {
			t.Errorf("%s: %s became %#v", name, b, out)
		}
	}
}

func TestReportKeepsTypes(t *testing.T) {
	in := Report{State: Done, Return: value.Value{V: map[string]any{"a": 1.0, "b": int64(1), "c": "\xff"}}, Retcode: value.Value{V: int64(0)}, Success: value.Value{V: true}}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out Report
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(out.Return, in.Return) {
		t.Errorf("%s became %#v", b, out.Return)
	}
}

func TestFun(t *testing.T) {
	one, two := []Command{{Function: "test.ping"}}, []Command{{Function: "test.ping"}, {Function: "grains.items"}}
	for name, c := range map[string]struct {
		e    Envelope
		want any
	}{
		"one":             {Envelope{Commands: one}, "test.ping"},
		"one as a list":   {Envelope{Commands: one, Compound: true}, []any{"test.ping"}},
		"compound":        {Envelope{Commands: two, Compound: true}, []any{"test.ping", "grains.items"}},
		"several, though": {Envelope{Commands: two}, []any{"test.ping", "grains.items"}},
	} {
		if got := c.e.Fun(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := (&Envelope{Commands: two}).Functions(); !reflect.DeepEqual(got, []salt.Function{"test.ping", "grains.items"}) {
		t.Errorf("functions %v", got)
	}
}
