package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/planvault/azblob/cmd/planvault/internal/human"
)

// The values of --output.
const (
	outputTable = "table"
	outputJSON  = "json"
)

// print writes a report: value as a JSON object, or what text writes. A reader that has closed the pipe changes nothing:
// the exit code is that of the work.
func (a *app) print(value any, text func(w io.Writer)) error {
	return unlessEnough(a.printNext(value, text))
}

// printNext is print for a command that goes on until its reader has seen enough, and returns errEnough then.
func (a *app) printNext(value any, text func(w io.Writer)) error {
	var b bytes.Buffer
	if a.output == outputJSON {
		if err := writeJSON(&b, value); err != nil {
			return err
		}
	} else {
		text(&b)
	}
	return a.write(b.Bytes())
}

// errEnough is the error of a listing whose reader has closed the pipe: head has seen enough. Nothing failed.
var errEnough = &exitError{code: exitDone}

// unlessEnough returns an error unless it is errEnough.
func unlessEnough(err error) error {
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// write writes results.
func (a *app) write(b []byte) error {
	_, err := a.stdout.Write(b)
	a.printed = true
	switch {
	case errors.Is(err, syscall.EPIPE):
		a.enough = true
		return errEnough
	case err != nil:
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

// summarize writes a line of text below a table. JSON has none.
func (a *app) summarize(text string) error {
	if a.output == outputJSON {
		return nil
	}
	return unlessEnough(a.write([]byte(text + "\n")))
}

// remark tells people at a terminal what is not part of the results.
func (a *app) remark(format string, args ...any) {
	if a.stderrIsTerm {
		fmt.Fprintf(a.stderr, format+"\n", args...)
	}
}

// noteForeign tells how many plans of another program are not part of the results.
func (a *app) noteForeign(n int) {
	if n > 0 {
		fmt.Fprintf(a.stderr, "planvault: left out %s written by another program\n", plural(n, "plan"))
	}
}

// writeJSON writes a value as one line of JSON.
func writeJSON(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(value)
}

// table writes rows as a table, or as a JSON object a line.
type table[T any] struct {
	a      *app
	titles []string         // a column whose title begins with > is aligned to the right, as numbers are
	cells  func(T) []string // has a cell for each column
	rows   [][]string
	width  int   // what a row may take; 0 is no limit
	least  []int // what a cell keeps at least when the row is too wide; 0 is all of it
	// optional columns are left out if all cells of the first rows are empty; left says which were.
	optional, left []bool
	began          bool
	stream         bool  // the rows come until the reader has seen enough: add and end return errEnough then
	failed         error // the first failure to write
}

// maxRows is how many rows are aligned together. Those before are written when there are more.
const maxRows = 1000

// newTable returns a table of what a command has done or found.
func newTable[T any](a *app, cells func(T) []string, titles ...string) *table[T] {
	return &table[T]{a: a, cells: cells, titles: titles}
}

// printTable prints all rows of a table.
func printTable[T any](a *app, rows []T, cells func(T) []string, titles ...string) error {
	return newTable(a, cells, titles...).print(rows)
}

// streamed makes it the table of a listing, which ends when its reader has seen enough.
func (t *table[T]) streamed() *table[T] {
	t.stream = true
	return t
}

// print prints all rows of the table.
func (t *table[T]) print(rows []T) error {
	for _, row := range rows {
		if err := t.add(row); err != nil {
			return err
		}
	}
	return t.end()
}

// add adds a row.
func (t *table[T]) add(row T) error {
	if t.a.output == outputJSON {
		return t.wrote(t.a.printNext(row, nil))
	}
	if t.rows = append(t.rows, t.cells(row)); len(t.rows) == maxRows {
		return t.end()
	}
	return nil
}

// wrote notes how writing ended, and returns the first failure.
func (t *table[T]) wrote(err error) error {
	if !t.stream {
		err = unlessEnough(err)
	}
	t.failed = cmp.Or(t.failed, err)
	return t.failed
}

// end writes the rows that are left. A table without rows has no titles either. It returns the first failure to write.
func (t *table[T]) end() error {
	if len(t.rows) == 0 {
		return t.failed
	}
	if !t.began {
		t.leaveOut()
	}
	for i, row := range t.rows {
		t.rows[i] = keep(row, t.left)
	}
	if !t.began {
		titles := make([]string, len(t.titles))
		for i, title := range t.titles {
			titles[i] = strings.TrimPrefix(title, ">")
		}
		t.rows = slices.Insert(t.rows, 0, titles)
		t.began = true
	}
	widths := make([]int, len(t.titles))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], textWidth(cell))
		}
	}
	if t.width > 0 {
		fitColumns(widths, t.least, t.width)
	}
	var b strings.Builder
	for _, row := range t.rows {
		for i, cell := range row {
			if cell = human.Cut(cell, widths[i]); strings.HasPrefix(t.titles[i], ">") {
				row[i] = human.Right(cell, widths[i])
			} else {
				row[i] = human.Left(cell, widths[i])
			}
		}
		b.WriteString(strings.TrimRight(strings.Join(row, "  "), " ") + "\n")
	}
	t.rows = t.rows[:0]
	return t.wrote(t.a.write([]byte(b.String())))
}

