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

// OpLogin logs a user of external_auth in on a connection: Login → LoggedIn, or Challenge
// first. Later requests on it are theirs. A guest may send no other requests, so for a guest
// the next connection becomes the user's, see Login.Next.
const OpLogin = "login"

// Login is a claimed user and the proof: a token, a password or, for the backend pki, a
// certificate. Backend and user are all that the client says about how it is verified.
type Login struct {
	Backend  string `json:"eauth"`
	User     string `json:"username"`
	Password string `json:"password,omitempty"`
	// Token is from an earlier login. Backend and User may be empty; otherwise they must be
	// those of the token.
	Token string `json:"token,omitempty"`
	// Certificate is PEM. Without a Signature it is answered with a Challenge.
	Certificate []byte `json:"certificate,omitempty"`
	Signature   []byte `json:"signature,omitempty"`

	MakeToken bool        `json:"make_token,omitempty"`
	Expire    job.Seconds `json:"token_expire,omitempty"` // lifetime of the token; 0 is the default
	// Lenient gives a token the default lifetime if its user may not choose that of Expire.
	Lenient bool `json:"lenient,omitempty"`
	// Address is that of the user whom a program logs in. It is trusted from operators and
	// api_user: failed logins count for it, and it is the source in the audit log.
	Address string `json:"address,omitempty"`
	// Next is the nonce of the guest's next connection, with the same key, which becomes the
	// user's. Others leave it empty: the requesting connection becomes theirs.
	Next string `json:"next,omitempty"`
}

// TokenID is the name of a token at the master: it can be used to revoke the token, but not to
// log in.
func TokenID(token string) string {
	const digits = 16
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])[:digits]
}

// LoggedIn means that the connection is the user's. There is a Token if one was requested.
type LoggedIn struct {
	Backend string    `json:"eauth"`
	User    string    `json:"username"`
	Groups  []string  `json:"groups,omitempty"`
	Token   string    `json:"token,omitempty"`
	Issued  time.Time `json:"start,omitzero"`
	Expires time.Time `json:"expire"` // end of the token or the login
	// Perms are the rules of the user in external_auth as written there: first the texts,
	// sorted, then maps.
	Perms value.Value `json:"perms,omitzero"`
	// Challenge is to be signed; the other fields are then empty.
	Challenge []byte `json:"challenge,omitempty"`
}

// LoginStatement is what the key of a certificate signs: the challenge, for this user and this
// connection (by its inbox prefix), useless for anything else.
func LoginStatement(inbox, user string, challenge []byte) []byte {
	return append([]byte("brine external_auth pki 1\x00"+inbox+"\x00"+user+"\x00"), challenge...)
}

// SignLogin makes the proof for a challenge, as package eauth checks it: a signature of the
// statement with Ed25519, of its SHA-256 with RSA and ECDSA.
func SignLogin(key crypto.Signer, inbox, user string, challenge []byte) ([]byte, error) {
	statement := LoginStatement(inbox, user, challenge)
	if _, ok := key.Public().(ed25519.PublicKey); ok {
		return key.Sign(rand.Reader, statement, crypto.Hash(0))
	}
	sum := sha256.Sum256(statement)
	return key.Sign(rand.Reader, sum[:], crypto.SHA256)
}
