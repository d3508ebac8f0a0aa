package broker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/bus"
)

// ExternalConfig returns what the configuration of each NATS server needs: the accounts, the
// users of the master with no more rights than they use, and who answers whether somebody may
// connect. It contains public keys only.
func ExternalConfig(c *Credentials, e bus.Endpoints) string {
	requests, windows, acks := e.Subjects()
	traffic, answerer, watcher := public(c.traffic), public(c.answerer), public(c.watcher)
	return fmt.Sprintf(externalConfig, ExternalAccount, traffic, quoted("_INBOX.>", bus.AnyJob, workSubject), quoted(slices.Concat(requests, windows, acks, []string{workSubject, ownInbox})...),
		answererAccount, answerer, quoted("$SYS._INBOX.>", "_INBOX.>"), quoted(authSubject),
		watcher, quoted("$SYS.REQ.SERVER.*.KICK", "$SYS.REQ.SERVER.*.CONNZ", "$SYS.REQ.SERVER.*.IDZ"), quoted("$SYS.ACCOUNT."+ExternalAccount+".DISCONNECT", "$SYS.SERVER.*.STATSZ", ownInbox),
		public(c.issuer), answererAccount, public(c.curve), quoted(traffic, answerer, watcher), ExternalAccount, maxPayload, maxControlLine)
}

// ownInbox is where the master gets answers of the servers.
const ownInbox = "_INBOX.master.>"

func quoted(words ...string) string { return `["` + strings.Join(words, `", "`) + `"]` }

const externalConfig = `# For the configuration of every NATS server of the system, as 'include "brine.conf"'.
# Beside it, each server needs its own: server_name, listen, tls with its certificate (TLS is
# required: minions without it are refused), and with several servers cluster.
accounts {
  %s {
    users: [
      {nkey: %q, permissions: {publish: %s, subscribe: %s}}
    ]
  }
  %s {
    users: [
      {nkey: %q, permissions: {publish: %s, subscribe: %s}}
    ]
  }
  SYS {
    users: [
      {nkey: %q, permissions: {publish: %s, subscribe: %s}}
    ]
  }
}
system_account: SYS
authorization {
  timeout: 5
  auth_callout {
    issuer: %q
    account: %s
    xkey: %q
    auth_users: %s
    # Users of further accounts in this file are not affected.
    allowed_accounts: [%s]
  }
}
max_payload: %d
max_control_line: %d
ping_interval: "10s"
ping_max: 2
`
