package bus

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/salt"
)

// ServerName is the name in a master's certificate, for programs that compare
// names. Minions compare keys.
const ServerName = "salt-master"

// GuestCertificate is the name in the certificate of a guest: a user without credentials who
// wants to log in from another machine. No minion id or client name can be equal to it.
const GuestCertificate = salt.UserPrefix

// Role is what a connection is on the bus. The zero value may do nothing.
type Role string

// The roles. The broker's daemon assigns one when a connection is made, by its key or by the
// kernel's credentials of the process.
const (
	RoleNobody     Role = ""           // refused
	RoleMaster     Role = "master"     // the daemon itself, on its own embedded server
	RoleMinion     Role = "minion"     // the daemon of an accepted minion
	RoleCaller     Role = "caller"     // salt-call with the key of an accepted minion and no daemon
	RoleClient     Role = "client"     // a program with credentials for the event bus, see doc/clients.md
	RoleRemote     Role = "remote"     // a user of external_auth on another machine, once logged in
	RoleGuest      Role = "guest"      // a remote user before the login: they may only log in
	RoleUnaccepted Role = "unaccepted" // a key that is pending, rejected, denied or unknown
	RoleUser       Role = "user"       // a local process, by its Unix user
)

// Identity is the sender of a connection, as the broker has verified it.
type Identity struct {
	Role  Role
	Name  string // a minion id, a client's name, a uid in decimal, a LoginName; for a guest the host
	Key   string // for connections with a key: its hexadecimal SHA-256, see KeyToken
	Nonce string // makes the connection's inbox unique

	// For the audit log only; no right depends on it.
	Source string // an address, or a process of this machine
	Sudo   string // the user behind sudo, as a tool of an operator says
}

// LoginName is the name of a user of external_auth where there may be others of the same name.
func LoginName(backend, user string) string { return backend + ":" + user }

// String names the identity for logs and for the server's list of connections.
func (i Identity) String() string { return string(i.Role) + ":" + i.Name }

// UID is the number of a local user, -1 for every other identity.
func (i Identity) UID() int {
	uid, err := strconv.ParseUint(i.Name, 10, 32)
	if i.Role != RoleUser || err != nil {
		return -1
	}
	return int(uid)
}

// IsOperator reports whether that is root or the daemon's own user, who could stop it anyway.
func (i Identity) IsOperator() bool {
	uid := i.UID()
	return uid == 0 || uid >= 0 && uid == os.Geteuid()
}

// sudoName is the prefix, before the user, of the name of a connection through sudo.
const sudoName = "sudo:"

// SudoName is the name of a connection whose user was started by sudo, and "" for "".
func SudoName(user string) string {
	if user == "" {
		return ""
	}
	return sudoName + user
}

// SudoUser returns the user behind sudo that the name of a connection claims, "" for none.
func SudoUser(name string) string {
	user, ok := strings.CutPrefix(name, sudoName)
	if !ok {
		return ""
	}
	return user
}

// Inbox is the prefix of the subjects that only this connection may subscribe to. It is derived
// from the key, not from the id, so that a connection knows it before it knows its role.
func (i Identity) Inbox() string { return InboxPrefix(i.owner(), i.Nonce) }

// owner is the part of the inbox that identifies its owner, "" if the identity does not have
// it.
func (i Identity) owner() string {
	switch {
	case i.Role == RoleMaster, i.Role == RoleUser && i.Name != "":
		return event.Escape(string(i.Role) + i.Name)
	case i.Role == RoleUser, i.Key == "":
		return ""
	}
	return event.Escape(i.Key)
}

// InboxPrefix returns the private prefix of the connection of owner (the key
// token, or "user" and the uid) with this nonce.
func InboxPrefix(owner, nonce string) string { return InboxOwner(owner) + "." + nonce }

// ControlSubject is where the master tells the connection with this inbox about other members of
// its cluster, see protocol.Control. The subject of an answer has one token after the inbox, or
// begins with "a" there.
func ControlSubject(inbox string) string { return inbox + ".ctl.cluster" }

// InboxOwner is the part before the nonce in the owner's prefixes.
func InboxOwner(owner string) string { return "_INBOX." + owner }

// NewNonce returns a fresh nonce for an inbox: 130 random bits as text.
func NewNonce() string { return rand.Text() }

// CheckNonce checks the part of its inbox that a client chose: 16 to 64 letters
// and digits, so that it can be neither guessed nor more than one token.
func CheckNonce(s string) error {
	if len(s) < 16 || len(s) > 64 {
		return fmt.Errorf("connection nonce has %d characters, want 16 to 64", len(s))
	}
	for _, r := range s {
		if !isAlnum(r) {
			return fmt.Errorf("connection nonce has the character %q", r)
		}
	}
	return nil
}

