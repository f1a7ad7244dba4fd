package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// outputForm is the value of --output.
type outputForm string

const (
	outputTable outputForm = "table"
	outputJSON  outputForm = "json"
)

func (o *outputForm) String() string { return string(*o) }
func (o *outputForm) Type() string   { return "form" }

func (o *outputForm) Set(text string) error {
	switch form := outputForm(text); form {
	case outputTable, outputJSON:
		*o = form
		return nil
	}
	return fmt.Errorf("the form is table or json, not %q", text)
}

// print writes a report: value as a JSON object, or what text writes.
func (a *app) print(value any, text func(w io.Writer)) error {
	var b bytes.Buffer
	if a.output == outputJSON {
		if err := writeJSON(&b, value); err != nil {
			return err
		}
	} else {
		text(&b)
	}
	_, err := a.stdout.Write(b.Bytes())
	return err
}

// writeJSON writes a value as one line of JSON.
func writeJSON(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(value)
}

// column is a column of a table of T.
type column[T any] struct {
	title string
	text  func(T) string
	right bool // aligned, as numbers are
}

// table writes rows as a table, or as a JSON object a line.
type table[T any] struct {
	a       *app
	columns []column[T]
	rows    [][]string
	began   bool
}

// maxRows is how many rows are aligned together. Those before are written when there are more.
const maxRows = 1000

func newTable[T any](a *app, columns ...column[T]) *table[T] {
	return &table[T]{a: a, columns: columns}
}

// add adds a row.
func (t *table[T]) add(row T) error {
	if t.a.output == outputJSON {
		return t.a.print(row, nil)
	}
	cells := make([]string, len(t.columns))
	for i, c := range t.columns {
		cells[i] = c.text(row)
	}
	if t.rows = append(t.rows, cells); len(t.rows) == maxRows {
		return t.end()
	}
	return nil
}

// end writes the rows that are left. A table without rows has no titles either.
func (t *table[T]) end() error {
	if len(t.rows) == 0 {
		return nil
	}
	if !t.began {
		titles := make([]string, len(t.columns))
		for i, c := range t.columns {
			titles[i] = c.title
		}
		t.rows = append([][]string{titles}, t.rows...)
		t.began = true
	}
	widths := make([]int, len(t.columns))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		writeRow(&b, row, widths, t.columns)
	}
	t.rows = t.rows[:0]
	_, err := io.WriteString(t.a.stdout, b.String())
	return err
}

func writeRow[T any](b *strings.Builder, row []string, widths []int, columns []column[T]) {
	var line strings.Builder
	for i, cell := range row {
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if i > 0 {
			line.WriteString("  ")
		}
		if columns[i].right {
			line.WriteString(pad + cell)
		} else {
			line.WriteString(cell + pad)
		}
	}
	b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
}

// printable returns a text without anything that could change a terminal: control characters, and those that change
// the direction of what follows, are escaped. It is cut after a number of characters; 0 is no limit.
func printable(text string, most int) string {
	var b strings.Builder
	n := 0
	for rest := text; rest != ""; n++ {
		if most > 0 && n == most {
			return b.String() + "…"
		}
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, rest[0])
		case r == ' ' || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		rest = rest[size:]
	}
	return b.String()
}

// stamp returns a time for a table.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// span returns a duration for people, with two units at most.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + span(-d)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// count returns a number with commas.
func count[N int | int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign, digits := digits[:len(digits)-len(strings.TrimLeft(digits, "-"))], strings.TrimLeft(digits, "-")
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

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
	case d >= 1:
		return fmt.Sprintf("$%.2f", d)
	case d == 0:
		return "$0"
	}
	return fmt.Sprintf("$%.2g", d)
}
