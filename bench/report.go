package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/planvault/azblob/internal/price"
)

// report prints each row as soon as it is measured.
type report interface {
	row(result) error
}

func newReport(c config, w io.Writer) report {
	if c.json {
		return machines{json.NewEncoder(w)}
	}
	return &people{w: w}
}

// machines prints one JSON object for each row.
type machines struct{ *json.Encoder }

func (m machines) row(r result) error { return m.Encode(r) }

// people prints a table.
type people struct {
	w     io.Writer
	begun bool
}

func (p *people) row(r result) error {
	if !p.begun {
		p.begun = true
		var head strings.Builder
		fmt.Fprintf(&head, "%-46s", "operation")
		for _, c := range price.Classes {
			fmt.Fprintf(&head, " %6s", c)
		}
		fmt.Fprintf(&head, " %15s %13s %9s %9s %9s %9s\n", "requests/budget", "trips/budget", "sent", "received", "allocs", "$/10,000")
		if _, err := io.WriteString(p.w, head.String()); err != nil {
			return err
		}
	}
	var line strings.Builder
	fmt.Fprintf(&line, "%-46s", r.Row)
	for _, c := range price.Classes {
		fmt.Fprintf(&line, " %6s", count0(r.Requests[c]))
	}
	trips := "-"
	if r.RoundTrips != nil {
		trips = fmt.Sprintf("%d/%d", *r.RoundTrips, r.Budget.RoundTrips)
	}
	fmt.Fprintf(&line, " %15s %13s %9s %9s %9s %9.4f", fmt.Sprintf("%d/%d", r.Total, r.Budget.Requests), trips,
		bytesOf(r.Sent), bytesOf(r.Received), count0(int(r.Allocations)), r.Price)
	if r.PeakHeap != nil {
		fmt.Fprintf(&line, "  heap +%s", bytesOf(*r.PeakHeap))
	}
	if r.Period > 0 {
		fmt.Fprintf(&line, "  $%.4f a day", r.Price/10_000*float64(24*time.Hour)/float64(r.Period))
	}
	if r.Wall > 0 {
		fmt.Fprintf(&line, "  %v", r.Wall.Round(100*time.Microsecond))
	}
	if len(r.Over) > 0 {
		line.WriteString("  OVER BUDGET")
	}
	line.WriteByte('\n')
	_, err := io.WriteString(p.w, line.String())
	return err
}

// count0 prints a dash for zero.
func count0(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func bytesOf(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%d B", n)
	case n < 10_000_000:
		return fmt.Sprintf("%d kB", n/1000)
	}
	return fmt.Sprintf("%d MB", n/1_000_000)
}