func isAlnum(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// The subjects that a daemon subscribes to for its clients, see Endpoints.Subjects.
var (
	RequestSubjects = []string{"salt.user.*.req.*", "salt.minion.*.req.*", "salt.minion.*.ret.*", "salt.minion.*.fire", "salt.client.*.req.*", "salt.key.*.req.*", "salt.guest.*.req.*", "salt.remote.*.req.*"}
	WindowSubjects  = []string{"salt.user.*.credit", "salt.minion.*.credit", "salt.remote.*.credit"} // of protocol 1
	AckSubjects     = []string{"salt.*.*.ack.*.*"}                                                   // see AckSubject
)

// The subjects of one minion.

// AnyJob are the subjects of the jobs of all minions.
const AnyJob = "salt.minion.*.job"

// JobSubject is the subject of the minion's jobs.
func JobSubject(id salt.MinionID) string { return minionSubject(id, "job") }

func minionSubject(id salt.MinionID, leaf string) string {
	return "salt.minion." + event.Escape(string(id)) + "." + leaf
}

// RequestSubject is the subject for requests of op by a minion (name is its id), a local user
// (name is the uid) or a guest (name is the key). A minion's returns (op is "ret." and the jid)
// and events ("fire") have separate subjects.
func RequestSubject(role Role, name, op string) string {
	if role.Kind() == "minion" && (op == opFire || strings.HasPrefix(op, opReturn)) {
		return requestRoot(role, name) + "." + op
	}
	return requestRoot(role, name) + ".req." + op
}

// Operations with special subjects or limits.
const (
	OpAsk    = "ask" // of an unaccepted key
	opFire   = "fire"
	opRet    = "ret"
	opReturn = opRet + "." // and the jid
)

// WindowSubject is where the client reports with protocol 1 how much of an answer it has read,
// so that the daemon may send more.
func WindowSubject(role Role, name string) string { return requestRoot(role, name) + ".credit" }

func requestRoot(role Role, name string) string {
	return "salt." + role.Kind() + "." + event.Escape(name)
}

// Kind is the second token of the subjects that a role publishes to: salt-call uses those of
// its minion.
func (r Role) Kind() string {
	switch r {
	case RoleMinion, RoleCaller:
		return "minion"
	case RoleClient:
		return "client"
	case RoleUnaccepted:
		return "key"
	case RoleGuest, RoleRemote:
		return string(r)
	}
	return "user"
}

// AckSubject is the reply subject of a message of an answer: there its receiver reports that it
// has read the first sent bytes of the answer with this number, so that the daemon may send more.
func AckSubject(role Role, name string, answer uint64, sent int64) string {
	b := make([]byte, 0, 80)
	b = append(append(append(append(b, "salt."...), role.Kind()...), '.'), event.Escape(name)...)
	b = strconv.AppendUint(append(b, ".ack."...), answer, 36)
	return string(strconv.AppendInt(append(b, '.'), sent, 10))
}

// Confirmed parses the part of an AckSubject after the name.
func Confirmed(rest string) (answer uint64, sent int64, ok bool) {
	words := strings.Split(rest, ".")
	if len(words) != 3 {
		return 0, 0, false
	}
	answer, err1 := strconv.ParseUint(words[1], 36, 64)
	sent, err2 := strconv.ParseInt(words[2], 10, 64)
	return answer, sent, err1 == nil && err2 == nil
}

// AskSubject is for the question whether a key is accepted.
func AskSubject(key string) string { return "salt.key." + key + ".req.ask" }

// KeyToken is the name of a public key on the bus: the hexadecimal SHA-256 of its DER form.
func KeyToken(key crypto.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "" // an unsupported key gets no subject at all
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// Sender parses the subject of a request, return or event: salt.<kind>.<name>.<rest>.
func Sender(subject string) (Identity, string, bool) {
	parts := strings.SplitN(subject, ".", 4)
	if len(parts) != 4 || parts[0] != "salt" {
		return Identity{}, "", false
	}
	name, ok := event.Unescape(parts[2])
	if !ok {
		return Identity{}, "", false
	}
	switch parts[1] {
	case "minion":
		if _, err := salt.ParseMinionID(name); err != nil {
			return Identity{}, "", false
		}
		return Identity{Role: RoleMinion, Name: name}, parts[3], true
	case "client":
		if _, err := salt.ParseClientName(name); err != nil {
			return Identity{}, "", false
		}
		return Identity{Role: RoleClient, Name: name}, parts[3], true
	case "user":
		return Identity{Role: RoleUser, Name: name}, parts[3], true
	case "key":
		return Identity{Role: RoleUnaccepted, Name: name, Key: name}, parts[3], true
	case "guest":
		return Identity{Role: RoleGuest, Name: name, Key: name}, parts[3], true
	case "remote":
		return Identity{Role: RoleRemote, Name: name}, parts[3], true
	}
	return Identity{}, "", false
}

// Operation returns the operation at the end of a subject; for a return also its jid, which is
// not checked yet.
func Operation(rest string) (op string, jid salt.JID) {
	if jid, ok := strings.CutPrefix(rest, opReturn); ok {
		return opRet, salt.JID(jid)
	}
	return strings.TrimPrefix(rest, "req."), ""
}
