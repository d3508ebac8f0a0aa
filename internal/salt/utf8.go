package salt

import (
	"fmt"
	"unicode/utf8"
)

// CheckUTF8 returns an error that names the first byte that is not UTF-8: such text cannot be sent
// as JSON, and is refused rather than changed.
func CheckUTF8(text []byte) error {
	if utf8.Valid(text) {
		return nil
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			return WithHint(fmt.Errorf("it is not UTF-8: byte %d is %#02x", i+1, text[i]), "convert it with iconv, or encode it as base64")
		}
		i += size
	}
	return nil
}
