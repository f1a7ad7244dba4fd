package driver

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Listed returns what a listing shows of a plan. It has every field of a [storage.ListResult].
func Listed(p *workflow.Plan) storage.ListResult {
	r := storage.ListResult{
		ID: p.ID, GroupID: p.GroupID, Name: p.Name, Descr: p.Descr, SubmitTime: p.SubmitTime, SubmittedBy: p.Submitted.By, State: p.State,
		Owner: p.Owner, Epoch: p.Epoch, WakeAt: p.WakeAt, LastSignal: p.LastSignal, ForkedFrom: p.ForkedFrom,
	}
	if p.State.Status == workflow.NotStarted {
		r.WakeAt = p.NotBefore
	}
	if !p.State.Status.Final() {
		r.External, r.KeepTurn, r.Unique, r.WaitsFor = p.External.Name, p.KeepTurn, p.Unique, p.WaitsFor
		for _, k := range p.Keys {
			r.Keys = append(r.Keys, k.Name)
		}
		slices.Sort(r.Keys)
		if len(p.Keys) > 0 || p.Unique != "" {
			r.Deadline = p.Deadline
		}
	}
	if len(p.Labels) > 0 {
		r.Labels = p.Labels
	}
	return r
}

// filter is a row of the table of filters. A nil function has no objection. Unset filters match everything.
type filter struct {
	field string // of storage.Filters
	// reads is the field of storage.ListResult that plan reads.
	reads string
	// check returns what is wrong with the field.
	check func(f storage.Filters) error
	// id and plan report whether a plan matches, by its ID and by its listing.
	id   func(f storage.Filters, id uuid.UUID) bool
	plan func(f storage.Filters, r storage.ListResult) bool
}

