package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/planvault/azblob/internal/firsthour"
)

// act is the report of one call of a step.
type act struct {
	Name     string `json:"name"`
	Requests int    `json:"requests"`
	Lines    []line `json:"lines,omitempty"`

	Finding *firsthour.Finding `json:"finding,omitempty"` // of the first hour
}

// sum is the report of one step.
type sum struct {
	Step     string  `json:"step"`
	About    string  `json:"about"`
	Result   string  `json:"result"` // ok or failed
	Error    string  `json:"error,omitempty"`
	Requests int     `json:"requests"`
	Seconds  float64 `json:"seconds"`
	Acts     []act   `json:"acts"`
}

// outcome is the report of one case.
type outcome struct {
	Case     string   `json:"case"`
	Result   string   `json:"result"`           // ok, failed or skipped
	Reason   string   `json:"reason,omitempty"` // why it was skipped
	Error    string   `json:"error,omitempty"`
	Log      []string `json:"log,omitempty"` // of a failed case
	Requests int      `json:"requests"`
	Seconds  float64  `json:"seconds"`
}

// verdict is the report of the whole run.
type verdict struct {
	Result   string        `json:"result"` // PASS or FAIL
	What     string        `json:"what,omitempty"`
	Target   string        `json:"target,omitempty"`
	Prefix   string        `json:"prefix,omitempty"`
	Seed     uint64        `json:"seed"`
	Steps    int           `json:"steps"`
	Cases    int           `json:"cases"`
	Failed   int           `json:"failed"`  // cases
	Skipped  int           `json:"skipped"` // cases
	Requests int           `json:"requests"`
	Seconds  float64       `json:"seconds"`
	Soak     *figures      `json:"soak,omitempty"`
	Fleet    *fleetFigures `json:"fleet,omitempty"`
	LeftOut  []string      `json:"leftOut,omitempty"` // long cases, which need -all
	Deleted  []string      `json:"deleted,omitempty"` // containers
	Kept     []string      `json:"kept,omitempty"`    // containers

	sums []sum
}

// reporter prints what happens.
type reporter interface {
	begin(target, prefix string)
	step(name, about string)
	act(a act)
	stepEnd(s sum)
	outcome(o outcome)
	progress(figures fmt.Stringer)
	end(v verdict)
}

// people prints text.
type people struct{ w io.Writer }

func (p *people) begin(target, prefix string) {
	fmt.Fprintf(p.w, "Target: %s\nPrefix: %s\n", target, prefix)
}

func (p *people) step(name, about string) {
	fmt.Fprintf(p.w, "\n== %s: %s\n", name, about)
}

func (p *people) act(a act) {
	requests := count(a.Requests, "request")
	if a.Requests == 0 {
		requests = "no request"
	}
	fmt.Fprintf(p.w, "   %s (%s)\n", a.Name, requests)
	for _, l := range a.Lines {
		fmt.Fprintf(p.w, "      %s\n", l)
	}
}

func (p *people) stepEnd(s sum) {
	if s.Error != "" {
		fmt.Fprintf(p.w, "   FAILED: %s\n", s.Error)
	}
}

func (p *people) outcome(o outcome) {
	fmt.Fprintf(p.w, "   %-7s %10s %15s  %s", o.Result, seconds(o.Seconds), count(o.Requests, "request"), o.Case)
	if o.Reason != "" {
		fmt.Fprintf(p.w, ": %s", o.Reason)
	}
	fmt.Fprintln(p.w)
	for _, text := range append(o.Log, o.Error) {
		for line := range strings.Lines(text) {
			fmt.Fprintf(p.w, "      %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
}

func (p *people) progress(figures fmt.Stringer) { fmt.Fprintf(p.w, "%s\n", figures) }

func (p *people) end(v verdict) {
	if len(v.sums) > 0 {
		fmt.Fprintln(p.w)
		t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "step\trequests\ttime\t")
		for _, s := range v.sums {
			fmt.Fprintf(t, "%s\t%d\t%s\t\n", s.Step, s.Requests, seconds(s.Seconds))
		}
		fmt.Fprintf(t, "all\t%d\t%s\t\n", v.Requests, seconds(v.Seconds))
		_ = t.Flush()
		fmt.Fprintln(p.w)
	}
	if v.Soak != nil {
		p.figures(v.Soak, v.Soak.Findings)
	}
	if v.Fleet != nil {
		p.figures(v.Fleet, v.Fleet.Findings)
	}
	if v.Cases > 0 {
		fmt.Fprintf(p.w, "%s, ", count(v.Cases, "case"))
		if v.Failed > 0 {
			fmt.Fprintf(p.w, "%d failed, ", v.Failed)
		}
		fmt.Fprintf(p.w, "%d skipped\n", v.Skipped)
	}
	if len(v.LeftOut) > 0 {
		fmt.Fprintf(p.w, "Left out: %s of the suite; -all plays them too.\n", count(len(v.LeftOut), "long case"))
	}
	if len(v.Deleted) > 0 {
		fmt.Fprintf(p.w, "Deleted %s.\n", strings.Join(v.Deleted, ", "))
	}
	if len(v.Kept) > 0 {
		fmt.Fprintf(p.w, "Kept %s.\n", strings.Join(v.Kept, ", "))
	}
	if v.What != "" {
		fmt.Fprintf(p.w, "%s: %s\n", v.Result, v.What)
		return
	}
	fmt.Fprintln(p.w, v.Result)
}

func (p *people) figures(all fmt.Stringer, found []finding) {
	for _, f := range found {
		fmt.Fprintf(p.w, "%s\n", f)
	}
	fmt.Fprintf(p.w, "%s\n", all)
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}

// machines prints a line of JSON for each step and case, and one for the result.
type machines struct {
	enc   *json.Encoder
	notes io.Writer
}

func encoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // names contain < and >
	return enc
}

func (m *machines) begin(target, prefix string) {
	fmt.Fprintf(m.notes, "integration: target %s, prefix %s\n", target, prefix)
}
func (m *machines) step(string, string)           {}
func (m *machines) act(act)                       {}
func (m *machines) stepEnd(s sum)                 { _ = m.enc.Encode(s) }
func (m *machines) outcome(o outcome)             { _ = m.enc.Encode(o) }
func (m *machines) progress(figures fmt.Stringer) { _ = m.enc.Encode(figures) }
func (m *machines) end(v verdict)                 { _ = m.enc.Encode(v) }

// oneLine returns the text of an error on one line. The service's errors have many.
func oneLine(err error) string {
	words := slices.DeleteFunc(strings.Fields(err.Error()), func(w string) bool {
		return strings.Trim(w, "-") == "" // a rule between paragraphs
	})
	return strings.Join(words, " ")
}
