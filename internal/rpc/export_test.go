package rpc

// UnderWay is how many bytes the requests hold that are being handled.
func (s *Server) UnderWay() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.under
}
