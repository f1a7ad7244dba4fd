// Package oracle says what listings must yield, by the words of the contract. It shares no code with package driver.
package oracle

import (
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// filter is a field of [storage.Filters].
type filter struct {
	field string
	// draw sets the field such that it selects a plan, or nearly. For a list it adds a value.
	draw func(r *rand.Rand, f *storage.Filters, p *workflow.Plan)
	// selects reports whether the field, which is set, selects a plan.
	selects func(f storage.Filters, p *workflow.Plan) bool
}

var filters = []filter{
	{
		"ByIDs", func(_ *rand.Rand, f *storage.Filters, p *workflow.Plan) { f.ByIDs = append(f.ByIDs, p.ID) },
		func(f storage.Filters, p *workflow.Plan) bool { return slices.Contains(f.ByIDs, p.ID) },
	},
	{
		"IDContains", func(r *rand.Rand, f *storage.Filters, p *workflow.Plan) {
			text := p.ID.String()
			if r.IntN(2) == 0 {
				text = strings.ToUpper(strings.ReplaceAll(text, "-", ""))
			}
			at := r.IntN(len(text) - 8)
			f.IDContains = text[at : at+1+r.IntN(9)]
			if f.IDContains == "-" {
				f.IDContains = ""
			}
		},
		func(f storage.Filters, p *workflow.Plan) bool {
			plain := strings.NewReplacer("-", "").Replace
			return strings.Contains(plain(p.ID.String()), strings.ToLower(plain(f.IDContains)))
		},
	},
	{
		"ByGroupIDs", func(_ *rand.Rand, f *storage.Filters, p *workflow.Plan) {
			if p.GroupID != uuid.Nil {
				f.ByGroupIDs = append(f.ByGroupIDs, p.GroupID)
			}
		},
		func(f storage.Filters, p *workflow.Plan) bool { return slices.Contains(f.ByGroupIDs, p.GroupID) },
	},
	{
		"ByForkedFrom", func(_ *rand.Rand, f *storage.Filters, p *workflow.Plan) {
			if p.ForkedFrom != uuid.Nil {
				f.ByForkedFrom = append(f.ByForkedFrom, p.ForkedFrom)
			}
		},
		func(f storage.Filters, p *workflow.Plan) bool { return slices.Contains(f.ByForkedFrom, p.ForkedFrom) },
	},
	{
		"BySubmitter", func(_ *rand.Rand, f *storage.Filters, p *workflow.Plan) {
			if p.Submitted.By != "" {
				f.BySubmitter = append(f.BySubmitter, p.Submitted.By)
			}
		},
		func(f storage.Filters, p *workflow.Plan) bool { return slices.Contains(f.BySubmitter, p.Submitted.By) },
	},
	{
		"ByKey", func(r *rand.Rand, f *storage.Filters, p *workflow.Plan) {
			if len(p.Keys) > 0 {
				f.ByKey = p.Keys[r.IntN(len(p.Keys))].Name
			}
		},
		func(f storage.Filters, p *workflow.Plan) bool { return slices.Contains(turns(p), f.ByKey) },
	},
	{
		"ByStatus", func(r *rand.Rand, f *storage.Filters, _ *workflow.Plan) {
			f.ByStatus = append(f.ByStatus, workflow.Status(r.IntN(5)))
		},
		func(f storage.Filters, p *workflow.Plan) bool { return slices.Contains(f.ByStatus, p.State.Status) },
	},
	{
		"NamePrefix", func(r *rand.Rand, f *storage.Filters, p *workflow.Plan) { f.NamePrefix, _ = cut(r, p.Name) },
		func(f storage.Filters, p *workflow.Plan) bool { return strings.Index(p.Name, f.NamePrefix) == 0 },
	},
	{
		"NameContains", func(r *rand.Rand, f *storage.Filters, p *workflow.Plan) {
			_, end := cut(r, p.Name)
			f.NameContains, _ = cut(r, end)
		},
		func(f storage.Filters, p *workflow.Plan) bool { return strings.Count(p.Name, f.NameContains) > 0 },
	},
	{
		"Labels", func(r *rand.Rand, f *storage.Filters, p *workflow.Plan) {
			for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
				if r.IntN(2) == 0 {
					f.Labels = map[string]string{key: p.Labels[key]}
				}
			}
		},
		func(f storage.Filters, p *workflow.Plan) bool {
			lacks := maps.Clone(f.Labels)
			maps.DeleteFunc(lacks, func(key, value string) bool { return slices.Contains(pairs(p), key+"="+value) })
			return len(f.Labels) > 0 && len(lacks) == 0
		},
	},
	{
		"After", func(_ *rand.Rand, f *storage.Filters, p *workflow.Plan) { f.After = workflow.Time(p.ID) },
		func(f storage.Filters, p *workflow.Plan) bool { return workflow.Time(p.ID).After(f.After) },
	},
	{
		"Before", func(_ *rand.Rand, f *storage.Filters, p *workflow.Plan) { f.Before = workflow.Time(p.ID) },
		func(f storage.Filters, p *workflow.Plan) bool { return workflow.Time(p.ID).Before(f.Before) },
	},
	{
		"EndedAfter", func(r *rand.Rand, f *storage.Filters, p *workflow.Plan) { f.EndedAfter = beside(r, p.State.End) },
		func(f storage.Filters, p *workflow.Plan) bool { return ended(p) && p.State.End.After(f.EndedAfter) },
	},
	{
		"EndedBefore", func(r *rand.Rand, f *storage.Filters, p *workflow.Plan) { f.EndedBefore = beside(r, p.State.End) },
		func(f storage.Filters, p *workflow.Plan) bool {
			return ended(p) && p.State.End.Before(f.EndedBefore) && workflow.Time(p.ID).Sub(f.EndedBefore) < 24*time.Hour
		},
	},
	{
		"BeforeID", func(_ *rand.Rand, f *storage.Filters, p *workflow.Plan) { f.BeforeID = p.ID },
		func(f storage.Filters, p *workflow.Plan) bool { return p.ID.String() < f.BeforeID.String() },
	},
	{
		"Limit", func(r *rand.Rand, f *storage.Filters, _ *workflow.Plan) { f.Limit = 1 + r.IntN(10) },
		func(storage.Filters, *workflow.Plan) bool { return true },
	},
}

