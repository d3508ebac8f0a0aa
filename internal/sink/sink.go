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
	Load   func() (*Config, error) // reads the configuration, at the start and at each hangup
	Listen func(Rule) Source
	Hangup <-chan os.Signal
	Ready  func() // called once the rules are at work
	Log    *slog.Logger
}

// errHangup ends the rules that work by an old configuration.
var errHangup = errors.New("the configuration is read anew")

// Run serves all rules until ctx ends, whose cause it returns, or a rule fails
// for good. A hangup begins files anew and reads the configuration; one that has
// a mistake leaves the old in force.
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
			o.Log.Error("configuration not taken, the old one stays in force", "err", err)
			continue
		}
		c = next
		o.Log.Info("configuration read anew")
	}
}

// serve serves the rules of one configuration.
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

// Check tries every destination and tells the outcome of each. It changes
// nothing there.
func Check(ctx context.Context, c *Config, tell func(r Rule, err error)) {
	for _, r := range c.Rules {
		limited, cancel := context.WithTimeout(ctx, r.timeout)
		tell(r, r.to.check(limited))
		cancel()
	}
}
