package azblob

import (
	"slices"
	"strings"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Which of the candidates match.

// search is what a search wants.
type search struct {
	*store
	f       storage.Filters
	results bool // whether the results are wanted, or only the number of plans
}

// isOpen reports whether the statuses are those of open plans alone. Open plans have markers.
func isOpen(statuses []workflow.Status) bool {
	return len(statuses) > 0 && !slices.ContainsFunc(statuses, workflow.Status.Final)
}

// openOf returns those of the statuses that are open. Without statuses, they are all that are open.
func openOf(statuses []workflow.Status) []workflow.Status {
	if statuses == nil {
		return []workflow.Status{workflow.NotStarted, workflow.Running}
	}
	return slices.DeleteFunc(slices.Clone(statuses), workflow.Status.Final)
}

// onlyNotStarted reports whether the filters ask for no other status.
func onlyNotStarted(f storage.Filters) bool {
	return !slices.ContainsFunc(f.ByStatus, func(s workflow.Status) bool { return s != workflow.NotStarted })
}

// wantsAll reports whether the filters want every plan of the time that they leave.
func wantsAll(f storage.Filters) bool { return len(driver.Reads(f)) == 0 }

// candidate is a plan that a listing leads to, before it is known to be one.
type candidate struct {
	planBlobs
	result    storage.ListResult
	matched   bool  // the filters choose the plan by its result, or may choose it
	truncated bool  // name and description are too long for metadata: the entry has them whole
	undecided bool  // whether the filters choose the plan depends on the part of the name that was cut
	err       error // why the plan can't be read
	weight    int   // how many plans of a day and a status it counts for, where results are not wanted; 0 for one plan
}

// choose reads the metadata of a plan's entry into the candidate, and reports whether the filters choose the
// plan. It chooses a plan whose metadata can't be read, so that the listing shows the error.
func (p *candidate) choose(form format, f storage.Filters, entry blob.Properties) bool {
	r, cut, err := form.parseMetadata(entry.Metadata, p.keys.plan, typeEntry)
	if err != nil {
		p.err = blobError("read metadata of entry", p.keys.entry(), err)
		return true
	}
	r.State.ETag = driver.Version(entry.ETag, &workflow.Plan{State: r.State})
	return p.match(f, r, cut)
}

// match sets the result of the candidate, and reports whether the filters choose it, or may choose it. The fields in
// cut are not whole: the result has their beginnings.
func (p *candidate) match(f storage.Filters, r storage.ListResult, cut []string) bool {
	p.result, p.truncated = r, len(cut) > 0
	if slices.Contains(cut, metaName) {
		f, p.undecided = filtersOfStart(f, r.Name)
	}
	p.matched = driver.Choose(f, r)
	return p.matched
}

// filtersOfStart returns the filters that the start of a plan's name can decide, and whether the whole name is needed.
func filtersOfStart(f storage.Filters, start string) (_ storage.Filters, undecided bool) {
	if len(f.NamePrefix) > len(start) && strings.HasPrefix(f.NamePrefix, start) {
		f.NamePrefix, undecided = start, true
	}
	if !strings.Contains(start, f.NameContains) {
		f.NameContains, undecided = "", true
	}
	return f, undecided
}

// isMarked reports whether a candidate has a marker of an open plan. A change marker is none.
func (p *candidate) isMarked() bool { return p.marker != nil || p.deleteMarker != nil }
