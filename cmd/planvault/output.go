package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"syscall"
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
	return a.write(b.Bytes())
}

// errEnough is the error of a command whose reader has closed the pipe: head has seen enough. Nothing failed.
var errEnough = &exitError{code: exitDone}

// write writes results.
func (a *app) write(b []byte) error {
	_, err := a.stdout.Write(b)
	switch {
	case errors.Is(err, syscall.EPIPE):
		return errEnough
	case err != nil:
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
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
			widths[i] = max(widths[i], textWidth(cell))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		writeRow(&b, row, widths, t.columns)
	}
	t.rows = t.rows[:0]
	return t.a.write([]byte(b.String()))
}

func writeRow[T any](b *strings.Builder, row []string, widths []int, columns []column[T]) {
	var line strings.Builder
	for i, cell := range row {
		pad := strings.Repeat(" ", widths[i]-textWidth(cell))
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
// the direction of what follows, are escaped. It is cut after a number of columns; 0 is no limit.
func printable(text string, most int) string {
	var b strings.Builder
	columns := 0
	for rest := text; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		shown := rest[:size]
		switch {
		case r == utf8.RuneError && size == 1:
			shown = fmt.Sprintf(`\x%02x`, rest[0])
		case !unicode.IsPrint(r):
			shown = strings.Trim(strconv.QuoteRune(r), "'")
		}
		columns += max(1, textWidth(shown)) // a thousand accents on a letter are cut, too
		if most > 0 && columns > most {
			return b.String() + "…"
		}
		b.WriteString(shown)
		rest = rest[size:]
	}
	return b.String()
}

// textWidth returns how many columns of a terminal a printable text takes.
func textWidth(text string) (columns int) {
	for _, r := range text {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me):
		case unicode.Is(wide, r):
			columns += 2
		default:
			columns++
		}
	}
	return columns
}

// wide are the characters that take two columns: those that Unicode's East Asian Width has as W or F.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1},
		{0x231a, 0x231b, 1},
		{0x23e9, 0x23ec, 1},
		{0x2614, 0x2615, 1},
		{0x26a1, 0x26aa, 9},
		{0x2705, 0x270a, 5},
		{0x2728, 0x274c, 36},
		{0x2b50, 0x2b55, 5},
		{0x2e80, 0x303e, 1},
		{0x3041, 0x4dbf, 1},
		{0x4e00, 0xa4cf, 1},
		{0xa960, 0xa97c, 1},
		{0xac00, 0xd7a3, 1},
		{0xf900, 0xfaff, 1},
		{0xfe10, 0xfe19, 1},
		{0xfe30, 0xfe6f, 1},
		{0xff01, 0xff60, 1},
		{0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{{0x16fe0, 0x18cff, 1}, {0x1aff0, 0x1b2ff, 1}, {0x1f300, 0x1f64f, 1}, {0x1f680, 0x1f6ff, 1}, {0x1f900, 0x1faff, 1}, {0x20000, 0x3fffd, 1}},
}

// utc returns a time in UTC for JSON, which has the years 0 to 9999 only. Stored data may hold others.
func utc(t time.Time) time.Time {
	t = t.UTC()
	switch first, last := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC); {
	case t.Before(first):
		return first
	case t.After(last):
		return last
	}
	return t
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
	case d == 0:
		return "$0"
	case d >= 0.995:
		return fmt.Sprintf("$%.2f", d)
	}
	digits := 1 - int(math.Floor(math.Log10(d))) // two of them count
	return fmt.Sprintf("$%.*f", digits, d)
}
