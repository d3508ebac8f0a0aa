package saltapi

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/netapi"
	"github.com/brinebus/brine/internal/salt"
)

// settings are those of rest_cherrypy.
type settings struct {
	host             string
	port             int
	cert, key, chain string
	plain            bool // disable_ssl
	api              netapi.Options
}

// setter parses one setting.
type setter func(*settings, any) error

// known are the settings of rest_cherrypy; those without a setter have no effect here.
var known = map[string]setter{
	"api_acl":               readACL,
	"app":                   text(func(s *settings) *string { return &s.api.App }),
	"app_path":              text(func(s *settings) *string { return &s.api.AppPath }),
	"authorized_ips":        readIPs,
	"collect_stats":         nil,
	"cors_origin":           readOrigins,
	"debug":                 nil,
	"disable_ssl":           truth(func(s *settings) *bool { return &s.plain }),
	"enable_sessions":       truth(func(s *settings) *bool { return &s.api.Sessions }),
	"expire_responses":      truth(func(s *settings) *bool { return &s.api.Expire }),
	"host":                  text(func(s *settings) *string { return &s.host }),
	"log.access_file":       nil,
	"log.error_file":        nil,
	"log_access_file":       nil,
	"log_error_file":        nil,
	"max_request_body_size": readSize,
	"port":                  readPort,
	"root_prefix":           readPrefix,
	"socket_queue_size":     nil,
	"ssl_chain":             text(func(s *settings) *string { return &s.chain }),
	"ssl_crt":               text(func(s *settings) *string { return &s.cert }),
	"ssl_key":               text(func(s *settings) *string { return &s.key }),
	"static":                text(func(s *settings) *string { return &s.api.Static }),
	"static_path":           text(func(s *settings) *string { return &s.api.StaticPath }),
	"stats_disable_auth":    truth(func(s *settings) *bool { return &s.api.StatsNoAuth }),
	"thread_pool":           nil,
	"webhook_disable_auth":  truth(func(s *settings) *bool { return &s.api.WebhookNoAuth }),
	"webhook_url":           text(func(s *settings) *string { return &s.api.WebhookURL }),
}

// clients are the values of netapi_enable_clients.
var clients = []string{"local", "local_async", "local_batch", "local_subset", "runner", "runner_async", "ssh", "wheel", "wheel_async"}

// defaults returns Salt's defaults, and one for the port.
func defaults() settings {
	return settings{host: "0.0.0.0", port: 8000, api: netapi.Options{
		Sessions: true, Expire: true, MaxBody: 1 << 20, WebhookURL: "/hook", AppPath: "/app", StaticPath: "/static",
	}}
}

// read reads rest_cherrypy and netapi_enable_clients. notes lists known settings that have no
// effect here.
func read(cfg *config.Master) (s settings, notes []string, err error) {
	s = defaults()
	s.api.Clients, s.api.Timeout = cfg.NetapiClients, cfg.Timeout
	for _, c := range cfg.NetapiClients {
		if !slices.Contains(clients, c) {
			return s, nil, config.Mistake(salt.WithHint(fmt.Errorf("netapi_enable_clients: %q is not a client", c), "they are "+strings.Join(clients, ", ")))
		}
	}
	l := cfg.RestCherrypy
	if l.Present() {
		if notes, err = s.fill(l); err != nil {
			return s, nil, err
		}
	}
	for _, p := range []*string{&s.cert, &s.key, &s.chain, &s.api.App, &s.api.Static} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(cfg.RootDir, *p)
		}
	}
	s.api.TLS = !s.plain
	return s, notes, nil
}

// fill reads rest_cherrypy.
func (s *settings) fill(l config.Located) (notes []string, err error) {
	values, ok := l.Value().(map[string]any)
	if !ok {
		return nil, l.At(nil, errors.New("it is not a mapping of settings"))
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		set, ok := known[name]
		switch {
		case !ok:
			return nil, l.At(nil, salt.WithHint(fmt.Errorf("there is no setting %q", name), "there are "+strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
		case set == nil:
			notes = append(notes, name)
			continue
		}
		if err := set(s, values[name]); err != nil {
			return nil, l.At(nil, fmt.Errorf("%s: %w", name, err))
		}
	}
	return notes, nil
}

func text(to func(*settings) *string) setter {
	return func(s *settings, v any) error {
		word, ok := v.(string)
		if !ok {
			return fmt.Errorf("%v is not text", v)
		}
		*to(s) = word
		return nil
	}
}

func truth(to func(*settings) *bool) setter {
	return func(s *settings, v any) error {
		b, ok := v.(bool)
		if !ok {
			return fmt.Errorf("%v is neither true nor false", v)
		}
		*to(s) = b
		return nil
	}
}

func readPort(s *settings, v any) error {
	n, ok := v.(int64)
	if !ok || n < 1 || n > 65535 {
		return fmt.Errorf("%v is not a port", v)
	}
	s.port = int(n)
	return nil
}

// maxSize limits max_request_body_size: a body is kept in memory.
const maxSize = 64 << 20

func readSize(s *settings, v any) error {
	n, ok := v.(int64)
	if !ok || n < 1 || n > maxSize {
		return fmt.Errorf("%v is not a number of bytes up to %d", v, maxSize)
	}
	s.api.MaxBody = n
	return nil
}

func readPrefix(s *settings, v any) error {
	word, ok := v.(string)
	if !ok || strings.Trim(word, "/") != "" {
		return salt.WithHint(fmt.Errorf("%v is not served", v), "leave it out, and have a proxy take the prefix off")
	}
	return nil
}

// list reads a text or a list of texts.
func list(v any) ([]string, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		return []string{v}, nil
	case []any:
		var words []string
		for _, one := range v {
			word, ok := one.(string)
			if !ok {
				return nil, fmt.Errorf("%v is not text", one)
			}
			words = append(words, word)
		}
		return words, nil
	}
	return nil, fmt.Errorf("%v is not a list of texts", v)
}

func readOrigins(s *settings, v any) (err error) {
	s.api.Origins, err = list(v)
	return err
}

func readIPs(s *settings, v any) error {
	words, err := list(v)
	if err != nil {
		return err
	}
	for _, w := range words {
		p, err := prefix(w)
		if err != nil {
			return err
		}
		s.api.AuthorizedIPs = append(s.api.AuthorizedIPs, p)
	}
	return nil
}

func prefix(word string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(word); err == nil {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(word)
	if err != nil {
		return p, fmt.Errorf("%q is neither an address nor a network", word)
	}
	return p.Masked(), nil
}

// readACL reads {users: {NAME: [ADDRESS]}}.
func readACL(s *settings, v any) error {
	m, ok := v.(map[string]any)
	users, isMap := m["users"].(map[string]any)
	if !ok || len(m) != 1 || !isMap {
		return salt.WithHint(errors.New("it is not a mapping with users"), "as in {users: {fred: [127.0.0.1], '*': [10.0.0.0/8]}}")
	}
	s.api.Users = map[string][]string{}
	for name, addresses := range users {
		words, err := list(addresses)
		if err != nil {
			return err
		}
		for _, w := range words {
			if _, err := prefix(w); w != "*" && err != nil {
				return err
			}
		}
		s.api.Users[name] = words
	}
	return nil
}
