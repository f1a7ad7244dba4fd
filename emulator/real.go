package emulator

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"time"
)

// manners are how one answer differs from the plainest that the service may give. See [Options].RealAnswers. The
// zero manners change nothing.
type manners struct {
	real bool
	lag  time.Duration // of Date
	// bare leaves out a mark that recorded answers have only sometimes.
	bare bool
}

// mannersOf returns the manners of the nth answer.
func (s *Server) mannersOf(n int) manners {
	if s.real == nil {
		return manners{}
	}
	r := rand.New(rand.NewPCG(*s.real, uint64(n)))
	m := manners{real: true, bare: r.IntN(2) == 0}
	switch chance := r.Float64(); {
	case chance < 0.43:
		m.lag = time.Second
	case chance < 0.48:
		m.lag = 2 * time.Second
	}
	return m
}

// maxListings bounds the memory of listings that were asked for.
const maxListings = 10_000

// shorten cuts the page of a listing that is about to be executed. The cut depends on the listing and on how often
// it was requested, and not on the order of other requests, so a call that sends several at once needs the same
// number of requests each time.
func (s *Server) shorten(container string, l *listing) {
	if s.real == nil || l.limit == 0 {
		return
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%q%q%q%q%q%d", container, l.prefix, l.startFrom, l.delimiter, l.marker, l.limit)
	key := h.Sum64()
	if len(s.listings) >= maxListings {
		clear(s.listings)
	}
	s.listings[key]++
	r := rand.New(rand.NewPCG(*s.real^key, uint64(s.listings[key])))
	if r.IntN(8) > 0 {
		return
	}
	items := 0
	if r.IntN(3) > 0 {
		items = 1 + int(8*r.ExpFloat64())
	}
	l.limit = min(l.limit, items)
}

// byteOrderMark begins the bodies of listings, and those of the items of a batch.
const byteOrderMark = "\ufeff"

// prolog begins the body of a listing.
func (c *call) prolog() string {
	if c.manners.real {
		return byteOrderMark + xmlProlog
	}
	return xmlProlog
}

// newestVersion is the newest service version that the server knows.
const newestVersion = "2026-12-06"

// futuristic reports whether the client uses a service version that is newer than the service.
func (c *call) futuristic() bool { return c.version > newestVersion }

// oldVersion is the service version in the items of a batch.
const oldVersion = "2018-11-09"

// behave changes an answer of the service to how real accounts answer. The headers that every answer has are
// set already.
func (a *answer) behave(c *call) {
	if !c.manners.real || a.foreign {
		return
	}
	op := c.operation.op
	if c.contentID != "" { // an item of a batch
		a.header.Set("X-Ms-Version", oldVersion)
		a.header.Del("Date")
		if len(a.body) > 0 {
			a.body = append([]byte(byteOrderMark), a.body...)
		}
	}
	refused := c.verdict != nil // before the request was executed
	switch {
	case a.status < http.StatusMultipleChoices:
		a.chunked = op == ListBlobs || op == ListContainers || op == BatchDelete
	case refused && a.status == http.StatusBadRequest && (c.futuristic() || c.http.Method == http.MethodHead):
		a.header.Del("X-Ms-Error-Code")
		a.header.Del("X-Ms-Version")
	case refused && c.manners.bare && (a.status == http.StatusUnauthorized || a.status == http.StatusForbidden):
		a.header.Del("X-Ms-Version")
	case a.status == http.StatusNotFound && op == GetBlob && c.manners.bare:
		a.header.Del("X-Ms-Error-Code")
	}
}
