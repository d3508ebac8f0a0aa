package rpc

// UnderWay returns how many bytes the requests being handled hold.
func (s *Server) UnderWay() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.under
}

// Registered returns how many requests are incomplete or being answered.
func (s *Server) Registered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.partial) + len(s.streams)
}