// leaveOut leaves out the optional columns that have no cell in the rows.
func (t *table[T]) leaveOut() {
	t.left = make([]bool, len(t.titles))
	for i, optional := range t.optional {
		t.left[i] = optional && !slices.ContainsFunc(t.rows, func(row []string) bool { return row[i] != "" })
	}
	t.titles, t.least = keep(t.titles, t.left), keep(t.least, t.left)
}

// keep returns the elements of a list that are not left out.
func keep[E any](list []E, left []bool) (kept []E) {
	for i, e := range list {
		if !left[i] {
			kept = append(kept, e)
		}
	}
	return kept
}

// printable returns a text as [human.Line] shows it.
func printable(text string, most int) string { return human.Line(text, most) }

// textWidth returns how many columns of a terminal a printable text takes.
func textWidth(text string) int { return human.Width(text) }

// utc returns a time for JSON, as [human.UTC] does.
func utc(t time.Time) time.Time { return human.UTC(t) }

// stamp returns a time in UTC, or a dash for the zero time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return human.Time(t)
}

// span returns a duration as [human.Duration] shows it.
func span(d time.Duration) string { return human.Duration(d) }

// seconds returns a number of seconds, as JSON has it, for a table.
func seconds(s float64) string {
	if s >= math.MaxInt64/float64(time.Second) {
		return span(math.MaxInt64) // what a float64 makes of the longest duration is longer
	}
	return span(time.Duration(s * float64(time.Second)).Truncate(time.Second))
}

// secondsOrDash returns a number of seconds, or a dash if it is not known.
func secondsOrDash(s *float64) string {
	if s == nil {
		return "-"
	}
	return seconds(*s)
}

// orDash returns a text, or a dash if it is empty.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// countOrDash returns a number, or a dash if it is not known.
func countOrDash(n *int) string {
	if n == nil {
		return "-"
	}
	return count(*n)
}

// count returns a number with commas.
func count[N int | int64](n N) string { return human.Count(n) }

// plural returns a number and what it counts.
func plural[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return count(n) + " " + what + "s"
}

// byteSize returns a number of bytes for people, by powers of a thousand.
func byteSize(n int64) string {
	size, unit := float64(n), "B"
	for _, larger := range []string{"kB", "MB", "GB", "TB", "PB"} {
		if size < 1000 {
			break
		}
		size, unit = size/1000, larger
	}
	if unit == "B" || size >= 100 {
		return fmt.Sprintf("%.0f %s", size, unit)
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}

// dollars returns a price with enough digits to tell it from nothing.
func dollars(d float64) string {
	switch {
	case d == 0:
		return "$0"
	case d >= 0.995:
		return fmt.Sprintf("$%.2f", d)
	}
	digits := 1 - int(math.Floor(math.Log10(d))) // two of them count
	return fmt.Sprintf("$%.*f", digits, d)
}
