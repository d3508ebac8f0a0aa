package protocol

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/value"
)

// OpLogin makes a connection that of a user of external_auth: Login → LoggedIn,
// or Challenge first. What it asks for from then on is theirs. A guest may ask for nothing
// more, so it is the next connection that is the user's, see Login.Next.
const OpLogin = "login"

// Login is who somebody claims to be, and the proof: a token, a password or, for
// the backend pki, a certificate. Backend and user are all that the asking side
// says about how it is verified.
type Login struct {
	Backend  string `json:"eauth"`
	User     string `json:"username"`
	Password string `json:"password,omitempty"`
	// Token stands for an earlier login. Backend and User may be empty; where
	// they are not, they must be those of the token.
	Token string `json:"token,omitempty"`
	// Certificate is PEM. Without a Signature it is answered with a Challenge.
	Certificate []byte `json:"certificate,omitempty"`
	Signature   []byte `json:"signature,omitempty"`

	MakeToken bool        `json:"make_token,omitempty"`
	Expire    job.Seconds `json:"token_expire,omitempty"` // of the token; 0 is the usual life
	// Lenient gives a token the usual life where its user may not choose that of Expire.
	Lenient bool `json:"lenient,omitempty"`
	// Address is that of whom a program logs in. It is believed of operators and of
	// api_user: guesses are counted for it, and the audit log has it as the source.
	Address string `json:"address,omitempty"`
	// Next is the nonce of the connection that a guest makes next, with the same key: that one
	// is the user's. Others leave it out: theirs is the connection that asks.
	Next string `json:"next,omitempty"`
}

// TokenID is the name of a token at the master, by which it can be revoked and not used.
func TokenID(token string) string {
	const digits = 16
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])[:digits]
}

// LoggedIn says that the connection is the user's. There is a Token if one was
// asked for.
type LoggedIn struct {
	Backend string    `json:"eauth"`
	User    string    `json:"username"`
	Groups  []string  `json:"groups,omitempty"`
	Token   string    `json:"token,omitempty"`
	Issued  time.Time `json:"start,omitzero"`
	Expires time.Time `json:"expire"` // of the token, or of the login
	// Perms are the rules of the user in external_auth as they are written there: texts,
	// sorted, then maps.
	Perms value.Value `json:"perms,omitzero"`
	// Challenge is to be signed; all else is then empty.
	Challenge []byte `json:"challenge,omitempty"`
}

// LoginStatement is what the key of a certificate signs: the challenge, for this
// user and this connection, by its inbox prefix, and good for nothing else.
func LoginStatement(inbox, user string, challenge []byte) []byte {
	return append([]byte("brine external_auth pki 1\x00"+inbox+"\x00"+user+"\x00"), challenge...)
}

// SignLogin makes the proof that answers a challenge, as package eauth checks it: a signature of
// the statement for Ed25519, of its SHA-256 for RSA and ECDSA.
func SignLogin(key crypto.Signer, inbox, user string, challenge []byte) ([]byte, error) {
	statement := LoginStatement(inbox, user, challenge)
	if _, ok := key.Public().(ed25519.PublicKey); ok {
		return key.Sign(rand.Reader, statement, crypto.Hash(0))
	}
	sum := sha256.Sum256(statement)
	return key.Sign(rand.Reader, sum[:], crypto.SHA256)
}
