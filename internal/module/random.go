package module

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"hash/fnv"
	"math/big"
	mathrand "math/rand/v2"
	"strings"

	"github.com/brinebus/brine/internal/function"
)

// randomSeed makes the result reproducible.
var randomSeed = function.Param{Name: "seed"}

// randomModule makes random values.
var randomModule = &function.Module{
	Name: "random",
	Doc:  "Functions that make random values. Without a seed they come from the system's generator; with one they are the same each time, and not secret.",
	Functions: []function.Function{
		{
			Name: "get_str", Doc: "Return a random text: of letters, digits and punctuation, or of the given characters.",
			Example: "salt '*' random.get_str 128\nsalt '*' random.get_str 20 chars=abcdef0123456789",
			Params: []function.Param{{Name: "length", Kind: function.Int, Default: 20}, {Name: "chars", Kind: function.String}, {Name: "lowercase", Kind: function.Bool, Default: true},
				{Name: "uppercase", Kind: function.Bool, Default: true}, {Name: "digits", Kind: function.Bool, Default: true}, {Name: "punctuation", Kind: function.Bool, Default: true}},
			Run: randomText,
		},
		{
			Name: "hash", Doc: "Return a digest of a value.", Example: `salt '*' random.hash 'I am a string' md5`,
			Params: []function.Param{{Name: "value", Kind: function.String, Required: true}, {Name: "algorithm", Kind: function.String, Default: "sha512"}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return digest(c.String("value"), c.String("algorithm"))
			},
		},
		{
			Name: "rand_int", Doc: "Return a random whole number from start up to, but not including, end.", Example: `salt '*' random.rand_int 1 10`,
			Params: []function.Param{{Name: "start", Kind: function.Int, Default: 1}, {Name: "end", Kind: function.Int, Default: 10}, randomSeed},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				start, end := c.Int("start"), c.Int("end")
				if end <= start {
					return nil, function.Invalid("end %d is not above start %d", end, start)
				}
				return start + randomSource(c)(end-start), nil
			},
		},
		{
			Name: "sample", Doc: "Return a random choice of the given size from a list.", Example: `salt '*' random.sample '[1, 2, 3]' 2`,
			Params: []function.Param{{Name: "value", Kind: function.List, Required: true}, {Name: "size", Kind: function.Int, Required: true}, randomSeed},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				list := shuffled(c)
				if n := c.Int("size"); n < 0 || n > len(list) {
					return nil, function.Invalid("size %d is not between 0 and the %d of the list", n, len(list))
				}
				return list[:c.Int("size")], nil
			},
		},
		{
			Name: "seed", Doc: "Return a whole number below range that is always the same for this minion, or for the text hash.", Example: "salt '*' random.seed\nsalt '*' random.seed 60 hash=x",
			Params: []function.Param{{Name: "range", Kind: function.Int, Default: 10}, {Name: "hash", Kind: function.String}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				if c.Int("range") < 1 {
					return nil, function.Invalid("range %d is not above zero", c.Int("range"))
				}
				text := c.String("hash")
				if text == "" {
					text = string(c.Host.ID)
				}
				h := fnv.New64a()
				h.Write([]byte(text))
				return int(h.Sum64() % uint64(c.Int("range"))), nil
			},
		},
		{
			Name: "shadow_hash", Doc: "Return the hash of a password, as /etc/shadow has it: sha512 or sha256, with a random salt, or the one that is given. Without a password it is the hash of a random one that nobody knows. The arguments of a job stay in the journal of the master: to keep a password on this machine, use salt-call --local.",
			Example: `salt-call --local random.shadow_hash password=secret algorithm=sha512`,
			Params:  []function.Param{{Name: "crypt_salt", Kind: function.String}, {Name: "password", Kind: function.String}, {Name: "algorithm", Kind: function.String, Default: "sha512"}},
			Run:     shadowHash,
		},
		{
			Name: "shuffle", Doc: "Return a list in random order.", Example: `salt '*' random.shuffle '[1, 2, 3]'`,
			Params: []function.Param{{Name: "value", Kind: function.List, Required: true}, randomSeed},
			Run:    func(_ context.Context, c *function.Call) (any, error) { return shuffled(c), nil },
		},
		{
			Name: "str_encode", Doc: "Return a text in base64 or in hex digits.", Example: `salt '*' random.str_encode 'I am a new string' hex`,
			Params: []function.Param{{Name: "value", Kind: function.String, Required: true}, {Name: "encoder", Kind: function.String, Default: "base64"}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				switch c.String("encoder") {
				case "base64":
					return base64.StdEncoding.EncodeToString([]byte(c.String("value"))), nil
				case "hex":
					return hex.EncodeToString([]byte(c.String("value"))), nil
				}
				return nil, function.Invalid("unknown encoder %q, known are base64 and hex", c.String("encoder"))
			},
		},
	},
}

// maxRandomText limits a random text, in characters.
const maxRandomText = 1 << 20

func randomText(_ context.Context, c *function.Call) (any, error) {
	chars := c.String("chars")
	if chars == "" {
		for _, set := range []struct{ param, chars string }{
			{"lowercase", "abcdefghijklmnopqrstuvwxyz"}, {"uppercase", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}, {"digits", "0123456789"},
			{"punctuation", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"},
		} {
			if c.Bool(set.param) {
				chars += set.chars
			}
		}
	}
	if n := c.Int("length"); n < 0 || n > maxRandomText || chars == "" {
		return nil, function.Invalid("want a length from 0 to %d, and characters to choose from", maxRandomText)
	}
	letters := []rune(chars)
	var b strings.Builder
	for range c.Int("length") {
		b.WriteRune(letters[systemRandom(len(letters))])
	}
	return b.String(), nil
}

// systemRandom returns a number below n from the system's generator, which never fails.
func systemRandom(n int) int {
	v, _ := rand.Int(rand.Reader, big.NewInt(int64(n)))
	return int(v.Int64())
}

// randomSource returns a function that gives numbers below its argument, the same sequence for the
// same seed.
func randomSource(c *function.Call) func(int) int {
	if !c.Has("seed") {
		return systemRandom
	}
	h := fnv.New64a()
	h.Write([]byte(repr(c.Any("seed"))))
	return mathrand.New(mathrand.NewPCG(h.Sum64(), 0)).IntN
}

func shuffled(c *function.Call) []any {
	list, below := append([]any{}, c.List("value")...), randomSource(c)
	for i := len(list) - 1; i > 0; i-- {
		j := below(i + 1)
		list[i], list[j] = list[j], list[i]
	}
	return list
}