// filters has a row for each field of [storage.Filters].
var filters = []filter{
	{
		field: "ByIDs",
		id:    func(f storage.Filters, id uuid.UUID) bool { return len(f.ByIDs) == 0 || slices.Contains(f.ByIDs, id) },
	},
	{
		field: "IDContains", reads: "ID",
		check: func(f storage.Filters) error {
			if _, ok := digitsOf(f.IDContains); f.IDContains != "" && !ok {
				return Invalid("Filters.IDContains", "%.60q is not 1 to 32 hexadecimal digits", f.IDContains)
			}
			return nil
		},
		id: func(f storage.Filters, id uuid.UUID) bool {
			if f.IDContains == "" {
				return true
			}
			part, ok := digitsOf(f.IDContains)
			var whole [2 * len(uuid.UUID{})]byte
			hex.Encode(whole[:], id[:])
			return ok && bytes.Contains(whole[:], part.text[:part.n])
		},
	},
	{
		field: "ByGroupIDs", reads: "GroupID",
		check: func(f storage.Filters) error { return checkIDs("ByGroupIDs", f.ByGroupIDs) },
		plan: func(f storage.Filters, r storage.ListResult) bool {
			return len(f.ByGroupIDs) == 0 || slices.Contains(f.ByGroupIDs, r.GroupID)
		},
	},
	{
		field: "ByForkedFrom", reads: "ForkedFrom",
		check: func(f storage.Filters) error { return checkIDs("ByForkedFrom", f.ByForkedFrom) },
		plan: func(f storage.Filters, r storage.ListResult) bool {
			return len(f.ByForkedFrom) == 0 || slices.Contains(f.ByForkedFrom, r.ForkedFrom)
		},
	},
	{
		field: "BySubmitter", reads: "SubmittedBy",
		check: func(f storage.Filters) error {
			for i, by := range f.BySubmitter {
				if err := workflow.CheckActor(workflow.Actor{By: by}); err != nil || by == "" {
					return Invalid(fmt.Sprintf("Filters.BySubmitter[%d]", i), "%.100q is not one line of 1 to %d bytes, so no plan has it", by, workflow.MaxBy)
				}
			}
			return nil
		},
		plan: func(f storage.Filters, r storage.ListResult) bool {
			return len(f.BySubmitter) == 0 || slices.Contains(f.BySubmitter, r.SubmittedBy)
		},
	},
	{
		field: "ByKey", reads: "Keys",
		check: func(f storage.Filters) error {
			if err := workflow.CheckKey(workflow.Key{Name: f.ByKey}); err != nil && f.ByKey != "" {
				return Invalid("Filters.ByKey", "%.100q is not one line of 1 to %d bytes, so no key has it", f.ByKey, workflow.MaxKeyName)
			}
			return nil
		},
		plan: func(f storage.Filters, r storage.ListResult) bool {
			return f.ByKey == "" || slices.Contains(r.Keys, f.ByKey)
		},
	},
	{
		field: "ByStatus", reads: "State",
		check: func(f storage.Filters) error {
			if i := slices.IndexFunc(f.ByStatus, func(s workflow.Status) bool { return !s.Valid() }); i >= 0 {
				return Invalid(fmt.Sprintf("Filters.ByStatus[%d]", i), "there is no status %d", int(f.ByStatus[i]))
			}
			if !(f.EndedAfter.IsZero() && f.EndedBefore.IsZero()) && len(f.ByStatus) > 0 && !slices.ContainsFunc(f.ByStatus, workflow.Status.Final) {
				return Invalid("Filters.ByStatus", "has no final status, but only final plans have ended")
			}
			return nil
		},
		plan: func(f storage.Filters, r storage.ListResult) bool {
			return len(f.ByStatus) == 0 || slices.Contains(f.ByStatus, r.State.Status)
		},
	},
	{
		field: "NamePrefix", reads: "Name",
		check: func(f storage.Filters) error { return checkText("NamePrefix", f.NamePrefix) },
		plan:  func(f storage.Filters, r storage.ListResult) bool { return strings.HasPrefix(r.Name, f.NamePrefix) },
	},
	{
		field: "NameContains", reads: "Name",
		check: func(f storage.Filters) error { return checkText("NameContains", f.NameContains) },
		plan:  func(f storage.Filters, r storage.ListResult) bool { return strings.Contains(r.Name, f.NameContains) },
	},
	{
		field: "Labels", reads: "Labels",
		check: func(f storage.Filters) error {
			if err := workflow.CheckLabels(f.Labels); err != nil {
				return Invalid("Filters.Labels", "%v", err)
			}
			return nil
		},
		plan: func(f storage.Filters, r storage.ListResult) bool {
			for key, value := range f.Labels {
				if has, ok := r.Labels[key]; !ok || has != value {
					return false
				}
			}
			return true
		},
	},
	{
		field: "After",
		check: func(f storage.Filters) error { return checkRange("Filters.After", f.After, "Before", f.Before) },
		id: func(f storage.Filters, id uuid.UUID) bool {
			return f.After.IsZero() || workflow.Time(id).After(f.After)
		},
	},
	{
		field: "Before",
		id: func(f storage.Filters, id uuid.UUID) bool {
			return f.Before.IsZero() || workflow.Time(id).Before(f.Before)
		},
	},
	{
		field: "EndedAfter", reads: "State",
		check: func(f storage.Filters) error {
			return checkRange("Filters.EndedAfter", f.EndedAfter, "EndedBefore", f.EndedBefore)
		},
		plan: func(f storage.Filters, r storage.ListResult) bool {
			return f.EndedAfter.IsZero() || ended(r.State) && r.State.End.After(f.EndedAfter)
		},
	},
	{
		field: "EndedBefore", reads: "State",
		id: func(f storage.Filters, id uuid.UUID) bool {
			return f.EndedBefore.IsZero() || workflow.Time(id).Before(f.EndedBefore.Add(storage.MaxAhead))
		},
		plan: func(f storage.Filters, r storage.ListResult) bool {
			return f.EndedBefore.IsZero() || ended(r.State) && r.State.End.Before(f.EndedBefore)
		},
	},
	{
		field: "BeforeID",
		check: func(f storage.Filters) error {
			if f.BeforeID != uuid.Nil && !workflow.IsV7(f.BeforeID) {
				return Invalid("Filters.BeforeID", "%s is not a UUIDv7", f.BeforeID)
			}
			return nil
		},
		id: func(f storage.Filters, id uuid.UUID) bool {
			return f.BeforeID == uuid.Nil || NewestFirst(f.BeforeID, id) < 0
		},
	},
	{
		field: "Limit", // the listing counts
		check: func(f storage.Filters) error { return CheckLimit("Filters.Limit", f.Limit) },
	},
}

// digits are n hexadecimal digits in lower case.
type digits struct {
	text [2 * len(uuid.UUID{})]byte
	n    int
}

// digitsOf returns the digits of a text, without its hyphens. It reports whether the text has any, no more than an ID,
// and nothing else.
func digitsOf(text string) (d digits, ok bool) {
	for i := range len(text) {
		c := text[i]
		switch {
		case c == '-':
			continue
		case 'A' <= c && c <= 'F':
			c += 'a' - 'A'
		case '0' <= c && c <= '9', 'a' <= c && c <= 'f':
		default:
			return digits{}, false
		}
		if d.n == len(d.text) {
			return digits{}, false
		}
		d.text[d.n] = c
		d.n++
	}
	return d, d.n > 0
}

// Reads returns the fields of [storage.ListResult] that the filters read of a plan, such as "State". There are none if
// the filters select by time and ID alone.
func Reads(f storage.Filters) (fields []string) {
	set := f.Fields()
	for _, row := range filters {
		if row.reads != "" && slices.Contains(set, row.field) && !slices.Contains(fields, row.reads) {
			fields = append(fields, row.reads)
		}
	}
	return fields
}

// CheckFilters returns [storage.ErrInvalid] for filters of a Search that are empty or contradict each other.
func CheckFilters(f storage.Filters) error {
	if len(f.Fields()) == 0 {
		return Invalid("Filters", "are empty: use List for all plans")
	}
	return checkFilters(f)
}

