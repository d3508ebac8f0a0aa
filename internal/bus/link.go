package bus

import (
	"fmt"
	"strings"
)

// Link is a link between two masters of which one mirrors the other's journal. It has the names
// of both journals, so it is valid for this pair only.
type Link struct {
	Owner  string // name of the mirrored journal
	Reader string // name of the journal beside the mirror
}

// The streams that may be mirrored: a journal, and its master's decisions about keys and
// tokens.
const (
	JournalStream  = "EVENTS"
	DecisionStream = "KV_decisions"
)

// LinkStreams are all of them.
var LinkStreams = []string{DecisionStream, JournalStream}

// linkRoot is the first token of all subjects of links.
const linkRoot = "JOURNAL"

// API is the subject prefix of the reader's requests: one for each stream, for what it lacks.
func (l Link) API() string { return linkRoot + "." + l.Owner + "." + l.Reader + ".API" }

// Create is the subject of that request.
func (l Link) Create(stream string) string { return l.API() + ".CONSUMER.CREATE." + stream }

// Deliver is the subject prefix of messages to the reader.
func (l Link) Deliver() string { return linkRoot + "." + l.Owner + "." + l.Reader + ".DELIVER" }

// Asks returns the subjects that the reader may publish to: its requests, and how far it is.
func (l Link) Asks() (list []string) {
	for _, stream := range LinkStreams {
		list = append(list, l.Create(stream), LinkFlow(stream))
	}
	return list
}

// Hears returns the subjects that it may subscribe to: messages, and the answers to its
// requests.
func (l Link) Hears() []string { return []string{l.Deliver() + ".>", LinkAnswers} }

// LinkFlow is the subject on which a reader reports how far it has come in a stream.
func LinkFlow(stream string) string { return "$JS.FC." + stream + ".*.*" }

// LinkAnswers are the answers of the owner; LinkDelivers is everything that a reader gets.
const (
	LinkAnswers  = "$JSC.R.*"
	LinkDelivers = linkRoot + ".*.*.DELIVER.>"
)

// maxJournalName is how many bytes the name of a journal has at most.
const maxJournalName = 64

// CheckJournalName checks the name of a journal: it is a token of subjects, a part of the name
// of a stream, and part of positions.
func CheckJournalName(name string) error {
	foreign := func(r rune) bool { return !isAlnum(r) && r != '-' && r != '_' }
	if name == "" || len(name) > maxJournalName || name[0] == '-' || name[0] == '_' || strings.ContainsFunc(name, foreign) {
		return fmt.Errorf("%.80q is not the name of a journal: letters, digits, - and _, at most %d", name, maxJournalName)
	}
	return nil
}
