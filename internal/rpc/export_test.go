package rpc

// UnderWay returns how many bytes the requests being handled hold.
func (s *Server) UnderWay() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.under
}
