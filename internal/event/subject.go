package event

import (
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// Root is the prefix of every subject of the master's event bus.
const Root = "salt.event"

// indexed is how many parts of an ordinary tag become subject tokens, and maxToken their maximum
// length. The journal keeps an index of its subjects in memory, so a subject is only a bounded hint
// where an event is; the exact tag is in the event.
const (
	indexed  = 2
	maxToken = 48
)

// Subject returns the subject under which the journal stores an event with this tag: for a job, one
// subject for its start, one for all its returns and one for each further kind; for a runner, one
// for each job; otherwise the first two parts. Otherwise ten thousand minions times a thousand jobs
// would be ten million index entries.
func Subject(tag string) string {
	parts := strings.SplitN(tag, "/", 5)
	if _, err := salt.ParseJID(parts[0]); err == nil {
		return JobSubject(salt.JID(parts[0]), "other") // stored with its job, and as long as it
	}
	if len(parts) >= 3 && parts[0] == "salt" {
		if _, err := salt.ParseJID(parts[2]); err == nil {
			switch parts[1] {
			case "job":
				kind := "other"
				if len(parts) > 3 && isJobKind(parts[3]) {
					kind = parts[3]
				}
				return JobSubject(salt.JID(parts[2]), kind)
			case "run", "wheel":
				return Root + ".salt." + parts[1] + "." + parts[2]
			}
		}
	}
	s := Root
	for _, p := range parts[:min(indexed, len(parts))] {
		s += "." + token(p)
	}
	return s
}

// JobSubject returns the subject for the events of one kind ("new", "ret", "state") of a job. An
// empty jid or kind stands for all.
func JobSubject(jid salt.JID, kind string) string {
	if jid == "" {
		jid = "*"
	}
	if kind == "" {
		kind = "*"
	}
	return Root + ".salt.job." + string(jid) + "." + kind
}

func isJobKind(s string) bool { return s == "new" || s == "ret" || s == "state" }

// token escapes one part for the index, and cuts it if it is too long.
func token(part string) string {
	t := Escape(part)
	if len(t) > maxToken {
		t = t[:maxToken]
	}
	return t
}

const hexDigits = "0123456789ABCDEF"

// Escape encodes any text as one subject token: letters, digits, hyphen and underscore stay, every
// other byte becomes % and two upper-case hexadecimal digits, and the empty text becomes a single
// %. Different texts give different tokens.
func Escape(s string) string {
	if s == "" {
		return "%"
	}
	n := 0
	for i := range len(s) {
		if !bare(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	b := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if c := s[i]; bare(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return string(b)
}

// Unescape is the inverse of Escape. It refuses every token that Escape does not produce, so that
// each text has only one token.
func Unescape(token string) (string, bool) {
	if token == "%" {
		return "", true
	}
	b := make([]byte, 0, len(token))
	for i := 0; i < len(token); i++ {
		c := token[i]
		if bare(c) {
			b = append(b, c)
			continue
		}
		if c != '%' || i+2 >= len(token) {
			return "", false
		}
		hi, lo := strings.IndexByte(hexDigits, token[i+1]), strings.IndexByte(hexDigits, token[i+2])
		if hi < 0 || lo < 0 || bare(byte(hi<<4|lo)) {
			return "", false
		}
		b = append(b, byte(hi<<4|lo))
		i += 2
	}
	return string(b), len(b) > 0
}

func bare(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// JobKind returns the part of a job's tag after the id; "" if there is none.
func JobKind(tag string) string {
	if parts := strings.SplitN(tag, "/", 5); len(parts) > 3 {
		return parts[3]
	}
	return ""
}
