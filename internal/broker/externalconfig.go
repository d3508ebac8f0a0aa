package broker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/bus"
)

// storeRights are the subjects to which the journal sends something, in an account of its own: the
// streams that package journal has there, and what package backup does with them.
var storeRights = []string{
	"$JS.API.INFO", "$JS.API.STREAM.NAMES",
	"$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.PURGE.*", "$JS.API.STREAM.DELETE.*",
	"$JS.API.STREAM.MSG.GET.*", "$JS.API.STREAM.MSG.DELETE.*", "$JS.API.STREAM.SNAPSHOT.*", "$JS.API.STREAM.RESTORE.*",
	"$JS.API.CONSUMER.CREATE.*", "$JS.API.CONSUMER.CREATE.*.>", "$JS.API.CONSUMER.INFO.*.*", "$JS.API.CONSUMER.DELETE.*.*", "$JS.API.CONSUMER.MSG.NEXT.*.*",
	"$JS.FC.>", "$JS.SNAPSHOT.>", "$KV.>", "salt.journal.*.>", "salt.queue.*",
}

// ExternalConfig returns what the configuration of each NATS server needs: the accounts, the
// users of the master with no more rights than they use, and who answers whether somebody may
// connect. It contains public keys only.
// With journal, there is an account with JetStream for the journal.
func ExternalConfig(c *Credentials, e bus.Endpoints, journal bool) string {
	requests, windows, acks := e.Subjects()
	traffic, answerer, watcher := public(c.traffic), public(c.answerer), public(c.watcher)
	users, account := []string{traffic, answerer, watcher}, ""
	if journal {
		users = append(users, public(c.store))
		account = fmt.Sprintf(storeConfig, storeAccount, public(c.store), quoted(storeRights...), quoted(ownInbox, "$KV.>"))
	}
	return fmt.Sprintf(externalConfig, ExternalAccount, traffic, quoted("_INBOX.>", bus.AnyJob, workSubject), quoted(slices.Concat(requests, windows, acks, []string{workSubject, ownInbox})...),
		answererAccount, answerer, quoted("$SYS._INBOX.>", "_INBOX.>"), quoted(authSubject),
		account, watcher, quoted("$SYS.REQ.SERVER.*.KICK", "$SYS.REQ.SERVER.*.CONNZ", "$SYS.REQ.SERVER.*.IDZ"), quoted("$SYS.ACCOUNT."+ExternalAccount+".DISCONNECT", "$SYS.SERVER.*.STATSZ", ownInbox),
		public(c.issuer), answererAccount, public(c.curve), quoted(users...), ExternalAccount, maxPayload, maxControlLine)
}

// ownInbox is where the master gets answers of the servers.
const ownInbox = "_INBOX.master.>"

func quoted(words ...string) string { return `["` + strings.Join(words, `", "`) + `"]` }

const storeConfig = `  # The journal. Each server needs 'jetstream {store_dir: ...}' in its own configuration.
  %s {
    jetstream: enabled
    users: [
      {nkey: %q, permissions: {publish: %s, subscribe: %s}}
    ]
  }
`

const externalConfig = `# For the configuration of every NATS server of the system, as 'include "brine.conf"'.
# Beside it, each server needs its own: server_name, listen, tls with its certificate (TLS is
# required: minions without it are refused), and with several servers cluster, in which
# 'tls {cert_file: ..., key_file: ..., ca_file: ..., verify: true}' keeps out servers of
# others: one that is linked sees, and can send, everything.
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
%s  SYS {
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
