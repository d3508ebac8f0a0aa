package module

import (
	"errors"
	"strings"
)

// splitCommand splits a command line into words as a POSIX shell does: blanks separate, quotes and
// backslashes join. Nothing is expanded.
func splitCommand(s string) ([]string, error) {
	var (
		words  []string
		word   strings.Builder
		inWord bool
	)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case ' ', '\t', '\n', '\r':
			if inWord {
				words = append(words, word.String())
				word.Reset()
			}
			inWord = false
			continue
		case '\\':
			if i++; i == len(s) {
				return nil, errors.New("the command line ends with a backslash")
			}
			word.WriteByte(s[i])
		case '\'', '"':
			end := closingQuote(s, i)
			if end < 0 {
				return nil, errors.New("the command line has an open quote")
			}
			word.WriteString(unquote(s[i+1:end], c))
			i = end
		default:
			word.WriteByte(c)
		}
		inWord = true
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// closingQuote returns the index of the quote that closes the one at i, -1 if there is none.
func closingQuote(s string, i int) int {
	mark := s[i]
	for j := i + 1; j < len(s); j++ {
		switch {
		case s[j] == mark:
			return j
		case s[j] == '\\' && mark == '"':
			j++
		}
	}
	return -1
}

// unquote removes the backslashes that have a meaning in double quotes.
func unquote(s string, mark byte) string {
	if mark == '\'' {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("\"\\$`\n", s[i+1]) >= 0 {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
