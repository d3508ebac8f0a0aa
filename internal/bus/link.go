package bus

import (
	"fmt"
	"regexp"
)

// Link is what passes between two masters of which one mirrors the other's journal: by the
// names of the two journals, so that no other pair can be meant.
type Link struct {
	Owner  string // of the journal that is mirrored
	Reader string // of the one beside which the mirror lies
}

// JournalStream is the stream of a journal, at the master whose it is.
const JournalStream = "EVENTS"

// linkRoot is above all subjects of links.
const linkRoot = "JOURNAL"

// API is the prefix of what the reader may ask: one question, for what it lacks.
func (l Link) API() string { return linkRoot + "." + l.Owner + "." + l.Reader + ".API" }

// Create is the subject of that question.
func (l Link) Create() string { return l.API() + ".CONSUMER.CREATE." + JournalStream }

// Deliver is the prefix on which the reader gets it.
func (l Link) Deliver() string { return linkRoot + "." + l.Owner + "." + l.Reader + ".DELIVER" }

// Asks are the subjects on which the reader may publish: it asks, and says how far it is.
func (l Link) Asks() []string { return []string{l.Create(), LinkFlow} }

// Hears are those that it may subscribe to: messages, and the answers to what it asked.
func (l Link) Hears() []string { return []string{l.Deliver() + ".>", LinkAnswers} }

// LinkFlow is how a reader says how far it has come; LinkAnswers are the answers of the
// owner; LinkDelivers is all that any reader gets.
const (
	LinkFlow     = "$JS.FC." + JournalStream + ".*.*"
	LinkAnswers  = "$JSC.R.*"
	LinkDelivers = linkRoot + ".*.*.DELIVER.>"
)

var journalName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// CheckJournalName says whether a journal may have this name: it is a token of subjects, a
// part of the name of a stream, and stands in positions.
func CheckJournalName(name string) error {
	if !journalName.MatchString(name) {
		return fmt.Errorf("%.80q is no name of a journal: letters, digits, - and _, at most 64", name)
	}
	return nil
}
