package emulator

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Request is an entry of the log: a request and its outcome.
type Request struct {
	N      int       // number of the request, from 1, in the order in which requests took effect
	Time   time.Time // when it took effect
	Client string    // name of the transport or listener
	Op     Op
	Method string

	Container string
	Blob      string

	// The parameters of a listing. Marker is the name that the marker stands for, where the page begins.
	// MaxResults is 0 if the client did not set it.
	Prefix, Marker, StartFrom, Delimiter, Include string
	MaxResults                                    int

	// Range is the range that a read asks for, such as "bytes=0-9".
	Range string

	// Condition names the conditions of the request without ETags and dates, such as "If-None-Match:*" or
	// "If-Match:etag". It is empty for an unconditional request.
	Condition string

	// Lease is the ID of the lease that the request names.
	Lease string
	// IfMatch and IfNoneMatch are the headers as they were sent.
	IfMatch, IfNoneMatch string

	// Metadata is the metadata that a write carries, with names in lower case. It must not be changed.
	Metadata map[string]string

	// Items are the items of a batch, with Op BatchItem.
	Items []Request

	// In and Out are the sizes of the bodies in bytes: as the client sent it, and as the service answered.
	In, Out int64

	// Status and Code are the answer of the service, even if a fault changed or lost it on its way to the
	// client. Status is 0 if there was no answer.
	Status int
	Code   string

	// Fault is the fault that was applied to the request. It is empty if there was none.
	Fault string
}

// Path returns "container/blob", or as much of it as the request names.
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

// String returns the request in one line, without times, ETags, client and number, so equal operations give
// equal lines.
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

// condition returns the conditions of a request without ETags and dates.
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

// Requests returns the requests since the server began or [Server.ResetRequests] was called, in the order in
// which they took effect. With [Options].NoLog there are none.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// ResetRequests empties the log. The numbers of requests go on.
func (s *Server) ResetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = nil
}

// record completes the log entry of a request and adds it to the log. The server's lock is held.
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
	if s.logging {
		s.log = append(s.log, e)
	}
	return e
}

// amend sets the size of an answer that was rendered after its request was logged.
func (s *Server) amend(n int, out int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := slices.BinarySearchFunc(s.log, n, func(r Request, n int) int { return r.N - n })
	if ok {
		s.log[i].Out = out
	}
}
