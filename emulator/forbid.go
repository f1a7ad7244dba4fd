package emulator

import (
	"fmt"
	"slices"
)

// Forbid has each request judged before it takes effect, so that a test fails on
// what its protocol does not allow. An error refuses the request with
// 400 ForbiddenByTest and is kept for [Server.Violations]. The function may look
// at what is stored ([Server.Blobs]) and must be safe for concurrent use. Late
// duplicates are not judged again. nil allows everything.
func (s *Server) Forbid(judge func(Request) error) {
	s.fmu.Lock()
	defer s.fmu.Unlock()
	s.forbid = judge
}

// Violations returns what [Server.Forbid] refused so far, each with the request.
func (s *Server) Violations() []error {
	s.fmu.Lock()
	defer s.fmu.Unlock()
	return slices.Clone(s.violations)
}

// banned judges a request.
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
