// Package price knows what requests and stored bytes cost. All prices are in US dollars, for the hot tier and LRS: the
// sample prices of docs/operating.md, which gives their date and source.
package price

import "github.com/planvault/azblob"

// GBMonth is the price of a gigabyte (1e9 bytes) that is stored for a month.
const GBMonth = 0.0208

// requests has the prices of 10,000 requests of a billing class. Deletes are free.
var requests = map[azblob.Class]float64{
	azblob.ClassWrite: 0.055, azblob.ClassList: 0.055, azblob.ClassRead: 0.0044, azblob.ClassOther: 0.0044, azblob.ClassDelete: 0,
}

// Classes are the billing classes in the order of reports.
var Classes = []azblob.Class{azblob.ClassWrite, azblob.ClassList, azblob.ClassRead, azblob.ClassOther, azblob.ClassDelete}

// Of returns the price of a request of a class.
func Of(c azblob.Class) (dollars float64) { return requests[c] / 10_000 }

// Tally counts requests by billing class.
type Tally map[azblob.Class]int

// Total returns the number of requests.
func (t Tally) Total() (n int) {
	for _, k := range t {
		n += k
	}
	return n
}

// Dollars returns the price of the requests.
func (t Tally) Dollars() (dollars float64) {
	for _, c := range Classes { // in order, because sums of floats depend on it
		dollars += float64(t[c]) * Of(c)
	}
	return dollars
}
