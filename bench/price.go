package main

import "github.com/planvault/azblob"

// prices are in US dollars for 10,000 requests of a billing class, hot tier, LRS. They are the sample prices of
// docs/operating.md, which gives their date and source. Deletes are free.
var prices = map[azblob.Class]float64{
	azblob.ClassWrite: 0.055, azblob.ClassList: 0.055, azblob.ClassRead: 0.0044, azblob.ClassOther: 0.0044, azblob.ClassDelete: 0,
}

// classes are the billing classes in the order of the report.
var classes = []azblob.Class{azblob.ClassWrite, azblob.ClassList, azblob.ClassRead, azblob.ClassOther, azblob.ClassDelete}

// tally counts requests by class.
type tally map[azblob.Class]int

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
