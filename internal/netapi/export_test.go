package netapi

// Occupy takes what somebody may have under way of a kind, and with "" what all together may. It
// returns what gives it back.
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
