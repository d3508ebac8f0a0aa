package link

import (
	"encoding/json"
	"errors"
	"os"
	"testing"

	"brine/internal/pki"
	"brine/internal/salt"
)

func generate(t *testing.T) *pki.PrivateKey {
	t.Helper()
	k, err := pki.Generate("ed25519", 0)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// stricter lists the cases in which Brine refuses what Salt takes, with reasons.
// There is none in which it takes what Salt refuses.
var stricter = map[string]string{
	"signature-0159": "the signature is checked at every contact, also when the key is the pinned one",
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
	laxer, agreed := laxerCases(), 0
	for _, c := range file.Cases {
		pinned := pki.PublicKey{}
		if c.Cached != nil && *c.Cached == "other_key" {
			pinned = other.Public()
		} else if c.Cached != nil {
			pinned = master.Public()
		}
		var sig []byte
		if c.Sig != nil {
			sig = sigs[*c.Sig]
		}
		trust := Trust{Verify: c.Verify, OpenMode: c.Open, VerifyKey: sign.Public(), VerifyFile: "master_sign.pub"}
		err := trust.judge("m:4506", "minion_master.pub", pinned, master.Public(), sig)
		if (err == nil) == c.Accepted {
			agreed++
			if stricter[c.ID] != "" || laxer[c.ID] != "" {
				t.Errorf("%s: listed as a difference and is none", c.ID)
			}
			continue
		}
		if err != nil && stricter[c.ID] == "" || err == nil && laxer[c.ID] == "" {
			t.Errorf("%s: %v, Salt accepts: %v", c.ID, err, c.Accepted)
		}
	}
	t.Logf("%d of %d cases agree", agreed, len(file.Cases))
}

// laxerCases are those in which Salt fails by a fault of its own: it looks for a
// signature that it has not asked for.
func laxerCases() map[string]string {
	const reason = "no signature is asked for and the key is the pinned one; Salt stops with an exception"
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
	good := sig(sign, master.Public())
	for name, c := range map[string]struct {
		trust  Trust
		pinned pki.PublicKey
		sig    []byte
		want   error
	}{
		"first contact":                    {Trust{}, pki.PublicKey{}, nil, nil},
		"pinned":                           {Trust{}, master.Public(), nil, nil},
		"changed":                          {Trust{}, other.Public(), nil, ErrMasterKey},
		"changed in open mode":             {Trust{OpenMode: true}, other.Public(), nil, nil},
		"signed":                           {verify, pki.PublicKey{}, good, nil},
		"signed and changed":               {verify, other.Public(), good, nil},
		"not signed":                       {verify, master.Public(), nil, ErrSignature},
		"not signed, in open mode":         {Trust{Verify: true, OpenMode: true}, master.Public(), nil, ErrSignature},
		"signed though not asked":          {Trust{}, master.Public(), good, ErrSignature},
		"empty signature":                  {verify, pki.PublicKey{}, []byte{}, ErrSignature},
		"signed by another, first contact": {verify, pki.PublicKey{}, sig(other, master.Public()), ErrSignature},
		"signed by another, though pinned": {verify, master.Public(), sig(other, master.Public()), ErrSignature},
		"signed by the master itself":      {verify, pki.PublicKey{}, sig(master, master.Public()), ErrSignature},
		"signature of another key":         {verify, pki.PublicKey{}, sig(sign, other.Public()), ErrSignature},
		// As Salt in its case signature-0090, in the same words.
		"verification key missing":   {Trust{Verify: true, VerifyFile: "x"}, master.Public(), good, ErrSignature},
		"finger":                     {Trust{Finger: master.Public().SHA256()}, pki.PublicKey{}, nil, nil},
		"wrong finger":               {Trust{Finger: other.Public().SHA256()}, pki.PublicKey{}, nil, ErrMasterKey},
		"wrong finger though pinned": {Trust{Finger: other.Public().SHA256()}, master.Public(), nil, ErrMasterKey},
		"wrong finger though signed and in open mode": {Trust{Verify: true, OpenMode: true, VerifyKey: sign.Public(), Finger: "00"}, master.Public(), good, ErrMasterKey},
	} {
		err := c.trust.judge("m:4506", "/pki/minion_master.pub", c.pinned, master.Public(), c.sig)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err != nil && salt.Hint(err) == "" {
			t.Errorf("%s: no hint with %v", name, err)
		}
	}
}
