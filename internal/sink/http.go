package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// endpoint is a URL to which events are posted. The URL may be a secret, so only its host is ever
// shown.
type endpoint struct {
	address string // "" if it is read from a file
	file    string
	tls     *tlsSettings
	headers map[string]string // literal
	secrets map[string]string // header name to file
}

func readEndpoint(s *section) endpoint {
	e := endpoint{address: s.text("url", ""), file: s.file("url_file"), headers: s.table("headers"), secrets: map[string]string{}}
	for name, path := range s.table("secret_headers") {
		e.secrets[http.CanonicalHeaderKey(name)] = s.r.beside(path)
	}
	if (e.address == "") == (e.file == "") {
		s.wrong("", "url or url_file is needed, and not both")
	}
	e.tls = readTLS(s, true)
	if _, err := parseAddress(e.address); e.address != "" && err != nil {
		s.wrong("url", "%w", err)
	}
	return e
}

func parseAddress(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it cannot be read as an address") // the error does not show the text
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return nil, errors.New("an address that begins with https:// or http:// is wanted")
	case u.User != nil:
		return nil, errors.New("a secret must not be in the address: use secret_headers or url_file")
	}
	return u, nil
}

func (e *endpoint) insecure() bool { return e.tls.insecure }

// String returns the host.
func (e *endpoint) String() string {
	if u, err := parseAddress(e.address); err == nil {
		return u.Host
	}
	return "the address in " + e.file
}

// open reads the secrets.
func (e *endpoint) open() (*poster, error) {
	address := e.address
	if e.file != "" {
		var err error
		if address, err = readSecret(e.file); err != nil {
			return nil, err
		}
	}
	u, err := parseAddress(address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e, err)
	}
	p := &poster{endpoint: e, url: u, header: http.Header{}}
	for name, value := range e.headers {
		p.header.Set(name, value)
	}
	for name, path := range e.secrets {
		value, err := readSecret(path)
		if err != nil {
			return nil, err
		}
		p.header.Set(name, value)
	}
	if u.Scheme == "http" && (len(e.secrets) > 0 || e.file != "") && !loopback(u.Hostname()) && !e.tls.insecure {
		return nil, fmt.Errorf("%s: a secret would be sent over plain http: use https, or set insecure", e)
	}
	return p, p.dial()
}

// poster posts to an endpoint.
type poster struct {
	*endpoint
	url    *url.URL
	header http.Header
	client *http.Client
}

func (p *poster) dial() error {
	conf, err := p.tls.config("")
	if err != nil {
		return err
	}
	p.client = &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: conf, ForceAttemptHTTP2: true, MaxIdleConns: 2,
			IdleConnTimeout: 90 * time.Second, ResponseHeaderTimeout: time.Minute,
		},
		// A redirect would send the events and our credentials to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return nil
}

func (p *poster) close() { p.client.CloseIdleConnections() }

// maxAnswer limits how much of an answer is read, maxWords how much of it is shown.
const (
	maxAnswer = 64 << 10
	maxWords  = 200
)

// post sends one body.
func (p *poster) post(ctx context.Context, body []byte, contentType, key string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url.String(), bytes.NewReader(body))
	if err != nil {
		return p.hide(err)
	}
	req.Header = p.header.Clone()
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("User-Agent", "salt-event-sink")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	answer, err := p.client.Do(req)
	if err != nil {
		return p.hide(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer)) // an unreadable answer is not shown
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		return nil
	}
	err = fmt.Errorf("post to %s: %s: %.*q", p.url.Host, answer.Status, maxWords, bytes.TrimSpace(text))
	switch answer.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return refused(err)
	}
	return err
}

// hide removes the URL from an error.
func (p *poster) hide(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("post to %s: %w", p.url.Host, err)
}

// check sends an OPTIONS request. Any answer shows that the server is reachable and is the right
// one.
func (e *endpoint) check(ctx context.Context) error {
	p, err := e.open()
	if err != nil {
		return err
	}
	defer p.close()
	req, err := http.NewRequestWithContext(ctx, http.MethodOptions, p.url.String(), nil)
	if err != nil {
		return p.hide(err)
	}
	req.Header = p.header.Clone()
	answer, err := p.client.Do(req)
	if err != nil {
		return p.hide(err)
	}
	return answer.Body.Close()
}
