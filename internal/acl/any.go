package acl

// Any reports whether there is any rule for the question's subject, whatever it allows. Without
// one, nothing else of a question needs to be checked.
func (r *Rules) Any(q Question) bool {
	if r == nil {
		return false
	}
	s := r.standing(q.Subject)
	holders, _, err := r.holders(&q, &s)
	return s.Operator || err != nil || len(holders) > 0
}
