package emulator

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Request is an entry of the log: what was asked, and what became of it.
type Request struct {
	N      int       // counts the requests of a server from 1, in the order in which they took effect
	Time   time.Time // when it took effect
	Client string    // name of the transport or listener
	Op     Op
	Method string

	Container string
	Blob      string

	// Of listings. Marker is what the marker stands for: the name at which the
	// page begins. MaxResults is 0 where the client does not say.
	Prefix, Marker, StartFrom, Delimiter, Include string
	MaxResults                                    int

	// Range that a read asks for, such as "bytes=0-9".
	Range string

	// Condition tells which conditions the request has, in a form without ETags:
	// "If-None-Match:*", "If-Match:etag". Empty is unconditional.
	Condition string

	// IfMatch and IfNoneMatch as they were sent.
	IfMatch, IfNoneMatch string

	// Metadata that a write carries, names in lower case. It must not be changed.
	Metadata map[string]string

	// Items of a batch, with Op BatchItem.
	Items []Request

	// In and Out are the sizes of the bodies in bytes: as sent by the client, and
	// as answered by the service.
	In, Out int64

	// Status and Code are the service's answer, even if a fault changed or lost it
	// on its way to the client. Status is 0 if there was none.
	Status int
	Code   string

	// Fault says what befell the request. Empty is nothing.
	Fault string
}

// Path returns container and blob as "container/blob".
func (r Request) Path() string {
	switch {
	case r.Container == "":
		return "/"
	case r.Blob == "":
		return r.Container
	default:
		return r.Container + "/" + r.Blob
	}
}

// String returns the request in one line, without times, ETags, client and
// number: the same operations make the same lines.
func (r Request) String() string {
	var w strings.Builder
	w.WriteString(string(r.Op))
	if r.Op == Unsupported {
		w.WriteString(" " + r.Method)
	}
	w.WriteString(" " + r.Path())
	for _, v := range []struct{ name, value string }{
		{"prefix", r.Prefix},
		{"marker", r.Marker},
		{"startFrom", r.StartFrom},
		{"delimiter", r.Delimiter},
		{"include", r.Include},
		{"range", r.Range},
	} {
		if v.value != "" {
			fmt.Fprintf(&w, " %s=%q", v.name, v.value)
		}
	}
	if r.MaxResults > 0 {
		fmt.Fprintf(&w, " max=%d", r.MaxResults)
	}
	if r.Condition != "" {
		w.WriteString(" " + r.Condition)
	}
	w.WriteString(" ->" + r.outcome())
	for _, item := range r.Items {
		w.WriteString("; " + item.Path())
		if item.Condition != "" {
			w.WriteString(" " + item.Condition)
		}
		w.WriteString(item.outcome())
	}
	return w.String()
}

func (r Request) outcome() string {
	var w strings.Builder
	if r.Status != 0 {
		fmt.Fprintf(&w, " %d", r.Status)
	}
	if r.Code != "" {
		w.WriteString(" " + r.Code)
	}
	if r.Fault != "" {
		w.WriteString(" [" + r.Fault + "]")
	}
	return w.String()
}

// condition puts the conditions of a request without ETags and dates.
func condition(h http.Header) string {
	var parts []string
	for _, name := range []string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		value := h.Get(name)
		switch {
		case value == "":
			continue
		case value == "*":
		case strings.HasSuffix(name, "Since"):
			value = "date"
		default:
			value = "etag"
		}
		parts = append(parts, name+":"+value)
	}
	return strings.Join(parts, " ")
}

// Requests returns the log since the server began or [Server.ResetRequests], in
// the order in which requests took effect. With [WithLogLimit] it is the end of
// it, with [WithoutLog] nothing.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log[s.logStart():])
}

// ResetRequests empties the log. Requests go on to be counted where they were.
func (s *Server) ResetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = nil
}

// logStart is where the part of the log begins that is within the limit.
func (s *Server) logStart() int {
	if s.logLimit < 0 {
		return 0
	}
	return max(0, len(s.log)-s.logLimit)
}

// record completes the entry of a request and puts it into the log, with the
// server's lock held.
func (s *Server) record(c *call, own *answer, fault string) Request {
	e := c.entry
	e.N, e.Time, e.Fault = c.n, c.now, fault
	if own != nil {
		e.Status, e.Code = own.status, own.code
		if c.http.Method != http.MethodHead {
			e.Out = int64(len(own.body))
		}
		if len(own.items) == len(c.items) {
			e.Items = slices.Clone(c.entry.Items)
			for i, outcome := range own.items {
				item := &e.Items[i]
				item.N, item.Time = c.n, c.now
				item.Status, item.Code, item.Out = outcome.status, outcome.code, int64(len(outcome.body))
				if c.items[i].fault != nil {
					item.Fault = c.items[i].fault.String()
				}
			}
		}
	}
	if s.logLimit == 0 {
		return e
	}
	s.log = append(s.log, e)
	if s.logLimit > 0 && len(s.log) >= 2*s.logLimit {
		// Cut only now and then: a log at its limit costs nothing per request.
		s.log = append([]Request(nil), s.log[s.logStart():]...)
	}
	return e
}

// amend notes the size of an answer that was made after the request was logged.
func (s *Server) amend(n int, out int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := slices.BinarySearchFunc(s.log, n, func(r Request, n int) int { return r.N - n })
	if ok {
		s.log[i].Out = out
	}
}
