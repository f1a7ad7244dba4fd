package emulator

import (
	"fmt"
	"slices"
)

// Forbid calls judge for each request before it takes effect, so that a test fails on requests that its
// protocol does not allow. An error refuses the request with 400 ForbiddenByTest and is kept for
// [Server.Violations]. The function may read what is stored, for example with [Server.Blobs], and must be
// safe for concurrent use. Late duplicates are not judged again. A nil function allows everything.
func (s *Server) Forbid(judge func(Request) error) {
	s.fmu.Lock()
	defer s.fmu.Unlock()
	s.forbid = judge
}

// Violations returns the errors with which [Server.Forbid] refused requests, each with its request.
func (s *Server) Violations() []error {
	s.fmu.Lock()
	defer s.fmu.Unlock()
	return slices.Clone(s.violations)
}

// banned returns why the request is forbidden, or nil.
func (s *Server) banned(r Request) error {
	s.fmu.Lock()
	judge := s.forbid
	s.fmu.Unlock()
	if judge == nil {
		return nil
	}
	err := judge(r)
	if err != nil {
		s.fmu.Lock()
		s.violations = append(s.violations, fmt.Errorf("%s: %w", r, err))
		s.fmu.Unlock()
	}
	return err
}
