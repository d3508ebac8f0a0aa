package argument

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/yamlfile/scalar"
)

const byteOrderMark = "\ufeff"

// Word returns the value of one word: nil, bool, string, int64, *big.Int,
// float64, []any or map[string]any.
//
//   - A list begins with [ and a map with {; what else would be one in YAML
//     ("a: b", "- a") stays text, and so does what YAML cannot read at all.
//
//   - Leading zeros are decimal: 010 is 10. 10_000 stays text, 1e3 too: a float
//     has a dot, and its exponent a sign.
//
//   - Dates and times of day stay text, 12:30 among them, which YAML 1.1 would
//     read as 750.
//
//   - A word with # is taken for more than text only if that loses no text.
//
//   - Blanks around plain text are dropped. No other part of a word vanishes:
//     '! test -f x', '>', '|-' and '--- a' stay as they were typed.
//
//   - The keys of a map are text as typed: {1: a} has the key "1".
//
//   - Anchors, aliases, merge keys (<<) and explicit keys (?) are not read: a
//     word with one is text, so no short word stands for a large value. Of the
//     tags only those before a scalar that is a value count, as in '!!str 1'.
//
// The only error is value.ErrDepth, for a word that nests too deeply.
func Word(word string) (any, error) {
	if word == "None" {
		return nil, nil
	}
	if !isPrintable(word) || isGrouped(word) {
		return word, nil
	}
	text := strings.Trim(strings.TrimPrefix(word, byteOrderMark), " ")
	if text == "" {
		return word, nil
	}
	var v any = word
	err := errText
	switch {
	case word[0] == '{' || word[0] == '[', text[0] == '"' || text[0] == '\'' || strings.HasPrefix(text, "!!"):
		v, err = flow(text)
	case isPlain(text):
		v, err = plain(text), nil
	}
	switch {
	case errors.Is(err, errText), !isTyped(v) && strings.Contains(word, "#"):
		return word, nil
	case err != nil:
		err = fmt.Errorf("argument %s: %w", shorten(word), err)
		return nil, salt.WithHint(err, "put it between quotes of its own to pass it as text: '\"...\"'")
	}
	return v, nil
}

// isTyped says whether v is more than text or nothing.
func isTyped(v any) bool {
	_, text := v.(string)
	return v != nil && !text
}

// resolve types text by its form, as files do; but Salt reads no sixties in arguments.
func resolve(text string) (v any, ok bool) {
	if strings.ContainsRune(text, ':') {
		return nil, false
	}
	return scalar.Resolve(text)
}

// plain types a scalar without quotes. A comment may follow it.
func plain(text string) any {
	if i := strings.Index(text, " #"); i >= 0 {
		text = strings.TrimRight(text[:i], " ")
	}
	if v, ok := resolve(text); ok {
		return v
	}
	return text
}

// isPlain says whether YAML would read text, which has no blanks around it, as
// one scalar without quotes. Most words are, and need no YAML reader.
func isPlain(text string) bool {
	if strings.ContainsRune(",[]{}#&*!|>'\"%@`", rune(text[0])) {
		return false
	}
	switch head, _, _ := strings.Cut(text, " "); head {
	case "-", "?", ":", "---", "...":
		return false
	}
	return !strings.Contains(text, ": ") && !strings.HasSuffix(text, ":")
}

// isGrouped says whether word has only digits and underscores, and both: such a
// word is rather a name than a number.
func isGrouped(word string) bool {
	return strings.Contains(word, "_") && strings.Trim(word, "0123456789_ ") == ""
}

// isPrintable says whether word has only characters that YAML allows, and no
// tab or line break, which YAML would fold.
func isPrintable(word string) bool {
	for i, r := range word {
		switch {
		case r < ' ', r >= 0x7f && r < 0xa0, r == 0xfffe, r == 0xffff:
			return false
		case r == utf8.RuneError && !strings.HasPrefix(word[i:], "\ufffd"):
			return false
		}
	}
	return true
}

// shorten quotes a word for a message, its beginning only if it is long.
func shorten(word string) string {
	if len(word) > 40 {
		return fmt.Sprintf("%q...", strings.ToValidUTF8(word[:40], ""))
	}
	return fmt.Sprintf("%q", word)
}
