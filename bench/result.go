package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/planvault/azblob/internal/price"
)

// result is the measurement of one row.
type result struct {
	row
	measured
	// trips are the round trips; nil if the operation was measured over a period.
	trips *int
	// heap is how much the live heap grew, in bytes; nil if it was not measured.
	heap *int64
}

// allowed returns the budget of the row.
func (r row) allowed() budget {
	s := subject{vault: r.vault, period: r.period}
	if r.size.plan != nil {
		s.parts = subObjects(r.size.plan())
	}
	return r.budget(s)
}

// judge returns an error where the result exceeds its budget.
func (r result) judge() error {
	var errs []error
	check := func(what string, is, most int) {
		if is > most {
			errs = append(errs, fmt.Errorf("over budget: %d %s of %d", is, what, most))
		}
	}
	most := r.allowed()
	check("requests", r.requests.Total(), most.requests)
	if r.trips != nil {
		check("round trips", *r.trips, most.trips)
	}
	if most, ok := receivedBudgets[r.String()]; ok {
		check("bytes received", int(r.received), int(most))
	}
	if r.heap != nil {
		check("bytes of heap", int(*r.heap), heapBudget)
	}
	return errors.Join(errs...)
}

func printHead(w io.Writer) {
	fmt.Fprintf(w, "%-53s", "operation")
	for _, c := range price.Classes {
		fmt.Fprintf(w, " %6s", c)
	}
	fmt.Fprintf(w, " %15s %13s %9s %9s %9s\n", "requests/budget", "trips/budget", "sent", "received", "$/10,000")
}

func (r result) print(w io.Writer) {
	fmt.Fprintf(w, "%-53s", r.row)
	for _, c := range price.Classes {
		fmt.Fprintf(w, " %6s", dash(r.requests[c]))
	}
	trips, most, dollars := "-", r.allowed(), r.requests.Dollars()
	if r.trips != nil {
		trips = fmt.Sprintf("%d/%d", *r.trips, most.trips)
	}
	fmt.Fprintf(w, " %15s %13s %9s %9s %9.4f", fmt.Sprintf("%d/%d", r.requests.Total(), most.requests), trips,
		bytesOf(r.sent), bytesOf(r.received), 10_000*dollars)
	if r.heap != nil {
		fmt.Fprintf(w, "  heap +%s", bytesOf(*r.heap))
	}
	if r.period > 0 {
		fmt.Fprintf(w, "  $%.4f a day", dollars*float64(24*time.Hour)/float64(r.period))
	}
	if r.judge() != nil {
		fmt.Fprint(w, "  OVER BUDGET")
	}
	fmt.Fprintln(w)
}

// dash prints a dash for zero.
func dash(n int) string {
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
