package emulator

// secondarySuffix is what the name of an account has at its secondary.
const secondarySuffix = "-secondary"

// Replicate brings the secondary of the account up to date. An account has a secondary from the first
// Replicate on, at the host or path of the account with "-secondary": it answers reads with what was stored
// then, and refuses writes.
func (s *Server) Replicate() {
	copied := s.Clone()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.second = copied
}

// executeAtSecondary executes a verified request at the secondary. The server's lock is held.
func (s *Server) executeAtSecondary(c *call) *answer {
	switch {
	case s.second == nil: // the account has no read access to it
		return failWith("InsufficientAccountPermissions", "The account has no read-access geo-redundant replication.")
	case needOf(c).write:
		return fail("InsufficientAccountPermissions")
	}
	return c.operation.do(s.second, c)
}
