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
//   - A list begins with [ and a map with {; other YAML forms of these
//     ("a: b", "- a") stay text, and so does text that is invalid in YAML.
//
//   - Numbers with leading zeros are decimal: 010 is 10. 10_000 stays text, and so
//     does 1e3: a float has a dot, and its exponent a sign.
//
//   - Dates and times of day stay text, also 12:30, which YAML 1.1 would read
//     as 750.
//
//   - A word with # is more than text only if no text is lost.
//
//   - Blanks around plain text are dropped, but no other part of a word:
//     '! test -f x', '>', '|-' and '--- a' stay as typed.
//
//   - The keys of a map are text as typed: {1: a} has the key "1".
//
//   - Anchors, aliases, merge keys (<<) and explicit keys (?) are not supported: a
//     word with one is text, so no short word expands to a large value. Tags are
//     only supported before a scalar that is the whole value, as in '!!str 1'.
//
// The only error is value.ErrDepth, for a word that is nested too deeply.
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

// isTyped reports whether v is neither text nor nil.
func isTyped(v any) bool {
	_, text := v.(string)
	return v != nil && !text
}

// resolve types text by its form, as in files; but Salt reads no sexagesimal numbers in arguments.
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

// isPlain reports whether YAML would read text, which has no blanks around it, as one scalar
// without quotes. Most words are, and need no YAML parser.
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

// isGrouped reports whether word has only digits and underscores, and both: such a word is more
// likely a name than a number.
func isGrouped(word string) bool {
	return strings.Contains(word, "_") && strings.Trim(word, "0123456789_ ") == ""
}

// isPrintable reports whether word has only characters that YAML allows, and no tab or line break,
// which YAML would fold.
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

// shorten quotes a word for a message; of a long word only the beginning.
func shorten(word string) string {
	if len(word) > 40 {
		return fmt.Sprintf("%q...", strings.ToValidUTF8(word[:40], ""))
	}
	return fmt.Sprintf("%q", word)
}
