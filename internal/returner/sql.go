package returner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/returner/database"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// toDatabase returns a sender to a database, through the host's program for that, which must exist.
func toDatabase(h *Host, to database.Database) (sender, error) {
	helper := database.Helper(h.Databases)
	if helper == "" {
		helper = database.Helper(process.Beside(database.Program))
	}
	if err := helper.Check(); err != nil {
		return nil, err
	}
	return func(ctx context.Context, r Return) error {
		row, err := rowOf(r)
		if err != nil {
			return err
		}
		return helper.Insert(ctx, database.Order{Database: to, Row: row})
	}, nil
}

func rowOf(r Return) (database.Row, error) {
	result, err := value.Encode(r.Return)
	if err != nil {
		return database.Row{}, err
	}
	full, err := value.Encode(r.Data())
	if err != nil {
		return database.Row{}, err
	}
	row := database.Row{Fun: value.Str(r.Fun), JID: string(r.JID), Return: string(result), ID: string(r.ID), Success: value.Str(r.Success), Full: string(full)}
	// A job with several functions has a list of them, and a dictionary of what has succeeded, which do not fit
	// into the columns; all of that is in the full return.
	if each, several := r.Success.(map[string]any); several {
		row.Success = value.Str(allTrue(each))
	}
	if fun := []rune(row.Fun); len(fun) > maxFun {
		row.Fun = string(fun[:maxFun])
	}
	return row, nil
}

// maxFun is how many characters the narrowest column for functions has.
const maxFun = 190

func allTrue(each map[string]any) bool {
	for _, v := range each {
		if v != true {
			return false
		}
	}
	return true
}

// setting returns a setting of a returner, by any of its names.
func (h *Host) setting(byDefault string, keys ...string) string {
	for _, key := range keys {
		for _, name := range []string{key, "returner." + key} {
			if v, ok := h.Config[name]; ok && v != nil && value.Str(v) != "" {
				return value.Str(v)
			}
		}
	}
	return byDefault
}

// readServer reads the address and the user of a database server from the settings that begin with
// its kind.
func readServer(h *Host, kind, port string) (database.Database, error) {
	d := database.Database{
		Kind: kind, Host: h.setting("localhost", kind+".host"), Name: h.setting("salt", kind+".db"), User: h.setting("salt", kind+".user"),
		Password: h.setting("", kind+".passwd", kind+".pass"),
	}
	var err error
	if d.Port, err = strconv.Atoi(h.setting(port, kind+".port")); err != nil || d.Port < 1 || d.Port > 65535 {
		return d, salt.WithHint(errors.New("there is no such port"), "set "+kind+".port in the minion's configuration to a number")
	}
	local := strings.HasPrefix(d.Host, "/") || d.Host == "localhost" || net.ParseIP(d.Host).IsLoopback()
	d.TLS, err = readTLS(h, kind, !local)
	return d, err
}

// readTLS returns the settings for TLS. A server's certificate is always verified, with the
// authorities of the system or of ssl_ca; ssl: False disables TLS.
func readTLS(h *Host, kind string, byDefault bool) (*database.TLS, error) {
	file := h.setting("", kind+".ssl_ca")
	switch h.setting("", kind+".ssl") {
	case "False":
		return nil, nil
	case "":
		if !byDefault && file == "" {
			return nil, nil
		}
	}
	if file == "" {
		return &database.TLS{}, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	t := &database.TLS{Authorities: string(text)}
	if _, err := t.Config(""); err != nil || len(text) == 0 {
		return nil, salt.WithHint(fmt.Errorf("there is no certificate in %s", file), "set "+kind+".ssl_ca to a file in PEM")
	}
	return t, nil
}

func openPostgres(h *Host, _ Options) (sender, error) {
	d, err := readServer(h, database.Postgres, "5432")
	if err != nil {
		return nil, err
	}
	return toDatabase(h, d)
}

func openMySQL(h *Host, _ Options) (sender, error) {
	d, err := readServer(h, database.MySQL, "3306")
	if err != nil {
		return nil, err
	}
	return toDatabase(h, d)
}

func openSQLite(h *Host, _ Options) (sender, error) {
	file := h.setting("", "sqlite3.database")
	if !strings.HasPrefix(file, "/") {
		return nil, salt.WithHint(errors.New("there is no database"), "set sqlite3.database in the minion's configuration to the path of a file")
	}
	return toDatabase(h, database.Database{Kind: database.SQLite, File: file})
}
