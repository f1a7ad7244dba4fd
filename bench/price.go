package main

import (
	"net/http"
	"strings"
)

// class is what the service bills a request as.
type class int

// The classes of general-purpose v2 accounts. Enumerations are lists of containers and blobs, and the creation of containers.
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

// prices are US dollars for 10,000 requests, hot tier, LRS: the sample prices of docs/operating.md, which tells their date and
// source. Deletes are free.
var prices = [classes]float64{write: 0.055, enumerate: 0.055, read: 0.0044, other: 0.0044, remove: 0}

// tally counts requests by class.
type tally [classes]int

func (t tally) total() (n int) {
	for _, k := range t {
		n += k
	}
	return n
}

// price is what as many times 10,000 requests cost, so that it is the price of 10,000 operations of these requests.
func (t tally) price() (dollars float64) {
	for c, k := range t {
		dollars += float64(k) * prices[c]
	}
	return dollars
}

// classify says what a request is billed as. What is deleted in a batch is free, the batch itself is taken for one other
// request: its class is not documented.
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