// turns are the names of the keys of an open plan, sorted.
func turns(p *workflow.Plan) (names []string) {
	for _, k := range p.Keys {
		if p.State.Status < workflow.Completed {
			names = append(names, k.Name)
		}
	}
	slices.Sort(names)
	return names
}

func pairs(p *workflow.Plan) (labels []string) {
	for key, value := range p.Labels {
		labels = append(labels, key+"="+value)
	}
	return labels
}

// cut cuts a text between two characters.
func cut(r *rand.Rand, text string) (start, end string) {
	runes := []rune(text)
	at := r.IntN(len(runes) + 1)
	return string(runes[:at]), string(runes[at:])
}

// beside returns a time, or one that is a nanosecond off. It leaves the zero time alone.
func beside(r *rand.Rand, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(time.Duration(r.IntN(3) - 1))
}

func ended(p *workflow.Plan) bool {
	return p.State.Status >= workflow.Completed && !p.State.End.IsZero()
}

// Selects reports whether filters select a plan.
func Selects(f storage.Filters, p *workflow.Plan) bool {
	set := f.Fields()
	for _, row := range filters {
		if slices.Contains(set, row.field) && !row.selects(f, p) {
			return false
		}
	}
	return true
}

// Draw returns filters with about n fields, for which plans are examples. They contradict each other in no way that a
// vault refuses.
func Draw(r *rand.Rand, plans []*workflow.Plan, n int) storage.Filters {
	return draw(r, plans, r.Perm(len(filters))[:min(n, len(filters))])
}

// Each yields filters with one field each, as [Draw] draws it. It draws a field again until it is set.
func Each(r *rand.Rand, plans []*workflow.Plan) iter.Seq[storage.Filters] {
	return func(yield func(storage.Filters) bool) {
		for i := range filters {
			var f storage.Filters
			for tries := 0; len(f.Fields()) == 0 && tries < 100; tries++ {
				f = draw(r, plans, []int{i})
			}
			if !yield(f) {
				return
			}
		}
	}
}

func draw(r *rand.Rand, plans []*workflow.Plan, rows []int) (f storage.Filters) {
	for _, i := range rows {
		for range 1 + r.IntN(4) {
			filters[i].draw(r, &f, plans[r.IntN(len(plans))])
		}
	}
	if !f.After.Before(f.Before) {
		f.Before = time.Time{}
	}
	if !f.EndedAfter.Before(f.EndedBefore) {
		f.EndedBefore = time.Time{}
	}
	if len(f.ByStatus) > 0 && !(f.EndedAfter.IsZero() && f.EndedBefore.IsZero()) {
		f.ByStatus = append(f.ByStatus, workflow.Completed)
	}
	return f
}

// Shows reports whether a listing may show a plan like this. It has a version of its own.
func Shows(r storage.ListResult, p *workflow.Plan) bool {
	return r.ID == p.ID && r.GroupID == p.GroupID && r.Name == p.Name && r.Descr == p.Descr && r.SubmitTime.Equal(p.SubmitTime) && r.SubmittedBy == p.Submitted.By &&
		r.Owner == p.Owner && r.Epoch == p.Epoch && r.ForkedFrom == p.ForkedFrom && maps.Equal(r.Labels, p.Labels) && slices.Equal(r.Keys, turns(p)) &&
		r.State.Status == p.State.Status && r.State.Start.Equal(p.State.Start) && r.State.End.Equal(p.State.End)
}
