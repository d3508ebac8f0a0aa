package returner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/smtp"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// mailer sends returns as mail.
type mailer struct {
	h              *Host
	host, port     string
	from           *mail.Address
	to             []*mail.Address
	user, password string
	secure         bool // refuse a server without TLS
	subject        string
}

func openSMTP(h *Host, _ Options) (sender, error) {
	m := &mailer{
		h: h, host: h.setting("localhost", "smtp.host"), port: h.setting("25", "smtp.port"), user: h.setting("", "smtp.username"),
		password: h.setting("", "smtp.password"), subject: h.setting("Salt: {fun} on {id}", "smtp.subject"),
	}
	m.secure = h.setting("", "smtp.tls") == "True" || m.user != ""
	var err error
	if m.from, err = mail.ParseAddress(h.setting("", "smtp.from")); err != nil {
		return nil, salt.WithHint(fmt.Errorf("the sender is not an address: %w", err), "set smtp.from in the minion's configuration")
	}
	if m.to, err = mail.ParseAddressList(h.setting("", "smtp.to")); err != nil {
		return nil, salt.WithHint(fmt.Errorf("the recipients are not addresses: %w", err), "set smtp.to in the minion's configuration, with commas between several")
	}
	return m.send, nil
}

func (m *mailer) send(ctx context.Context, r Return) error {
	text, err := m.message(r)
	if err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(m.host, m.port))
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	c, err := smtp.NewClient(conn, m.host)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := m.open(c); err != nil {
		return err
	}
	return m.hand(c, text)
}

// open starts TLS if the server supports it, or fails if it is required, and logs in.
func (m *mailer) open(c *smtp.Client) error {
	asked, err := readTLS(m.h, "smtp", true)
	if err != nil {
		return err
	}
	config, err := asked.Config(m.host)
	if err != nil {
		return err
	}
	if ok, _ := c.Extension("STARTTLS"); ok && config != nil {
		if err := c.StartTLS(config); err != nil {
			return err
		}
	} else if m.secure {
		return errors.New("the mail server has no TLS, which smtp.tls or smtp.username asks for")
	}
	if m.user == "" {
		return nil
	}
	return c.Auth(smtp.PlainAuth("", m.user, m.password, m.host))
}

func (m *mailer) hand(c *smtp.Client, text []byte) error {
	if err := c.Mail(m.from.Address); err != nil {
		return err
	}
	for _, to := range m.to {
		if err := c.Rcpt(to.Address); err != nil {
			return err
		}
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return c.Quit()
}

// message writes the mail. The return of a function is only in the body, where it cannot be mistaken
// for a header.
func (m *mailer) message(r Return) ([]byte, error) {
	encoded, err := value.Encode(r.Data())
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	if err := json.Indent(&body, encoded, "", "  "); err != nil {
		return nil, err
	}
	subject := strings.NewReplacer("{id}", string(r.ID), "{jid}", string(r.JID), "{fun}", value.Str(r.Fun), "{success}", value.Str(r.Success)).Replace(m.subject)
	to := make([]string, len(m.to))
	for i, a := range m.to {
		to[i] = a.String()
	}
	var b bytes.Buffer
	for _, header := range [][2]string{
		{"From", m.from.String()}, {"To", strings.Join(to, ", ")}, {"Subject", mime.QEncoding.Encode("utf-8", strings.Join(strings.Fields(subject), " "))},
		{"Date", time.Now().Format(time.RFC1123Z)}, {"MIME-Version", "1.0"}, {"Content-Type", "text/plain; charset=utf-8"}, {"Content-Transfer-Encoding", "quoted-printable"},
	} {
		b.WriteString(header[0] + ": " + header[1] + "\r\n")
	}
	b.WriteString("\r\n")
	w := quotedprintable.NewWriter(&b)
	_, err = w.Write(body.Bytes())
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
