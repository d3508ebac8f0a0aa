package upstream

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/documented"
)

func generate(t *testing.T) *pki.PrivateKey {
	t.Helper()
	k, err := pki.Generate("ed25519", 0)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// onlyPin is what a minion of one master has pinned; nothing if key is zero.
func onlyPin(key pki.PublicKey) pins {
	p := pins{own: "/pki/minion_master.pub", keys: map[string]pki.PublicKey{}}
	if !key.IsZero() {
		p.keys[p.own] = key
	}
	return p
}

// stricter lists the cases in which Brine refuses what Salt takes, with reasons; laxerCases
// those in which it takes what Salt refuses.
var stricter = map[string]string{
	"signature-0159": "the signature is checked at every connection, also if the key is the pinned one",
}

func TestJudgeAsSalt(t *testing.T) {
	text, err := os.ReadFile("testdata/verify_master.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			ID             string
			Cached         *string
			Sig            *string
			Verify, Always bool
			Open, Accepted bool
			After          string
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	master, other, sign, wrong := generate(t), generate(t), generate(t), generate(t)
	sigs := map[string][]byte{}
	for name, k := range map[string]*pki.PrivateKey{"valid": sign, "invalid": wrong} {
		if sigs[name], err = k.SignPublic(master.Public()); err != nil {
			t.Fatal(err)
		}
	}
	laxer := laxerCases()
	var count documented.Comparison
	documented.Differences(t, slices.Collect(maps.Values(stricter))...)
	documented.Differences(t, slices.Collect(maps.Values(laxer))...)
	for _, c := range file.Cases {
		pin := filepath.Join(t.TempDir(), "minion_master.pub")
		if c.Cached != nil {
			if err := os.WriteFile(pin, cachedPin(*c.Cached, master.Public(), other.Public()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		before := pinnedAs(t, pin, master.Public())
		var sig []byte
		if c.Sig != nil {
			sig = sigs[*c.Sig]
		}
		err := meet(t, Options{PinFile: pin, Trust: Trust{Verify: c.Verify, OpenMode: c.Open, VerifyKey: sign.Public(), VerifyFile: "master_sign.pub"}}, master, sig)
		got := fmt.Sprint(err == nil, " ", pinnedAs(t, pin, master.Public()))
		after := map[string]string{"sent key": "the key sent", "absent": "nothing", "unchanged": before}[c.After]
		want := fmt.Sprint(c.Accepted, " ", after)
		reason := stricter[c.ID]
		if reason == "" {
			reason = laxer[c.ID]
		}
		count.Count(documented.Refusal(got == want, err == nil, c.Accepted))
		switch {
		case got == want && reason != "":
			t.Errorf("%s: listed as a difference and is none", c.ID)
		case got == want:
		case err != nil && c.Accepted && stricter[c.ID] == "", err == nil && !c.Accepted && laxer[c.ID] == "", reason == "":
			t.Errorf("%s: %s (%v), Salt: %s", c.ID, got, err, want)
		}
	}
	count.Stands(t, "trust in a master")
}

// cachedPin is a file with the key of the master, written with other line ends, or with
// another key.
func cachedPin(form string, master, other pki.PublicKey) []byte {
	text := master.PEM()
	switch form {
	case "other_key":
		return other.PEM()
	case "crlf":
		return bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	case "no_final_newline":
		return bytes.TrimSuffix(text, []byte("\n"))
	}
	return text
}

// pinnedAs says whose key a file holds.
func pinnedAs(t *testing.T, file string, sent pki.PublicKey) string {
	switch key, err := pki.LoadPublic(file); {
	case errors.Is(err, fs.ErrNotExist):
		return "nothing"
	case err != nil:
		t.Fatal(err)
	case key.Equal(sent):
		return "the key sent"
	}
	return "another key"
}

// meet is the handshake with a master that shows its key, and a signature or none.
func meet(t *testing.T, o Options, master *pki.PrivateKey, sig []byte) error {
	o.Name, o.Log, o.Speaks = "m:4506", slog.New(slog.DiscardHandler), Spoken("")
	var shown []pkix.Extension
	if sig != nil {
		shown = append(shown, pkix.Extension{Id: pki.SignatureOID, Value: sig})
	}
	certificate, err := master.ServerCertificate("m", shown...)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	h, err := newHandshake(o)
	if err == nil {
		err = h.verify(tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}})
	}
	if err == nil {
		err = h.pin()
	}
	return err
}

// laxerCases are those in which Salt fails by a fault of its own: it looks for a
// signature that it has not asked for.
func laxerCases() map[string]string {
	const reason = "no signature is required and the key is the pinned one; Salt's minion ends with an exception"
	return map[string]string{"signature-0137": reason, "signature-0177": reason, "signature-0217": reason}
}

func TestJudge(t *testing.T) {
	master, other, sign := generate(t), generate(t), generate(t)
	sig := func(k *pki.PrivateKey, over pki.PublicKey) []byte {
		s, err := k.SignPublic(over)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	verify := Trust{Verify: true, VerifyKey: sign.Public(), VerifyFile: "/pki/master_sign.pub"}
	lenient, damaged := verify, verify
	lenient.AllowUnsigned, damaged.AllowUnsigned = true, true
	damaged.VerifyKey, damaged.VerifyErr = pki.PublicKey{}, salt.WithHint(ErrSignature, "repair it")
	good := sig(sign, master.Public())
	for name, c := range map[string]struct {
		trust  Trust
		pinned pki.PublicKey
		sig    []byte
		want   error
	}{
		"first contact":                        {Trust{}, pki.PublicKey{}, nil, nil},
		"pinned":                               {Trust{}, master.Public(), nil, nil},
		"changed":                              {Trust{}, other.Public(), nil, ErrMasterKey},
		"changed in open mode":                 {Trust{OpenMode: true}, other.Public(), nil, nil},
		"signed":                               {verify, pki.PublicKey{}, good, nil},
		"signed and changed":                   {verify, other.Public(), good, nil},
		"not signed":                           {verify, master.Public(), nil, ErrSignature},
		"not signed, in open mode":             {Trust{Verify: true, OpenMode: true}, master.Public(), nil, ErrSignature},
		"signed though not asked":              {Trust{}, master.Public(), good, ErrSignature},
		"empty signature":                      {verify, pki.PublicKey{}, []byte{}, ErrSignature},
		"not signed, which is allowed, pinned": {lenient, master.Public(), nil, nil},
		"not signed, which is allowed, first contact": {lenient, pki.PublicKey{}, nil, nil},
		"not signed, which is allowed, changed":       {lenient, other.Public(), nil, ErrMasterKey},
		"signed, which need not be":                   {lenient, other.Public(), good, nil},
		"signed by another, and need not be":          {lenient, master.Public(), sig(other, master.Public()), ErrSignature},
		"verification key damaged":                    {damaged, master.Public(), good, ErrSignature},
		"verification key damaged, no signature":      {damaged, master.Public(), nil, ErrSignature},
		"first contact, which is not trusted":         {Trust{FirstUse: NeverFirst}, pki.PublicKey{}, nil, ErrMasterKey},
		"pinned, first contact is not trusted":        {Trust{FirstUse: NeverFirst}, master.Public(), nil, nil},
		"finger, first contact is not trusted":        {Trust{FirstUse: NeverFirst, Fingers: []string{master.Public().SHA256()}}, pki.PublicKey{}, nil, nil},
		"right finger, but changed":                   {Trust{Fingers: []string{master.Public().SHA256()}}, other.Public(), nil, ErrMasterKey},
		"changed, each":                               {Trust{FirstUse: EachMaster}, other.Public(), nil, ErrMasterKey},
		"signed by another, first contact":            {verify, pki.PublicKey{}, sig(other, master.Public()), ErrSignature},
		"signed by another, though pinned":            {verify, master.Public(), sig(other, master.Public()), ErrSignature},
		"signed by the master itself":                 {verify, pki.PublicKey{}, sig(master, master.Public()), ErrSignature},
		"signature of another key":                    {verify, pki.PublicKey{}, sig(sign, other.Public()), ErrSignature},
		// As Salt in its case signature-0090, in the same words.
		"verification key missing":   {Trust{Verify: true, VerifyFile: "x"}, master.Public(), good, ErrSignature},
		"finger":                     {Trust{Fingers: []string{"00", master.Public().SHA256()}}, pki.PublicKey{}, nil, nil},
		"wrong finger":               {Trust{Fingers: []string{other.Public().SHA256()}}, pki.PublicKey{}, nil, ErrMasterKey},
		"wrong finger though pinned": {Trust{Fingers: []string{other.Public().SHA256()}}, master.Public(), nil, ErrMasterKey},
		"wrong finger though signed and in open mode": {Trust{Verify: true, OpenMode: true, VerifyKey: sign.Public(), Fingers: []string{"00"}}, master.Public(), good, ErrMasterKey},
	} {
		basis, err := c.trust.judge("m:4506", onlyPin(c.pinned), master.Public(), c.sig)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || (basis == refused) != (err != nil) {
			t.Errorf("%s: %v, %v, want %v", name, basis, err, c.want)
		}
		if err != nil && salt.Hint(err) == "" {
			t.Errorf("%s: no hint with %v", name, err)
		}
	}
}

// TestPinsBelongToTheMinion changes the configuration of a minion that has met
// masters: whatever it names, an unknown key is trusted only where it says so.
func TestPinsBelongToTheMinion(t *testing.T) {
	a, b, unknown := generate(t).Public(), generate(t).Public(), generate(t).Public()
	const plain, atA, atB = "/pki/minion_master.pub", "/pki/minion_master.a.pub", "/pki/minion_master.b.pub"
	type keys = map[string]pki.PublicKey
	each, named := Trust{FirstUse: EachMaster}, Trust{Fingers: []string{b.SHA256()}}
	for name, c := range map[string]struct {
		trust   Trust
		own     string // where the configuration has it for this address
		pinned  keys
		damaged []string
		shown   pki.PublicKey
		want    basis
	}{
		"from one to a list, the same master":           {Trust{}, atA, keys{plain: a}, nil, a, onPin},
		"from one to a list, another key":               {Trust{}, atA, keys{plain: a}, nil, unknown, refused},
		"from one to a list, another key, each":         {each, atA, keys{plain: a}, nil, unknown, refused},
		"from one to a list, a further master":          {Trust{}, atB, keys{plain: a, atA: a}, nil, b, refused},
		"from one to a list, a further master, each":    {each, atB, keys{plain: a, atA: a}, nil, b, onFirst},
		"from one to a list, a further master, named":   {named, atB, keys{plain: a, atA: a}, nil, b, onFinger},
		"from one to a list, another than is named":     {named, atB, keys{plain: a, atA: a}, nil, unknown, refused},
		"in another order":                              {Trust{}, atB, keys{atA: a, atB: b}, nil, b, onPin},
		"one master in the place of another":            {Trust{}, atB, keys{atA: a, atB: b}, nil, a, refused},
		"a changed key in a list":                       {each, atB, keys{atA: a, atB: b}, nil, unknown, refused},
		"a changed key in a list, open_mode":            {Trust{OpenMode: true}, atB, keys{atA: a, atB: b}, nil, unknown, onOpening},
		"by another address":                            {Trust{}, "/pki/minion_master.c.pub", keys{atA: a, atB: b}, nil, b, onPin},
		"an unknown one at a new address":               {Trust{}, "/pki/minion_master.c.pub", keys{atA: a, atB: b}, nil, unknown, refused},
		"back to one of a list":                         {Trust{}, plain, keys{atA: a, atB: b}, nil, b, onPin},
		"back to one, unknown":                          {each, plain, keys{atA: a, atB: b}, nil, unknown, refused},
		"the first of a list":                           {Trust{}, atA, nil, nil, a, onFirst},
		"the first of a list, none is to be trusted":    {Trust{FirstUse: NeverFirst}, atA, nil, nil, a, refused},
		"the second of a list":                          {Trust{}, atB, keys{atA: a}, nil, b, refused},
		"the second of a list, each":                    {each, atB, keys{atA: a}, nil, b, onFirst},
		"nothing but a damaged file":                    {Trust{}, atB, nil, []string{atA}, b, refused},
		"nothing but a damaged file, each":              {each, atB, nil, []string{atA}, b, refused},
		"pinned, beside a damaged file":                 {Trust{}, atB, keys{atB: b}, []string{atA}, b, onPin},
		"a new one, beside a damaged file, open_mode":   {Trust{OpenMode: true}, atB, nil, []string{atA}, b, onOpening},
		"a new one for a single master, which is named": {named, plain, keys{plain: a}, nil, b, refused},
	} {
		p := pins{own: c.own, keys: c.pinned, damaged: c.damaged}
		got, err := c.trust.judge("m:4506", p, c.shown, nil)
		if got != c.want || (err != nil) != (got == refused) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
		if got == refused && (!errors.Is(err, ErrMasterKey) && len(c.trust.Fingers) == 0 || !strings.Contains(err.Error(), c.shown.SHA256()) || salt.Hint(err) == "") {
			t.Errorf("%s: refused with %v (hint %q)", name, err, salt.Hint(err))
		}
	}
}
