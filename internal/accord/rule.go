package accord

// Act is a decision about a key or a token.
type Act string

// The acts. No decision is "", and an unknown act counts as that.
const (
	Accept Act = "accept" // a key
	Reject Act = "reject"
	Delete Act = "delete"
	Issue  Act = "issue" // a token
	Revoke Act = "revoke"
	// Withdrawn replaces an acceptance that the other master's refusal, which it names, has
	// ended: it has no effect, even when that refusal is forgotten.
	Withdrawn Act = "withdrawn"
)

// weight orders acts if time does not decide: what refuses more has more weight.
func (a Act) weight() int {
	switch a {
	case Accept, Issue:
		return 1
	case Delete:
		return 2
	case Reject, Revoke:
		return 3
	}
	return 0
}

// Decision is the latest decision of a master about a key or a token.
type Decision struct {
	Act Act `json:"act"`
	// N identifies the decision. It is random and not a count, so that it is never that of a
	// decision that was lost with a journal or forgotten; it is never 0.
	N uint64 `json:"n"`
	// Seen is the N of the other master's decision that was known when this one was made, and
	// Of the name of that master's journal; 0 and "" for none.
	Seen uint64 `json:"seen,omitempty"`
	Of   string `json:"of,omitempty"`
}

// Side is the decision of one of two masters, with its name.
type Side struct {
	Name string
	Decision
}

// Counts returns the decision in force: the one that was made with knowledge of the other one;
// if both or neither were, the one that refuses more.
//
// The claim to know a decision that does not exist is ignored. So a master cannot overrule
// future decisions of the other one.
func Counts(own, other Side) Decision {
	switch {
	case other.Act.weight() == 0:
		return own.Decision
	case own.Act.weight() == 0:
		return other.Decision
	}
	ownKnew, otherKnew := own.knew(other), other.knew(own)
	switch {
	case ownKnew && !otherKnew:
		return own.Decision
	case otherKnew && !ownKnew:
		return other.Decision
	case other.Act.weight() > own.Act.weight():
		return other.Decision
	}
	return own.Decision
}

func (s Side) knew(other Side) bool { return s.Of == other.Name && s.Seen > 0 && s.Seen == other.N }
