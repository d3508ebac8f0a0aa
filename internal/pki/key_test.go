package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/test/deadline"
	"github.com/brinebus/brine/test/documented"
)

// testRSA is one RSA key for all tests: making one takes a while.
var testRSA = sync.OnceValue(func() *PrivateKey {
	k, err := Generate(RSA, MinRSABits)
	if err != nil {
		panic(err)
	}
	return k
})

func newKey(t testing.TB) *PrivateKey {
	t.Helper()
	k, err := Generate(Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// bothTypes runs a test for a key of each type.
func bothTypes(t *testing.T, f func(t *testing.T, k *PrivateKey)) {
	t.Run("ed25519", func(t *testing.T) { f(t, newKey(t)) })
	t.Run("rsa", func(t *testing.T) { f(t, testRSA()) })
}

// openssl runs the command if this machine has it.
func openssl(t *testing.T, stdin []byte, args ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed: not compared with it")
	}
	cmd := exec.Command("openssl", args...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("openssl %s: %v: %s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return out
}

func writeFile(t *testing.T, path string, data []byte, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGenerateRefuses(t *testing.T) {
	tests := []struct {
		name string
		t    KeyType
		bits int
		want error
	}{
		{"rsa too small", RSA, 1024, ErrKeySize},
		{"rsa just too small", RSA, 2047, ErrKeySize},
		{"rsa too large for TLS", RSA, 16384, ErrKeySize},
		{"rsa negative", RSA, -1, ErrKeySize},
		{"unknown type", "dsa", 0, ErrKeyType},
	}
	for _, tt := range tests {
		if k, err := Generate(tt.t, tt.bits); !errors.Is(err, tt.want) || k != nil {
			t.Errorf("%s: Generate(%q, %d) = %v, %v; want %v", tt.name, tt.t, tt.bits, k, err, tt.want)
		}
	}
}

func TestPEMRoundTrip(t *testing.T) {
	bothTypes(t, func(t *testing.T, k *PrivateKey) {
		back, err := ParsePrivate(k.PEM())
		if err != nil || back.Public() != k.Public() || back.Type() != k.Type() {
			t.Errorf("ParsePrivate(PEM()) = %v, %v; want %v", back, err, k)
		}
		public, err := ParsePublic(k.Public().PEM())
		if err != nil || public != k.Public() {
			t.Errorf("ParsePublic(PEM()) = %v, %v; want %v", public, err, k.Public())
		}
	})
}

func TestPEMIsWhatOpensslWrites(t *testing.T) {
	bothTypes(t, func(t *testing.T, k *PrivateKey) {
		if got := openssl(t, k.PEM(), "pkey", "-pubout"); !bytes.Equal(got, k.Public().PEM()) {
			t.Errorf("openssl writes\n%s\nwe write\n%s", got, k.Public().PEM())
		}
		if got := openssl(t, k.PEM(), "pkey"); !bytes.Equal(got, k.PEM()) {
			t.Error("openssl writes the private key in another form than we do")
		}
	})
}

func TestReadsOpensslKeys(t *testing.T) {
	rsaText := openssl(t, nil, "genrsa", "2048")
	forms := map[string][]byte{
		"rsa PKCS #8":   rsaText,
		"rsa PKCS #1":   openssl(t, rsaText, "rsa", "-traditional"),
		"ed25519":       openssl(t, nil, "genpkey", "-algorithm", "ed25519"),
		"rsa with CRLF": bytes.ReplaceAll(rsaText, []byte("\n"), []byte("\r\n")),
		"rsa unended":   bytes.TrimRight(rsaText, "\n"),
	}
	for name, text := range forms {
		k, err := ParsePrivate(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want := openssl(t, text, "pkey", "-pubout"); !bytes.Equal(k.Public().PEM(), want) {
			t.Errorf("%s: public half differs from openssl's", name)
		}
	}
}

func TestParsePublicRefuses(t *testing.T) {
	k := newKey(t)
	public := k.Public().PEM()
	ec, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ecDER, _ := x509.MarshalPKIXPublicKey(ec.Public())
	tests := []struct {
		name string
		text []byte
		want error // nil: any
	}{
		{"empty", nil, ErrNotPEM},
		{"words", []byte("hello world\n"), ErrNotPEM},
		{"private key", k.PEM(), ErrWantedPublic},
		{"two keys", append(append([]byte{}, public...), public...), ErrSeveral},
		{"public and private", append(append([]byte{}, public...), k.PEM()...), ErrSeveral},
		{"another curve", pem.EncodeToMemory(&pem.Block{Type: pemPublic, Bytes: ecDER}), ErrKeyType},
		{"certificate", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), nil},
		{"garbage in the block", pem.EncodeToMemory(&pem.Block{Type: pemPublic, Bytes: []byte("x")}), nil},
		{"cut off", public[:len(public)/2], ErrNotPEM},
	}
	for _, tt := range tests {
		got, err := ParsePublic(tt.text)
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !got.IsZero() {
			t.Errorf("%s: ParsePublic = %v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
}

func TestParsePrivateRefuses(t *testing.T) {
	k := newKey(t)
	tests := []struct {
		name string
		text []byte
		want error
	}{
		{"public key", k.Public().PEM(), ErrWantedSecret},
		{"two keys", append(k.PEM(), k.PEM()...), ErrSeveral},
		{"encrypted", pem.EncodeToMemory(&pem.Block{Type: pemEncrypted, Bytes: []byte("x")}), ErrEncrypted},
		{"encrypted as of old", pem.EncodeToMemory(&pem.Block{Type: pemPrivateRSA, Bytes: []byte("x"),
			Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}}), ErrEncrypted},
		{"openssh", pem.EncodeToMemory(&pem.Block{Type: pemOpenSSH, Bytes: []byte("x")}), nil},
		{"garbage in the block", pem.EncodeToMemory(&pem.Block{Type: pemPrivate, Bytes: []byte("x")}), nil},
		{"nothing", nil, ErrNotPEM},
	}
	for _, tt := range tests {
		got, err := ParsePrivate(tt.text)
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) || got != nil {
			t.Errorf("%s: ParsePrivate = %v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
}

func TestSmallRSAKeyIsRefused(t *testing.T) {
	text := openssl(t, nil, "genrsa", "1024")
	if k, err := ParsePrivate(text); !errors.Is(err, ErrKeySize) || k != nil {
		t.Errorf("ParsePrivate of 1024 bits = %v, %v; want ErrKeySize", k, err)
	}
	public := openssl(t, text, "pkey", "-pubout")
	if p, err := ParsePublic(public); !errors.Is(err, ErrKeySize) || !p.IsZero() {
		t.Errorf("ParsePublic of 1024 bits = %v, %v; want ErrKeySize", p, err)
	}
}

// signatureCases is testdata/signatures.json, which describes itself.
type signatureCases struct {
	SignKey string `json:"sign_key"`
	Keys    map[string]string
	Texts   map[string]string
	Cases   []struct {
		ID, Message, Signature string
		Over                   string `json:"signature_over"`
		SignKey                string `json:"sign_key"`
		Salt                   bool
	}
	Published []struct{ ID, Text, Salt string }
}

// differences are the cases in which Brine answers otherwise than Salt, by reason.
var differences = map[string][]string{
	"what is signed is the key as openssl writes it, so all forms of its file have one signature": {
		"0028", "0030", "0032", "0035", "0036", "0038", "0050", "0052", "0053", "0055",
	},
	"a signature must be base64 without any other characters": {"0077", "0083"},
}

// asListed fails the test for an answer that differs from Salt's and is not listed, or the
// reverse. It strikes the case from those that are listed.
func asListed[T comparable](t *testing.T, differs map[string]string, id string, got, want T) (same bool) {
	t.Helper()
	reason, listed := differs[id]
	delete(differs, id)
	if same = got == want; same == listed {
		t.Errorf("%s: %v, Salt: %v; listed as different: %q", id, got, want, reason)
	}
	return same
}

func readSignatureCases(t testing.TB) (c signatureCases) {
	t.Helper()
	text, err := os.ReadFile("testdata/signatures.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestParsePublicForms(t *testing.T) {
	cases := readSignatureCases(t)
	want, err := ParsePublic([]byte(cases.Keys["master.pub"]))
	if err != nil {
		t.Fatal(err)
	}
	notThisKey := map[string]bool{"other_key": true, "not_a_key": true, "empty": true, "unicode": true}
	for name, text := range cases.Texts {
		got, err := ParsePublic([]byte(text))
		if (got == want) == notThisKey[name] {
			t.Errorf("%s: ParsePublic = %v, %v", name, got, err)
		}
		if got == want && string(got.PEM()) != cases.Texts["lf"] {
			t.Errorf("%s: the canonical text differs from openssl's", name)
		}
	}
}

// TestMasterKeySignaturesOfSalt: the signatures that Salt takes are taken where SHA-1 is
// allowed, and the text that a master signs is the one that Salt signs, but for what is listed.
func TestMasterKeySignaturesOfSalt(t *testing.T) {
	cases := readSignatureCases(t)
	signer, err := ParsePublic([]byte(cases.SignKey))
	if err != nil {
		t.Fatal(err)
	}
	documented.Differences(t, slices.Collect(maps.Keys(differences))...)
	differs := map[string]string{}
	for reason, numbers := range differences {
		for _, n := range numbers {
			differs["signature-"+n] = reason
		}
	}
	var count documented.Comparison
	for _, c := range cases.Published {
		key, err := ParsePublic([]byte(cases.Texts[c.Text]))
		if err != nil {
			t.Fatalf("%s: %v", c.ID, err)
		}
		if string(key.PEM()) != cases.Texts["lf"] {
			t.Errorf("%s: the text that is signed is %q", c.ID, key.PEM())
		}
		count.Count(documented.Refusal(asListed(t, differs, c.ID, string(key.PEM()), c.Salt), true, true))
	}
	for _, c := range cases.Cases {
		signed, err := ParsePublic([]byte(cases.Texts[c.Message]))
		if err != nil {
			t.Fatalf("%s: %v", c.ID, err)
		}
		by := signer
		if c.SignKey == "none" {
			by = PublicKey{}
		}
		sig, err := ParseSignature([]byte(c.Signature))
		if err == nil {
			if by.VerifyPublic(signed, sig) == nil {
				t.Errorf("%s: a SHA-1 signature was accepted unasked", c.ID)
			}
			err = by.VerifyPublicSHA1(signed, sig)
		}
		asListed(t, differs, c.ID, err == nil, c.Salt)
		count.Count(documented.Verdict(err == nil, c.Salt))
	}
	for id := range differs {
		t.Errorf("%s is listed as different, and is not a case", id)
	}
	count.Stands(t, "signatures of keys")
}

func TestFingerprint(t *testing.T) {
	p, err := ParsePublic([]byte(readSignatureCases(t).Keys["master.pub"]))
	if err != nil {
		t.Fatal(err)
	}
	golden := map[string]string{ // of Salt's pem_finger
		"md5":    "77:d0:d7:2d:94:22:2c:45:25:13:91:7d:be:d7:1b:01",
		"sha256": "6e:66:02:11:94:e9:3d:81:b0:df:0e:0f:ca:b5:c6:75:71:5c:c9:00:19:da:2c:25:41:4f:f7:30:3f:91:ee:6e",
	}
	for name, want := range golden {
		if got, err := p.Fingerprint(name); got != want || err != nil {
			t.Errorf("Fingerprint(%s) = %s, %v; want %s", name, got, err, want)
		}
	}
	if p.SHA256() != golden["sha256"] {
		t.Errorf("SHA256() = %s", p.SHA256())
	}
	for name, bytes := range map[string]int{"": 32, "sha1": 20, "sha224": 28, "sha384": 48, "sha512": 64} {
		if got, err := p.Fingerprint(name); len(got) != bytes*3-1 || err != nil {
			t.Errorf("Fingerprint(%q) = %s, %v; want %d bytes", name, got, err, bytes)
		}
	}
	if got, err := p.Fingerprint("crc32"); !errors.Is(err, ErrHash) || got != "" {
		t.Errorf("Fingerprint(crc32) = %q, %v; want ErrHash", got, err)
	}
}

func TestZeroPublicKey(t *testing.T) {
	var zero PublicKey
	if got, err := zero.Fingerprint(""); got != "" || err != nil || zero.SHA256() != "" || zero.PEM() != nil ||
		zero.Key() != nil || zero.Type() != "" || zero.Equal(PublicKey{}) {
		t.Errorf("the zero key has properties of a key")
	}
	if err := zero.Verify(nil, nil); !errors.Is(err, ErrSignature) {
		t.Errorf("zero.Verify = %v; want ErrSignature", err)
	}
}

func TestSignVerify(t *testing.T) {
	bothTypes(t, func(t *testing.T, k *PrivateKey) {
		data := []byte("job 20261121113344286549")
		sig, err := k.Sign(data)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Public().Verify(data, sig); err != nil {
			t.Errorf("own signature: %v", err)
		}
		flipped := bytes.Clone(sig)
		flipped[7] ^= 1
		other := newKey(t).Public()
		for name, err := range map[string]error{
			"other data":     k.Public().Verify([]byte("job 20261121113344286540"), sig),
			"flipped bit":    k.Public().Verify(data, flipped),
			"cut":            k.Public().Verify(data, sig[:len(sig)-1]),
			"longer":         k.Public().Verify(data, append(bytes.Clone(sig), 0)),
			"empty":          k.Public().Verify(data, nil),
			"another's key":  other.Verify(data, sig),
			"as SHA-1":       k.Public().VerifyPublicSHA1(k.Public(), sig),
			"of another key": k.Public().VerifyPublic(other, sig),
		} {
			if !errors.Is(err, ErrSignature) {
				t.Errorf("%s: %v; want ErrSignature", name, err)
			}
		}
	})
}

func TestOpensslVerifiesRSASignature(t *testing.T) {
	k, dir := testRSA(), t.TempDir()
	signed := newKey(t).Public()
	sig, err := k.SignPublic(signed)
	if err != nil {
		t.Fatal(err)
	}
	pub := writeFile(t, filepath.Join(dir, "pub"), k.Public().PEM(), 0o644)
	file := writeFile(t, filepath.Join(dir, "sig"), sig, 0o644)
	openssl(t, signed.PEM(), "dgst", "-sha256", "-verify", pub, "-signature", file)
}

func TestSignatureText(t *testing.T) {
	sig := bytes.Repeat([]byte{0xfb, 0xef}, 32)
	text := FormatSignature(sig)
	if bytes.Count(text, []byte("\n")) != 1 || text[len(text)-1] != '\n' {
		t.Errorf("FormatSignature = %q; want one line", text)
	}
	wrapped := strings.Join([]string{string(text[:20]), string(text[20:60]), string(text[60:])}, "\r\n")
	for name, s := range map[string]string{"plain": string(text), "wrapped": wrapped, "no newline": strings.TrimSpace(string(text))} {
		if got, err := ParseSignature([]byte(s)); err != nil || !bytes.Equal(got, sig) {
			t.Errorf("%s: ParseSignature = %x, %v", name, got, err)
		}
	}
	for name, s := range map[string]string{"empty": "", "blank": " \n", "hex": "0f:5b", "cut": string(text[:21])} {
		if got, err := ParseSignature([]byte(s)); err == nil || got != nil {
			t.Errorf("%s: ParseSignature = %x, nil; want an error", name, got)
		}
	}
}

func TestPrivateKeyNeverPrints(t *testing.T) {
	k := newKey(t)
	secret := strings.Split(string(k.PEM()), "\n")[1]
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", k)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "key", k)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&log, verb+"\n", k)
	}
	if strings.Contains(log.String(), secret) || !strings.Contains(log.String(), k.Public().SHA256()) {
		t.Errorf("printed: %s", log.String())
	}
}

func TestCertificate(t *testing.T) {
	bothTypes(t, func(t *testing.T, k *PrivateKey) {
		ext := pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 99999, 1}, Value: []byte("signature")}
		cert, err := k.Certificate("web1", ext)
		if err != nil {
			t.Fatal(err)
		}
		leaf := cert.Leaf
		if leaf.Subject.CommonName != "web1" || !leaf.NotBefore.Before(time.Now().AddDate(-5, 0, 0)) || !leaf.NotAfter.After(time.Now().AddDate(100, 0, 0)) {
			t.Errorf("certificate for %q valid from %v to %v", leaf.Subject.CommonName, leaf.NotBefore, leaf.NotAfter)
		}
		if got, err := PublicFromCertificate(leaf); err != nil || got != k.Public() {
			t.Errorf("PublicFromCertificate = %v, %v; want %v", got, err, k.Public())
		}
		found := false
		for _, e := range leaf.Extensions {
			found = found || e.Id.Equal(ext.Id) && bytes.Equal(e.Value, ext.Value)
		}
		if !found {
			t.Error("the extra extension is missing")
		}
		if err := leaf.CheckSignature(leaf.SignatureAlgorithm, leaf.RawTBSCertificate, leaf.Signature); err != nil {
			t.Errorf("it is not signed by its own key: %v", err)
		}
	})
}

// TestHandshake proves the certificates where they are used: TLS 1.3, both ways.
func TestHandshake(t *testing.T) {
	bothTypes(t, func(t *testing.T, server *PrivateKey) {
		client := newKey(t)
		serverCert, err := server.Certificate("master")
		if err != nil {
			t.Fatal(err)
		}
		clientCert, err := client.Certificate(strings.Repeat("w", 253))
		if err != nil {
			t.Fatal(err)
		}
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		tlsServer := tls.Server(a, &tls.Config{Certificates: []tls.Certificate{serverCert}, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert})
		tlsClient := tls.Client(b, &tls.Config{Certificates: []tls.Certificate{clientCert}, MinVersion: tls.VersionTLS13, InsecureSkipVerify: true})
		done := make(chan error, 1)
		go func() { done <- tlsServer.Handshake() }()
		if err := tlsClient.Handshake(); err != nil {
			t.Fatalf("client: %v", err)
		}
		if err := deadline.Receive(t, done, "done"); err != nil {
			t.Fatalf("server: %v", err)
		}
		if got, err := PublicFromCertificate(tlsServer.ConnectionState().PeerCertificates[0]); err != nil || got != client.Public() {
			t.Errorf("the server saw %v, %v; want %v", got, err, client.Public())
		}
	})
}

func TestPublicFromCertificateRefuses(t *testing.T) {
	if p, err := PublicFromCertificate(nil); err == nil || !p.IsZero() {
		t.Errorf("nil certificate: %v, %v", p, err)
	}
	ec, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if p, err := PublicFromCertificate(&x509.Certificate{PublicKey: ec.Public()}); !errors.Is(err, ErrKeyType) || !p.IsZero() {
		t.Errorf("ECDSA certificate: %v, %v; want ErrKeyType", p, err)
	}
}

func FuzzParsePublic(f *testing.F) {
	for _, text := range readSignatureCases(f).Texts {
		f.Add([]byte(text))
	}
	f.Add(newKey(f).Public().PEM())
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParsePublic(text)
		if err != nil {
			if !p.IsZero() {
				t.Errorf("an error and a key: %v", err)
			}
			return
		}
		if back, err := ParsePublic(p.PEM()); err != nil || back != p {
			t.Errorf("the canonical text of %v reads back as %v, %v", p, back, err)
		}
	})
}

func FuzzParsePrivate(f *testing.F) {
	f.Add(newKey(f).PEM())
	f.Add(testRSA().PEM())
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := ParsePrivate(text)
		if err != nil {
			if k != nil {
				t.Errorf("an error and a key: %v", err)
			}
			return
		}
		if back, err := ParsePrivate(k.PEM()); err != nil || back.Public() != k.Public() {
			t.Errorf("the canonical text of %v reads back as %v, %v", k, back, err)
		}
	})
}
