package main

import (
	"net/http"
	"strings"
)

// class is the billing class of a request.
type class int

// The classes of general-purpose v2 accounts. Enumerations are lists of containers and blobs, and the
// creation of containers.
const (
	write class = iota
	enumerate
	read
	other
	remove
	classes
)

func (c class) String() string {
	return [classes]string{"write", "list", "read", "other", "delete"}[c]
}

// prices are in US dollars for 10,000 requests, hot tier, LRS. They are the sample prices of
// docs/operating.md, which gives their date and source. Deletes are free.
var prices = [classes]float64{write: 0.055, enumerate: 0.055, read: 0.0044, other: 0.0044, remove: 0}

// tally counts requests by class.
type tally [classes]int

func (t tally) total() (n int) {
	for _, k := range t {
		n += k
	}
	return n
}

// price returns the price of 10,000 operations that send these requests.
func (t tally) price() (dollars float64) {
	for c, k := range t {
		dollars += float64(k) * prices[c]
	}
	return dollars
}

// classify returns the billing class of a request. Deletes in a batch are free. The class of the batch itself
// is not documented; it counts as other.
func classify(r *http.Request) class {
	q := r.URL.Query()
	switch comp := q.Get("comp"); {
	case comp == "list", r.Method == http.MethodPut && q.Get("restype") == "container" && comp == "":
		return enumerate
	case r.Method == http.MethodDelete:
		return remove
	case r.Method == http.MethodPut && comp == "":
		return write
	case r.Method == http.MethodGet && comp == "" && !strings.Contains(r.URL.RawQuery, "restype="):
		return read
	}
	return other
}
