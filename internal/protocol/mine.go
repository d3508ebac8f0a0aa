package protocol

// The requests for the mine: what minions keep at the master for each other.
const (
	OpMine    = "mine"     // mine.Change → nothing: of the minion that asks
	OpMineGet = "mine_get" // mine.Query → mine.Item ...: what that minion may read
)
