package emulator

import (
	"bytes"
	"net/http"
	"time"
)

// replica is the read-only secondary of an account: what was stored at the last [Server.Replicate]. The
// server's lock guards it.
type replica struct {
	server *Server // never serves requests of its own
	synced time.Time
}

// secondarySuffix is what the name of an account has at its secondary.
const secondarySuffix = "-secondary"

// Replicate brings the secondary of the account up to date. An account has a secondary from the first
// Replicate on, at the host or path of the account with "-secondary": it answers reads with what was stored
// then, and refuses writes.
func (s *Server) Replicate() {
	copied := s.Clone()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.second = &replica{copied, second(s.clock())}
}

// executeAtSecondary executes a verified request at the secondary. The server's lock is held.
func (s *Server) executeAtSecondary(c *call) *answer {
	switch {
	case s.second == nil: // the account has no read access to it
		return failWith("InsufficientAccountPermissions", "The account has no read-access geo-redundant replication.")
	case c.operation.op == GetServiceStats:
		return s.second.stats()
	case needOf(c).write:
		return fail("InsufficientAccountPermissions")
	}
	return c.operation.do(s.second.server, c)
}

// stats says when the secondary was last up to date.
func (r *replica) stats() *answer {
	a := newAnswer(http.StatusOK)
	a.header.Set("Content-Type", "application/xml")
	var body bytes.Buffer
	body.WriteString(xmlProlog + "<StorageServiceStats><GeoReplication><Status>live</Status><LastSyncTime>")
	escapeXML(&body, stamp(r.synced))
	body.WriteString("</LastSyncTime></GeoReplication></StorageServiceStats>")
	a.body = body.Bytes()
	return a
}

// noStats answers at the primary, which has no statistics.
func (s *Server) noStats(*call) *answer { return fail("InvalidQueryParameterValue") }
