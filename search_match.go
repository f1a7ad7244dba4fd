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

// candidate is a plan that a listing leads to, before it is known to be one.
type candidate struct {
	planBlobs
	result    storage.ListResult
	truncated bool  // name and description are too long for metadata: the entry has them whole
	undecided bool  // whether the filters choose the plan depends on the part of the name that was cut
	err       error // why the plan can't be read
	weight    int64 // how many plans of a day and a status it counts for, where results are not wanted; 0 for one plan
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
	return driver.Choose(f, r)
}

// filtersOfStart returns the filters that the start of a plan's name can decide, and whether any of them is left
// undecided.
func filtersOfStart(f storage.Filters, start string) (_ storage.Filters, undecided bool) {
	if len(f.NamePrefix) > len(start) && strings.HasPrefix(f.NamePrefix, start) {
		f.NamePrefix, undecided = start, true
	}
	if !strings.Contains(start, f.NameContains) {
		f.NameContains, undecided = "", true
	}
	return f, undecided
}

// isMarked reports whether a candidate has a marker that leads to open plans. A change marker does not.
func (p *candidate) isMarked() bool { return p.marker != nil || p.deleteMarker != nil }
