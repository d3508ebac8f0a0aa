package module

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"strings"

	"github.com/brinebus/brine/internal/function"
)

var (
	hashInput    = function.Param{Name: "instr", Kind: function.String, Required: true}
	hashChecksum = function.Param{Name: "checksum", Kind: function.String, Default: "md5"}
)

// hashutilModule computes digests.
var hashutilModule = &function.Module{
	Name: "hashutil",
	Doc:  "Functions that compute digests and encode texts.",
	Functions: []function.Function{
		{
			Name: "base64_b64decode", Doc: "Return the text that base64 stands for.",
			Example: `salt '*' hashutil.base64_b64decode Z2V0IHNhbHRlZA==`, Params: []function.Param{hashInput}, Run: hashDecode,
		},
		{
			Name: "base64_b64encode", Doc: "Return a text in base64.",
			Example: `salt '*' hashutil.base64_b64encode 'get salted'`, Params: []function.Param{hashInput},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return base64.StdEncoding.EncodeToString([]byte(c.String("instr"))), nil
			},
		},
		{
			Name: "base64_decodefile", Doc: "Write the bytes that base64 stands for to a file.",
			Example: `salt '*' hashutil.base64_decodefile instr=Z2V0IHNhbHRlZAo= outfile=/path/to/file`,
			Params:  []function.Param{hashInput, {Name: "outfile", Kind: function.Path, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				b, err := decodeBase64(c.String("instr"))
				if err != nil {
					return nil, err
				}
				return done(os.WriteFile(c.String("outfile"), b, 0o644))
			},
		},
		{
			Name: "base64_decodestring", Doc: "Return the text that base64, with line ends in it, stands for.",
			Example: `salt '*' hashutil.base64_decodestring instr=Z2V0IHNhbHRlZAo=`, Params: []function.Param{hashInput}, Run: hashDecode,
		},
		{
			Name: "base64_encodefile", Doc: "Return the content of a file in base64, in lines of 76 characters.",
			Example: `salt '*' hashutil.base64_encodefile /path/to/file`, Params: []function.Param{{Name: "fname", Kind: function.Path, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				text, err := readText(c.String("fname"))
				return base64Lines(text), err
			},
		},
		{
			Name: "base64_encodestring", Doc: "Return a text in base64, in lines of 76 characters.",
			Example: `salt '*' hashutil.base64_encodestring 'get salted'`, Params: []function.Param{hashInput},
			Run: func(_ context.Context, c *function.Call) (any, error) { return base64Lines(c.String("instr")), nil },
		},
		{
			Name: "digest", Doc: "Return a digest of a text: md5, sha1, sha224, sha256, sha384 or sha512.",
			Example: `salt '*' hashutil.digest 'get salted' sha256`, Params: []function.Param{hashInput, hashChecksum},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return digest(c.String("instr"), c.String("checksum"))
			},
		},
		{
			Name: "digest_file", Doc: "Return a digest of the content of a file.",
			Example: `salt '*' hashutil.digest_file /path/to/file sha256`, Params: []function.Param{{Name: "infile", Kind: function.Path, Required: true}, hashChecksum},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return hashFile(ctx, c.String("infile"), c.String("checksum"))
			},
		},
		{
			Name: "hmac_compute", Doc: "Return the HMAC-SHA256 of a text under a shared secret, in hex digits.",
			Example: `salt '*' hashutil.hmac_compute 'get salted' 'shared secret'`,
			Params:  []function.Param{{Name: "string", Kind: function.String, Required: true}, {Name: "shared_secret", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return hex.EncodeToString(hmacOf(c.String("string"), c.String("shared_secret"))), nil
			},
		},
		{
			Name: "hmac_signature", Doc: "Return whether a text has this HMAC-SHA256, in base64, under a shared secret.",
			Example: `salt '*' hashutil.hmac_signature 'get salted' 'shared secret' 'eBWf9bstXg+NiP5AOwppB5HMvZiYMPzEM9W5YMm/AmQ='`,
			Params: []function.Param{{Name: "string", Kind: function.String, Required: true}, {Name: "shared_secret", Kind: function.String, Required: true},
				{Name: "challenge_hmac", Kind: function.String, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				given, err := decodeBase64(c.String("challenge_hmac"))
				return err == nil && hmac.Equal(given, hmacOf(c.String("string"), c.String("shared_secret"))), nil
			},
		},
		{
			Name: "md5_digest", Doc: "Return the MD5 digest of a text.", Example: `salt '*' hashutil.md5_digest 'get salted'`, Params: []function.Param{hashInput},
			Run: func(_ context.Context, c *function.Call) (any, error) { return digest(c.String("instr"), "md5") },
		},
		{
			Name: "sha256_digest", Doc: "Return the SHA-256 digest of a text.", Example: `salt '*' hashutil.sha256_digest 'get salted'`, Params: []function.Param{hashInput},
			Run: func(_ context.Context, c *function.Call) (any, error) { return digest(c.String("instr"), "sha256") },
		},
		{
			Name: "sha512_digest", Doc: "Return the SHA-512 digest of a text.", Example: `salt '*' hashutil.sha512_digest 'get salted'`, Params: []function.Param{hashInput},
			Run: func(_ context.Context, c *function.Call) (any, error) { return digest(c.String("instr"), "sha512") },
		},
	},
}

func hashDecode(_ context.Context, c *function.Call) (any, error) {
	b, err := decodeBase64(c.String("instr"))
	return string(b), err
}

func decodeBase64(s string) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		return nil, function.Invalid("this is not base64: %v", err)
	}
	return b, nil
}

// base64Lines encodes as Python's encodebytes does.
func base64Lines(s string) string {
	text := base64.StdEncoding.EncodeToString([]byte(s))
	var b strings.Builder
	for len(text) > 0 {
		n := min(76, len(text))
		b.WriteString(text[:n] + "\n")
		text = text[n:]
	}
	return b.String()
}

func digest(text, form string) (any, error) {
	h, err := newHash(form)
	if err != nil {
		return nil, err
	}
	h.Write([]byte(text))
	return hex.EncodeToString(h.Sum(nil)), nil
}

func hmacOf(text, secret string) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(text))
	return h.Sum(nil)
}
