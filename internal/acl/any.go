package acl

// Any says whether any rule is for the question's subject, whatever it allows: for who has
// none nothing else of a question needs to be looked at.
func (r *Rules) Any(q Question) bool {
	if r == nil {
		return false
	}
	s := r.standing(q.Subject)
	holders, _, err := r.holders(&q, &s)
	return s.Operator || err != nil || len(holders) > 0
}
