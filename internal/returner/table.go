package returner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// table is all returners, sorted by name.
var table = []*Returner{
	{
		Name: "http",
		Doc:  "Post each return as JSON to a webhook: http.url in the minion's configuration.",
		open: openHTTP,
	},
	{
		Name: "local",
		Doc:  "Write each return to the minion's log, at level info.",
		open: openLocal,
	},
	{
		Name:  "master_bus",
		Doc:   "Fire each return on the master's bus, under the tag of --tag or of master_bus.tag in the minion's configuration.",
		early: true,
		open:  openMasterBus,
	},
	{
		Name: "mysql",
		Doc:  "Insert each return into the table salt_returns of a MySQL or MariaDB server: mysql.host, mysql.port, mysql.db, mysql.user and mysql.pass in the minion's configuration, mysql.ssl_ca for the server's certificate.",
		open: openMySQL,
	},
	{
		Name: "nagios_nrdp",
		Doc:  "Send each return to Nagios as the result of a passive check: nagios_nrdp.url and nagios_nrdp.token in the minion's configuration; nagios_nrdp.service is the name of the check, by default the function.",
		open: openNRDP,
	},
	{
		Name: "postgres",
		Doc:  "Insert each return into the table salt_returns of a PostgreSQL server: postgres.host, postgres.port, postgres.db, postgres.user and postgres.passwd in the minion's configuration, postgres.ssl_ca for the server's certificate.",
		open: openPostgres,
	},
	{
		Name: "rawfile_json",
		Doc:  "Append each return as a line of JSON to a file: rawfile_json.filename in the minion's configuration, or /var/log/salt/events.",
		open: openFile,
	},
	{
		Name: "smtp",
		Doc:  "Send each return as an e-mail: smtp.from and smtp.to in the minion's configuration; smtp.host, smtp.port, smtp.subject, smtp.username, smtp.password and smtp.tls where needed.",
		open: openSMTP,
	},
	{
		Name: "sqlite3",
		Doc:  "Insert each return into the table salt_returns of a SQLite file: sqlite3.database in the minion's configuration.",
		open: openSQLite,
	},
	{
		Name: "syslog",
		Doc:  "Write each return as JSON to the system's log, under syslog.tag of the minion's configuration, or salt-minion.",
		open: openSyslog,
	},
}

func openMasterBus(h *Host, o Options) (sender, error) {
	tag := o.Tag
	if tag == "" {
		tag = h.text("master_bus.tag", "")
	}
	if tag == "" {
		return nil, salt.WithHint(errors.New("there is no tag for the events"), "give one with --tag, or set master_bus.tag in the minion's configuration")
	}
	if err := event.CheckMinionTag(h.ID, tag); err != nil {
		return nil, salt.WithHint(err, "give another tag with --tag, or set another master_bus.tag in the minion's configuration")
	}
	if h.Fire == nil {
		return nil, errors.New("there is no way to the master here")
	}
	return func(ctx context.Context, r Return) error { return h.Fire(ctx, tag, r.Data()) }, nil
}

func openLocal(h *Host, _ Options) (sender, error) {
	return func(_ context.Context, r Return) error {
		b, err := value.Encode(r.Return)
		if err == nil {
			h.Log.Info("return", "jid", r.JID, "fun", r.Fun, "retcode", r.Retcode, "return", string(b))
		}
		return err
	}, nil
}

// line returns the return as one line of JSON.
func line(r Return) ([]byte, error) {
	b, err := value.Encode(r.Data())
	return append(b, '\n'), err
}

func openFile(h *Host, _ Options) (sender, error) {
	path := h.text("rawfile_json.filename", h.text("returner.rawfile_json.filename", "/var/log/salt/events"))
	return func(ctx context.Context, r Return) error {
		b, err := line(r)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|posix.NoWaiting, 0o640) // a FIFO that nobody reads would block
		if err != nil {
			return err
		}
		if until, limited := ctx.Deadline(); limited {
			_ = f.SetWriteDeadline(until) // for a FIFO; files have none
		}
		_, err = f.Write(b) // one write, so that returns are not mixed
		return errors.Join(err, f.Close())
	}, nil
}

func openSyslog(h *Host, _ Options) (sender, error) {
	tag := h.text("syslog.tag", "salt-minion")
	return func(ctx context.Context, r Return) error {
		b, err := line(r)
		if err != nil {
			return err
		}
		return writeSyslog(ctx, syslogSockets, tag, b)
	}, nil
}

func openHTTP(h *Host, _ Options) (sender, error) {
	address := h.text("http.url", "")
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, salt.WithHint(fmt.Errorf("http.url is %q, which is not the address of a webhook", address), "set http.url in the minion's configuration, as in https://example.org/hook")
	}
	return func(ctx context.Context, r Return) error {
		b, err := line(r)
		if err != nil {
			return err
		}
		return post(ctx, address, b)
	}, nil
}

// poster posts returns. It follows no redirection: most of them would make it a GET without the
// return, which succeeds, and the others would send the return and a token to another server.
var poster = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// maxAnswer is how much of a webhook's answer is read, so that its connection can be reused.
const maxAnswer = 64 << 10

func post(ctx context.Context, address string, body []byte) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json")
	a, err := poster.Do(q)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(a.Body, maxAnswer)); err != nil {
		return err
	}
	if a.StatusCode/100 != 2 {
		return fmt.Errorf("the webhook answers %s", a.Status)
	}
	return nil
}
