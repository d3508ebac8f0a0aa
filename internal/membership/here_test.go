package membership

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/capture"
)

// elsewhere returns the settings of a member that are not enough to say which one it is.
func elsewhere(peers ...string) *config.Master {
	return settings(func(c *config.Master) { c.Interface, c.ClusterPeers = "0.0.0.0", peers })
}

// TestAMemberIsLookedForAtItsMachine: what the settings do not say is no mistake of theirs.
func TestAMemberIsLookedForAtItsMachine(t *testing.T) {
	for name, test := range map[string]struct {
		peers []string
		pass  bool // it may pass
		want  string
	}{
		"no address of this machine": {[]string{"198.51.100.1", "198.51.100.2", "198.51.100.3"}, true, "none of the members"},
		"no lookup":                  {[]string{"198.51.100.1", "m2.invalid", "198.51.100.3"}, true, "lookup m2.invalid"},
		"another port":               {[]string{"198.51.100.1:4521", "198.51.100.2:4521", "127.0.0.1:4521"}, false, "as in cluster_port: 4521"},
		"no lookup, another port":    {[]string{"198.51.100.1:4521", "m2.invalid", "127.0.0.1:4521"}, true, "lookup m2.invalid; members with"},
		"and what to do":             {[]string{"198.51.100.1:4521", "m2.invalid", "127.0.0.1:4521"}, true, "as in cluster_port: 4521"},
		"no lookup of another port":  {[]string{"198.51.100.1:4521", "m2.invalid:4521", "127.0.0.1:4521"}, false, "as in cluster_port: 4521"},
		"several of them":            {[]string{"127.0.0.3", "127.0.0.2", "198.51.100.7:4521"}, false, "several members"},
		"it":                         {[]string{"127.0.0.3", "m2.invalid", "198.51.100.7:4521"}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := elsewhere(test.peers...)
			if err := Check(cfg); err != nil {
				t.Errorf("the settings: %v", err)
			}
			_, err := identify(t.Context(), cfg, func(ctx context.Context, host string) (bool, error) {
				if strings.HasSuffix(host, ".invalid") {
					return false, errors.New("lookup " + host)
				}
				return ofMachine(ctx, host)
			})
			if errors.Is(err, ErrNotHere) != test.pass || (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error()+": "+salt.Hint(err), test.want) {
				t.Errorf("%v: %s, want %q", err, salt.Hint(err), test.want)
			}
		})
	}
}

// TestAStartWaitsForItsAddress: a machine that boots may have no address yet, and no DNS. A service manager
// does not start a master again that ends with a mistake in its configuration.
func TestAStartWaitsForItsAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, told := time.Now(), ""
		var out capture.Buffer
		i, err := awaitHere(t.Context(), elsewhere("m1", "m2", "m3"), func(_ context.Context, host string) (bool, error) {
			return host == "m2" && time.Since(begin) >= time.Minute, nil
		}, func(line string) { told += line + "\n" }, slog.New(slog.NewTextHandler(&out, nil)))
		if err != nil || i.name != "m2_4520" || time.Since(begin) != time.Minute {
			t.Errorf("it is %q after %v: %v", i.name, time.Since(begin), err)
		}
		if said := strings.Count(out.String(), "cluster_advertise"); said != 6 || strings.Count(told, "none of the members") != 6 {
			t.Errorf("it warned %d times, and told\n%s", said, told)
		}
	})
}

// TestAStartDoesNotWaitForMistakes: nor once it is to end.
func TestAStartDoesNotWaitForMistakes(t *testing.T) {
	never := func(string) { t.Error("it waits") }
	everywhere := func(context.Context, string) (bool, error) { return true, nil }
	if _, err := awaitHere(t.Context(), elsewhere("m1", "m2", "m3"), everywhere, never, slog.New(slog.DiscardHandler)); !errors.Is(err, config.ErrMistake) {
		t.Errorf("several members are here: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	nowhere := func(context.Context, string) (bool, error) { return false, nil }
	if _, err := awaitHere(ctx, elsewhere("m1", "m2", "m3"), nowhere, never, slog.New(slog.DiscardHandler)); !errors.Is(err, context.Canceled) || errors.Is(err, config.ErrMistake) {
		t.Errorf("it was to end: %v", err)
	}
}
