package protocol

// The requests for the mine: data that minions share through the master.
const (
	OpMine    = "mine"     // mine.Change → nothing: entries of the requesting minion
	OpMineGet = "mine_get" // mine.Query → mine.Item ...: entries that it may read
)
