// Package database writes returns to databases through a separate program, so that a minion that
// uses none does not contain their drivers. It does not connect to a database itself; that is
// package driver, which only the program links.
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

// Database is the destination of a return.
type Database struct {
	Kind     string `json:"kind"`
	File     string `json:"file,omitempty"` // of SQLite, which uses no other field
	Host     string `json:"host,omitempty"` // a name, an address, or the path of a Unix socket
	Port     int    `json:"port,omitempty"`
	Name     string `json:"name,omitempty"`
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
	TLS      *TLS   `json:"tls,omitempty"` // nil for none
}

// TLS defines how a server is verified.
type TLS struct {
	Authorities string `json:"authorities,omitempty"` // in PEM; "" for those of the system
}

// Config returns the TLS configuration for a server with that name; nil for none. Authorities
// without a certificate are an error.
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

// Row is a return as a row of the table salt_returns.
type Row struct {
	Fun     string `json:"fun"`
	JID     string `json:"jid"`
	Return  string `json:"return"` // JSON
	ID      string `json:"id"`
	Success string `json:"success"`
	Full    string `json:"full_ret"` // JSON of the whole return
}

// Order is the input of the program, as JSON on its standard input. The program reports the result
// by its exit code, and an error on standard error.
type Order struct {
	Database Database `json:"database"`
	Row      Row      `json:"row"`
}

// Program is the name of the program.
const Program = "salt-returner"

// Helper is the path of the program.
type Helper string

// Check returns an error if the program is missing.
func (h Helper) Check() error {
	if _, err := exec.LookPath(string(h)); err != nil {
		return salt.WithHint(fmt.Errorf("the program that talks to databases is not there: %w", err), "install "+Program+" beside salt-minion and salt-call")
	}
	return nil
}

// maxWords limits the output of the program.
const maxWords = 64 << 10

// Insert inserts a row into a database, in a separate process, which is killed when ctx ends.
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
