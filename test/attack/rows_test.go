package attack

// rows are the attacks.
var rows = []row{
	{
		name: "half-open", attacker: "anybody", tries: "%d connections that say nothing",
		short: 1500, full: 10_000, attack: halfOpen,
	},
	{
		name: "half-open, 1,024 descriptors", attacker: "anybody", tries: "%d connections that say nothing, to a master with few descriptors",
		short: 1500, full: 10_000, files: 1024, attack: halfOpen,
	},
	{
		name: "TLS without CONNECT", attacker: "anybody", tries: "%d connections that shake hands and say nothing",
		short: 400, full: 10_000, attack: silentTLS,
	},
	{
		name: "unknown keys, one host", attacker: "unknown keys", tries: "%d connections, each with a key of its own, that ask",
		short: 300, full: 20_000, attack: unknownKeys(1),
	},
	{
		name: "unknown keys, 500 addresses", attacker: "unknown keys", tries: "%d connections, each with a key of its own, that ask",
		short: 300, full: 20_000, attack: unknownKeys(500),
	},
	{
		name: "unknown keys, four connections", attacker: "unknown keys", tries: "%d questions of 60 KB over four connections, no answer of which is read",
		short: 4_000, full: 100_000, again: true, attack: fourConnections,
	},
	{
		name: "unknown keys, long questions", attacker: "unknown keys", tries: "%d connections with 128 standing questions of 63 KB",
		short: 20, full: 150, attack: longQuestions,
	},
	{
		name: "other keys of a known id", attacker: "unknown keys", tries: "%d connections that claim to be web1",
		short: 400, full: 9_000, attack: impostors,
	},
	{
		name: "junk of a minion", attacker: "a minion", tries: "%d messages without sense on all its subjects",
		short: 20_000, full: 252_000, again: true, attack: junk,
	},
	{
		name: "requests of a minion", attacker: "a minion", tries: "%d requests whose answers it does not read",
		short: 20_000, full: 252_000, again: true, attack: unreadRequests,
	},
	{
		name: "windows of a minion", attacker: "a minion", tries: "%d messages that widen the window of an answer that there is not",
		short: 20_000, full: 252_000, again: true, attack: strayMessages((*attack).asMinion, ".ack.1.4096"),
	},
	{
		name: "windows of a user", attacker: "a user without rights", tries: "%d messages that widen the window of an answer that there is not", user: "nobody",
		short: 20_000, full: 252_000, again: true, attack: strayMessages((*attack).asUser, ".credit"),
	},
	{
		name: "confirmations of a client", attacker: "a client", tries: "%d messages that say that some of an answer was taken that there is not",
		short: 20_000, full: 252_000, again: true, attack: strayMessages((*attack).asClient, ".ack.1.4096"),
	},
	{
		name: "requests with foreign replies", attacker: "a minion", tries: "%d requests whose answer would go to another",
		short: 20_000, full: 252_000, again: true, attack: foreignReplies,
	},
	{
		name: "questions with foreign replies", attacker: "unknown keys", tries: "%d questions whose answer would go to another, of 50 keys",
		short: 20_000, full: 252_000, again: true, attack: foreignQuestions,
	},
	{
		name: "endless requests of a minion", attacker: "a minion", tries: "%d pieces of 512 KB, of requests that do not end",
		short: 600, full: 20_000, again: true, attack: endless((*attack).asMinion),
	},
	{
		name: "events of one tag", attacker: "a minion", tries: "%d events",
		short: 10_000, full: 500_000, again: true, attack: events(func(int) string { return "evil/one" }, 100),
	},
	{
		name: "events of unique tags", attacker: "a minion", tries: "%d events",
		short: 10_000, full: 500_000, again: true, attack: events(uniqueTag, 100),
	},
	{
		name: "events of 200 KB", attacker: "a minion", tries: "%d events, more than the journal holds",
		short: 400, full: 4_000, config: "event_max_bytes: 67108864\n", attack: events(uniqueTag, 200<<10),
	},
	{
		name: "grains of 700 KB", attacker: "a minion", tries: "them %d times",
		short: 40, full: 1_000, attack: grains,
	},
	{
		name: "events of a client", attacker: "a client", tries: "%d events",
		short: 5_000, full: 200_000, again: true, attack: clientEvents,
	},
	{
		name: "listeners that never read", attacker: "a user with a grant", tries: "%d listeners to a journal of 40 MB", user: "nobody",
		fullOnly: true, short: 60, full: 60, prepare: fillJournal, attack: deafListeners,
	},
	{
		name: "dead letters", attacker: "a user with a grant", tries: "%d of 800 KB, and then a list that nobody reads", user: "nobody",
		fullOnly: true, short: 60, full: 2_500, attack: deadLetters,
	},
	{
		name: "a big return, read twice", attacker: "an operator's scripts", tries: "one of 60 MB, by two at once, %d times",
		fullOnly: true, short: 1, full: 5, prepare: bigReturn, attack: readTwice,
	},
	{
		name: "returns of 60 MB", attacker: "a minion", tries: "%d of jobs of its own",
		fullOnly: true, short: 2, full: 20, attack: bigReturns,
	},
	{
		name: "requests of a user", attacker: "a user without rights", tries: "%d requests whose answers are not read", user: "nobody",
		short: 20_000, full: 252_000, again: true, attack: userRequests,
	},
	{
		name: "endless requests of a user", attacker: "a user without rights", tries: "%d pieces of 512 KB, of requests that do not end", user: "nobody",
		short: 600, full: 20_000, again: true, attack: endless((*attack).asUser),
	},
	{
		name: "JSON bombs of a user", attacker: "a user without rights", tries: "each operation %d times, with 60 MB of {\"\":0},", user: "nobody",
		short: 1, full: 3, attack: bombs((*attack).asUser, "req."),
	},
	{
		name: "JSON bombs of a minion", attacker: "a minion", tries: "each operation %d times, with 60 MB of {\"\":0},",
		short: 1, full: 3, attack: bombs((*attack).asMinion, "req."),
	},
	{
		name: "JSON bombs of a client", attacker: "a client", tries: "each operation %d times, with as much of {\"\":0}, as a message holds",
		short: 4, full: 100, again: true, attack: clientBombs,
	},
	{
		name: "JSON bombs of an unknown key", attacker: "unknown keys", tries: "%d questions with as much of {\"\":0}, as a message holds",
		short: 100, full: 5_000, again: true, attack: unacceptedBombs,
	},
	{
		name: "regular expressions", attacker: "a user with a grant", tries: "%d targets that a careless engine works on for ever", user: "nobody",
		short: 200, full: 20_000, prepare: manyKeys, attack: targets("pcre", expensivePattern),
	},
	{
		name: "deep targets", attacker: "a user with a grant", tries: "%d targets of 60 KB of brackets", user: "nobody",
		short: 200, full: 20_000, prepare: manyKeys, attack: targets("compound", deepTarget),
	},
	{
		name: "a minion's bus", attacker: "a user with a grant", tries: "%d requests to its daemon whose answers are not read", user: "nobody", onMinion: true,
		minion: "event_acl: {nobody: {fire: 'nobody/*', listen: 'nobody/*'}}\n",
		short:  20_000, full: 252_000, again: true, attack: minionsUser,
	},
	{
		name: "endless requests to a minion's bus", attacker: "a user with a grant", tries: "%d pieces of 512 KB, of requests that do not end", user: "nobody", onMinion: true,
		minion: "event_acl: {nobody: {fire: 'nobody/*', listen: 'nobody/*'}}\n",
		short:  600, full: 20_000, again: true, attack: endless((*attack).asMinionsUser),
	},
}
