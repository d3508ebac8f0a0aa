package netapi

// Occupy uses up the limit of one kind, of the login or address who or, with "", of all
// together. The function that it returns releases it.
func (s *Server) Occupy(kind, who string) (leave func()) {
	key := kind
	if who != "" {
		key += " " + who
	}
	s.limits.mu.Lock()
	defer s.limits.mu.Unlock()
	const many = 1 << 20
	s.limits.underWay[key] += many
	return func() {
		s.limits.mu.Lock()
		defer s.limits.mu.Unlock()
		s.limits.underWay[key] -= many
	}
}