// CheckCount returns [storage.ErrInvalid] for filters that a Count can't have, or that contradict each other.
func CheckCount(f storage.Filters) error {
	switch {
	case f.Limit != 0:
		return Invalid("Filters.Limit", "is %d: Count has no limit", f.Limit)
	case f.BeforeID != uuid.Nil:
		return Invalid("Filters.BeforeID", "is set: Count has no pages")
	}
	return checkFilters(f)
}

func checkFilters(f storage.Filters) error {
	for _, row := range filters {
		if row.check == nil {
			continue
		}
		if err := row.check(f); err != nil {
			return err
		}
	}
	return nil
}

func checkIDs(field string, ids []uuid.UUID) error {
	if i := slices.Index(ids, uuid.Nil); i >= 0 {
		return Invalid(fmt.Sprintf("Filters.%s[%d]", field, i), "is nil")
	}
	return nil
}

func checkText(field, text string) error {
	if !utf8.ValidString(text) {
		return Invalid("Filters."+field, "is not valid UTF-8, so no name has it")
	}
	return nil
}

// checkRange returns [storage.ErrInvalid] unless a time is before another. Either may be zero, which is no bound.
func checkRange(afterField string, after time.Time, beforeField string, before time.Time) error {
	if after.IsZero() || before.IsZero() || after.Before(before) {
		return nil
	}
	return Invalid(afterField, "%v is not before %s, %v", after.Format(time.RFC3339Nano), beforeField, before.Format(time.RFC3339Nano))
}

// CheckLimit returns [storage.ErrInvalid] for a negative limit of a listing. 0 is all.
func CheckLimit(field string, limit int) error {
	if limit < 0 {
		return Invalid(field, "%d is negative", limit)
	}
	return nil
}

// CheckDay returns [storage.ErrInvalid] unless the calendar has a day, in a year of four digits.
func CheckDay(field string, day storage.Day) error {
	if day.Valid() && day.Year >= 1 && day.Year <= 9999 {
		return nil
	}
	return Invalid(field, "is no day of the calendar: %d-%d-%d", day.Year, int(day.Month), day.Day)
}

// CheckDays returns [storage.ErrInvalid] unless the calendar has both days, and the first is not after the last. Either may be
// zero, which is no bound.
func CheckDays(fromField string, from storage.Day, toField string, to storage.Day) error {
	if err := cmp.Or(checkBound(fromField, from), checkBound(toField, to)); err != nil {
		return err
	}
	if from.IsZero() || to.IsZero() || !from.After(to) {
		return nil
	}
	return Invalid(fromField, "%v is after %s, %v", from, toField, to)
}

func checkBound(field string, day storage.Day) error {
	if day.IsZero() {
		return nil
	}
	return CheckDay(field, day)
}

// OfDay returns filters that select the plans of a day by the time in their IDs.
func OfDay(day storage.Day) storage.Filters {
	return storage.Filters{After: day.Start().Add(-time.Millisecond), Before: day.Add(1).Start()}
}

// CreatedBefore returns the time before which all plans that the filters select were created, or the zero time:
// Before, or [storage.MaxAhead] after EndedBefore if that is earlier.
func CreatedBefore(f storage.Filters) time.Time {
	bound := f.EndedBefore.Add(storage.MaxAhead)
	if f.EndedBefore.IsZero() || !f.Before.IsZero() && f.Before.Before(bound) {
		return f.Before
	}
	return bound
}

// SelectsNothing reports whether a list of the filters is set and has no values, so they select no plan at all.
func SelectsNothing(f storage.Filters) bool {
	return f.ByIDs != nil && len(f.ByIDs) == 0 || f.ByGroupIDs != nil && len(f.ByGroupIDs) == 0 ||
		f.ByForkedFrom != nil && len(f.ByForkedFrom) == 0 || f.BySubmitter != nil && len(f.BySubmitter) == 0 ||
		f.ByStatus != nil && len(f.ByStatus) == 0 || f.Labels != nil && len(f.Labels) == 0
}

// ChooseID reports whether the filters may select a plan with this ID, as far as the ID tells. An ID that is
// not a UUIDv7 belongs to no plan.
func ChooseID(f storage.Filters, id uuid.UUID) bool {
	if !workflow.IsV7(id) || SelectsNothing(f) {
		return false
	}
	for i := range filters {
		if matches := filters[i].id; matches != nil && !matches(f, id) {
			return false
		}
	}
	return true
}

// Choose reports whether the filters select a plan with this listing.
func Choose(f storage.Filters, r storage.ListResult) bool {
	if !ChooseID(f, r.ID) {
		return false
	}
	for i := range filters {
		if matches := filters[i].plan; matches != nil && !matches(f, r) {
			return false
		}
	}
	return true
}

// ended reports whether a plan has ended at a known time.
func ended(s workflow.State) bool { return s.Status.Final() && !s.End.IsZero() }

// NewestFirst compares IDs in the order of listings: UUIDv7s sort by time. A [storage.Roster] has the reverse order.
func NewestFirst(a, b uuid.UUID) int { return bytes.Compare(b[:], a[:]) }
