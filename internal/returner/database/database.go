// Package database puts returns into databases through a program of its own, so that
// a minion that uses none does not carry their drivers. It does not talk to a
// database itself; that is package driver, which the program links.
package database

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"

	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/salt"
)

// The kinds of databases, by the names of their returners.
const (
	MySQL    = "mysql"
	Postgres = "postgres"
	SQLite   = "sqlite3"
)

// Database is where a return is to go.
type Database struct {
	Kind     string `json:"kind"`
	File     string `json:"file,omitempty"` // of SQLite, which has nothing of the rest
	Host     string `json:"host,omitempty"` // a name, an address, or the path of a Unix socket
	Port     int    `json:"port,omitempty"`
	Name     string `json:"name,omitempty"`
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
	TLS      *TLS   `json:"tls,omitempty"` // nil for none
}

// TLS is how a server proves itself.
type TLS struct {
	Authorities string `json:"authorities,omitempty"` // in PEM; "" for the system's
}

// Config is t for a server of that name; nil for none. Authorities without a
// certificate are an error.
func (t *TLS) Config(server string) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	c := &tls.Config{ServerName: server}
	if t.Authorities == "" {
		return c, nil
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM([]byte(t.Authorities)) {
		return nil, errors.New("there is no certificate among the authorities")
	}
	return c, nil
}

// Row is a return as the table salt_returns has it.
type Row struct {
	Fun     string `json:"fun"`
	JID     string `json:"jid"`
	Return  string `json:"return"` // JSON
	ID      string `json:"id"`
	Success string `json:"success"`
	Full    string `json:"full_ret"` // JSON of the whole return
}

// Order is what the program is told, as JSON on its standard input. It answers with
// its exit code, and says on standard error what went wrong.
type Order struct {
	Database Database `json:"database"`
	Row      Row      `json:"row"`
}

// Program is the name of the program.
const Program = "salt-returner"

// Helper is the program, by its path.
type Helper string

// Check says whether the program is there.
func (h Helper) Check() error {
	if _, err := exec.LookPath(string(h)); err != nil {
		return salt.WithHint(fmt.Errorf("the program that talks to databases is not there: %w", err), "install "+Program+" beside salt-minion and salt-call")
	}
	return nil
}

// maxWords bounds what the program says.
const maxWords = 64 << 10

// Insert puts a row into a database, in a process of its own, which is killed when
// ctx ends.
func (h Helper) Insert(ctx context.Context, o Order) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	input := string(b)
	p := process.Program{Args: []string{string(h)}, Dir: "/", Env: process.Environ(true), Stdin: &input, Limit: maxWords}
	end, err := p.Run(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("run %s: %w", Program, err)
	case end.Code != 0:
		return end.Failure(Program)
	}
	return nil
}
