package module

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/value"
)

var httpParams = []function.Param{
	{Name: "url", Kind: function.String, Required: true},
	{Name: "method", Kind: function.String, Default: "GET"},
	{Name: "params", Kind: function.Map},
	{Name: "data"},
	{Name: "header_dict", Kind: function.Map},
	{Name: "username", Kind: function.String},
	{Name: "password", Kind: function.String},
	{Name: "decode", Kind: function.Bool, Default: false},
	{Name: "decode_type", Kind: function.String, Default: "auto"},
	{Name: "status", Kind: function.Bool, Default: false},
	{Name: "headers", Kind: function.Bool, Default: false},
	{Name: "text", Kind: function.Bool, Default: false},
	{Name: "timeout", Kind: function.Float, Default: 60.0},
	{Name: "verify_ssl", Kind: function.Bool, Default: true},
	{Name: "ca_bundle", Kind: function.Path},
	{Name: "raise_error", Kind: function.Bool, Default: true},
}

// httpModule sends requests to web servers.
var httpModule = &function.Module{
	Name: "http",
	Doc:  "Functions that send requests to web servers. Certificates are checked unless verify_ssl is False.",
	Functions: []function.Function{
		{
			Name: "query",
			Doc: "Send a request to a web server and return a dictionary: body, or text with text; status and headers where asked for; with decode, dict, which is read from JSON. " +
				"data is a text, or a dictionary that is sent as a form. An answer of 400 and more has status and error, and fails with raise_error.",
			Example: "salt '*' http.query http://example.com/ status=True\nsalt '*' http.query http://example.com/api method=POST data='{\"a\": 1}' header_dict='{Content-Type: application/json}' decode=True",
			Params:  httpParams,
			Run:     httpQuery,
		},
		{
			Name:    "wait_for_successful_query",
			Doc:     "Send a request to a web server again and again, until it answers with less than 400 or wait_for seconds have passed.",
			Example: `salt '*' http.wait_for_successful_query http://example.com/ wait_for=160 request_interval=1`,
			Params:  append(httpParams[:len(httpParams):len(httpParams)], function.Param{Name: "wait_for", Kind: function.Float, Default: 300.0}, function.Param{Name: "request_interval", Kind: function.Float, Default: 1.0}),
			Run:     httpWait,
		},
	},
}

// maxBody limits how much of an answer is read, in bytes.
const maxBody = 64 << 20

// errStatus is wrapped by the error for a status code of 400 or higher.
var errStatus = errors.New("the server answered with an error")

func httpQuery(ctx context.Context, c *function.Call) (any, error) {
	ret, err := askWeb(ctx, c)
	if errors.Is(err, errStatus) && !c.Bool("raise_error") {
		return ret, nil
	}
	if err != nil && ret != nil {
		c.SetRetcode(1)
		return ret, nil
	}
	return ret, err
}

func httpWait(ctx context.Context, c *function.Call) (any, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, seconds(c.Float("wait_for")), fmt.Errorf("no success within %v seconds", c.Float("wait_for")))
	defer cancel()
	for {
		ret, err := askWeb(ctx, c)
		if err == nil {
			return ret, nil
		}
		if pause(ctx, max(seconds(c.Float("request_interval")), 10*time.Millisecond)) != nil {
			return nil, fmt.Errorf("%w, the last time: %w", context.Cause(ctx), err)
		}
	}
}

// askWeb sends one request. If the error wraps errStatus, it also returns the answer.
func askWeb(ctx context.Context, c *function.Call) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, seconds(c.Float("timeout")))
	defer cancel()
	q, err := webRequest(ctx, c)
	if err != nil {
		return nil, err
	}
	client, err := webClient(c)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	answer, err := client.Do(q)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBody+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("the answer has more than %d bytes; cp.get_url takes it as a file", maxBody)
	}
	return webAnswer(c, answer, body)
}

func webRequest(ctx context.Context, c *function.Call) (*http.Request, error) {
	address, err := url.Parse(c.String("url"))
	if err != nil || address.Scheme != "http" && address.Scheme != "https" || address.Host == "" {
		return nil, function.Invalid("%q is not an address that begins with http:// or https://", c.String("url"))
	}
	if c.Has("params") {
		query := address.Query()
		for k, v := range formOf(c.Map("params")) {
			query[k] = v
		}
		address.RawQuery = query.Encode()
	}
	var body io.Reader
	form, isForm := c.Any("data").(map[string]any)
	switch {
	case isForm:
		body = strings.NewReader(formOf(form).Encode())
	case c.Has("data"):
		body = strings.NewReader(value.Str(c.Any("data")))
	}
	q, err := http.NewRequestWithContext(ctx, strings.ToUpper(c.String("method")), address.String(), body)
	if err != nil {
		return nil, err
	}
	if isForm {
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for k, v := range c.Map("header_dict") {
		q.Header.Set(k, value.Str(v))
	}
	if c.Has("username") {
		q.SetBasicAuth(c.String("username"), c.String("password"))
	}
	return q, nil
}

func formOf(m map[string]any) url.Values {
	form := url.Values{}
	for k, v := range m {
		form.Set(k, value.Str(v))
	}
	return form
}

// webClient returns a client for one request.
func webClient(c *function.Call) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: !c.Bool("verify_ssl")}
	if c.Has("ca_bundle") {
		text, err := os.ReadFile(c.String("ca_bundle"))
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, function.Invalid("there is no certificate in %s", c.String("ca_bundle"))
		}
	}
	return &http.Client{Transport: transport}, nil
}

// webAnswer returns the answer in Salt's format.
func webAnswer(c *function.Call, answer *http.Response, body []byte) (map[string]any, error) {
	ret := map[string]any{"body": string(body)}
	if c.Bool("text") {
		ret = map[string]any{"text": string(body)}
	}
	if c.Bool("status") {
		ret["status"] = answer.StatusCode
	}
	if c.Bool("headers") {
		headers := map[string]any{}
		for name := range maps.Keys(answer.Header) {
			headers[name] = answer.Header.Get(name)
		}
		ret["headers"] = headers
	}
	if answer.StatusCode >= http.StatusBadRequest {
		ret["status"], ret["error"] = answer.StatusCode, "HTTP "+answer.Status
		return ret, fmt.Errorf("%w: %s", errStatus, answer.Status)
	}
	if !c.Bool("decode") {
		return ret, nil
	}
	isJSON := json.Valid(body) && !bytes.Equal(bytes.TrimSpace(body), nil)
	switch kind := c.String("decode_type"); {
	case kind == "plain", kind == "auto" && !isJSON:
		ret["text"] = string(body)
	case kind == "json", kind == "auto":
		v, err := value.Decode(body)
		if err != nil {
			return nil, fmt.Errorf("the answer is not JSON: %w", err)
		}
		ret["dict"] = v
	default:
		return nil, function.Invalid("unknown decode_type %q, known are auto, json and plain", kind)
	}
	return ret, nil
}
