package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"github.com/planvault/azblob/cmd/planvault/internal/human"
)

// column is a column of a table of rows. Its title in lower case is its name in --sort.
type column[T any] struct {
	title   string // one that begins with > is aligned to the right, as numbers are
	cell    func(T) string
	compare func(a, b T) int // nil for a column that has no order
	// short returns the cell of the short table, if it is another one.
	short func(T) string
	// least is how many columns of the terminal the cell keeps at least when the short table is too wide. 0 is all.
	least int
	shown shownIn
	// optional leaves the column out if its cells are empty in all rows, or in the first [maxRows] of a longer table.
	optional bool
}

// shownIn says which tables have a column: the short one, the one of --wide, or both.
type shownIn int

const (
	inBoth shownIn = iota
	inShort
	inWide
)

func (c column[T]) name() string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(c.title, ">")), " ", "-")
}

// newColumns returns the table of a command that has a short form and a wide one.
func newColumns[T any](a *app, columns []column[T]) *table[T] {
	var shown []column[T]
	for _, c := range columns {
		if c.shown == inBoth || (c.shown == inWide) == a.wide {
			shown = append(shown, c)
		}
	}
	t := &table[T]{a: a, least: make([]int, len(shown)), optional: make([]bool, len(shown))}
	if !a.wide {
		t.width = a.width()
	}
	for i, c := range shown {
		t.titles, t.least[i], t.optional[i] = append(t.titles, c.title), c.least, c.optional
	}
	t.cells = func(row T) (cells []string) {
		for _, c := range shown {
			if c.short != nil && !a.wide {
				cells = append(cells, c.short(row))
			} else {
				cells = append(cells, c.cell(row))
			}
		}
		return cells
	}
	return t
}

// usualWidth is how wide a short table may be in a pipe.
const usualWidth = 80

// width returns how wide a short table may be: as wide as the terminal.
func (a *app) width() int {
	if a.stdoutIsTerm && a.terminalSize != nil {
		width, _ := a.terminalSize()
		return width
	}
	return usualWidth
}

// narrow returns how wide a text may be that has so many columns beside it; 0 is no limit.
func (a *app) narrow(besides int) int {
	if a.wide {
		return 0
	}
	return max(a.width()-besides, usualWidth/2)
}

// fitColumns makes columns narrower, the widest first, until a row fits a width or nothing can be cut any more.
func fitColumns(widths, least []int, width int) {
	all := 2 * (len(widths) - 1)
	for _, w := range widths {
		all += w
	}
	for ; all > width; all-- {
		widest := -1
		for i, w := range widths {
			if least[i] > 0 && w > least[i] && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// wrap breaks a printable text between words, so that a line takes a number of columns if its words allow it. 0 is no limit.
func wrap(text string, most int) string {
	if most == 0 {
		return text
	}
	var b strings.Builder
	at := 0
	for word := range strings.SplitSeq(text, " ") {
		switch size := textWidth(word); {
		case at == 0:
			at = size
		case at+1+size > most:
			b.WriteByte('\n')
			at = size
		default:
			b.WriteByte(' ')
			at += 1 + size
		}
		b.WriteString(word)
	}
	return b.String()
}

// idColumn is a column of IDs. The short table has their last digits: the first ones are time, and look alike.
func idColumn[T any](title string, id func(T) uuid.UUID) column[T] {
	return column[T]{
		title: title, cell: func(r T) string { return id(r).String() }, short: func(r T) string { return shortID(id(r)) },
		compare: by(func(r T) string { return id(r).String() }),
	}
}

// by orders rows by a key.
func by[T any, K cmp.Ordered](key func(T) K) func(a, b T) int {
	return func(a, b T) int { return cmp.Compare(key(a), key(b)) }
}

// byTime orders rows by a time.
func byTime[T any](key func(T) time.Time) func(a, b T) int {
	return func(a, b T) int { return key(a).Compare(key(b)) }
}

// order is the value of --sort: a column, and whether the largest comes first.
type order[T any] struct {
	columns    []column[T]
	text       string
	compare    func(a, b T) int // nil if the flag is not given
	descending bool
}

// addSort adds the flag --sort. what says which rows are sorted.
func addSort[T any](flags *pflag.FlagSet, columns []column[T], what string) *order[T] {
	o := &order[T]{columns: columns}
	flags.Var(o, "sort", what+" by `FIELD`: "+strings.Join(o.names(), ", ")+"; FIELD,desc for the largest first")
	return o
}

func (o *order[T]) String() string { return o.text }
func (o *order[T]) Type() string   { return "field" }

func (o *order[T]) Set(text string) error {
	name, direction, turned := strings.Cut(text, ",")
	i := slices.IndexFunc(o.columns, func(c column[T]) bool { return c.compare != nil && c.name() == strings.ToLower(name) })
	if i < 0 || turned && direction != "desc" && direction != "asc" {
		return fmt.Errorf("%q is not a field: %s, each with ,desc for the largest first", printable(text, 50), strings.Join(o.names(), ", "))
	}
	o.text, o.compare, o.descending = text, o.columns[i].compare, direction == "desc"
	return nil
}

// names returns the names of the fields that rows can be sorted by.
func (o *order[T]) names() (names []string) {
	for _, c := range o.columns {
		if c.compare != nil {
			names = append(names, c.name())
		}
	}
	return names
}

// sort sorts rows, if the flag is given. Equal rows stay in their order.
func (o *order[T]) sort(rows []T) {
	if o.compare == nil {
		return
	}
	slices.SortStableFunc(rows, func(a, b T) int {
		if o.descending {
			a, b = b, a
		}
		return o.compare(a, b)
	})
}

// The values of --time, for tables and trees. JSON has times in UTC.
const (
	timeUTC      = "utc"
	timeLocal    = "local"
	timeRelative = "relative"
)

// stamp returns a time as --time wants it, or a dash for the zero time.
func (a *app) stamp(t time.Time) string {
	switch {
	case t.IsZero():
	case a.times == timeLocal:
		return t.In(cmp.Or(a.zone, time.Local)).Format("2006-01-02 15:04:05-07:00")
	case a.times == timeRelative:
		return human.Ago(time.Since(t))
	}
	return stamp(t)
}

// stampWidth is how many columns a time takes.
func (a *app) stampWidth() int {
	if a.times == timeLocal {
		return len("2006-01-02 15:04:05-07:00")
	}
	return len("2006-01-02 15:04:05Z")
}
