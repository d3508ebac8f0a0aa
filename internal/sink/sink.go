package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// Options are what a sink needs.
type Options struct {
	Load   func() (*Config, error) // reads the configuration, at the start and at each SIGHUP
	Listen func(Rule) Source
	Hangup <-chan os.Signal
	Ready  func() // called once when the rules are running
	Log    *slog.Logger
}

// errHangup stops the rules of the old configuration.
var errHangup = errors.New("the configuration is read again")

// Run serves all rules until ctx ends, or until a rule fails permanently. It returns the cause of
// ctx or the error of the rule. SIGHUP reopens files and reads the configuration again; if the new
// one has an error, the old one stays in force.
func Run(ctx context.Context, o Options) error {
	c, err := o.Load()
	if err != nil {
		return err
	}
	for fresh := false; ; fresh = true {
		if err := o.serve(ctx, c, fresh); !errors.Is(err, errHangup) {
			return err
		}
		next, err := o.Load()
		if err != nil {
			o.Log.Error("configuration not accepted, the old one stays in force", "err", err)
			continue
		}
		c = next
		o.Log.Info("configuration read again")
	}
}

// serve runs the rules of one configuration.
func (o Options) serve(ctx context.Context, c *Config, fresh bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, text := range c.Warnings() {
		o.Log.Warn(text)
	}
	var ended sync.WaitGroup
	for _, r := range c.Rules {
		w := &worker{rule: r, source: o.Listen(r), log: o.Log.With("rule", r.Name, "to", r.String()), fresh: fresh}
		ended.Go(func() {
			w.log.Info("rule at work")
			if err := w.run(ctx); ctx.Err() == nil {
				cancel(fmt.Errorf("rule %q: %w", r.Name, err))
			}
		})
	}
	o.Ready()
	select {
	case <-o.Hangup:
		cancel(errHangup)
	case <-ctx.Done():
	}
	ended.Wait()
	return context.Cause(ctx)
}

// Check tries to reach every destination and calls tell with each result. It changes nothing there.
func Check(ctx context.Context, c *Config, tell func(r Rule, err error)) {
	for _, r := range c.Rules {
		limited, cancel := context.WithTimeout(ctx, r.timeout)
		tell(r, r.to.check(limited))
		cancel()
	}
}
