package azblob

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/catalogue"
	"github.com/planvault/azblob/internal/listing"
	"github.com/planvault/azblob/internal/same"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// CatalogueOptions are the options of [Admin.Catalogue].
type CatalogueOptions struct {
	// DryRun builds nothing. The report has the days that are due in Built, with neither plans nor bytes.
	DryRun bool
	// Verify also compares existing catalogues with their days, and rebuilds those that are damaged or differ. It costs as
	// much as two Lists of all past days, with the catalogues and without.
	Verify bool
	// Budget is the time after which no other catalogue is built or verified. At least one is. Default: 0, which is no
	// limit.
	Budget time.Duration
	// Progress is called after each past day. It may be nil.
	Progress func(storage.Progress)
}

// CatalogueReport is what [Admin.Catalogue] found and did.
type CatalogueReport struct {
	// Past is the number of past days, which may have a catalogue, and Present is how many of them had one.
	Past, Present int
	// Built are the days whose catalogue was built, newest first.
	Built []CataloguedDay
	// Skipped are the past days without a catalogue that were left alone, newest first.
	Skipped []SkippedDay
	// More says that days are left, because the budget was used up or the context ended.
	More bool
}

// CataloguedDay is a day whose catalogue was built.
type CataloguedDay struct {
	Day   storage.Day
	Plans int
	Bytes int64 // of the catalogue
}

// SkippedDay is a day that was left alone.
type SkippedDay struct {
	Day    storage.Day
	Reason SkipReason
	Detail string // the reason with its particulars, such as "1 marker of open plans or work in progress, such as open/0198…"
}

// SkipReason is a code for why a day was left alone.
type SkipReason string

// The reasons. A later Catalogue tries again.
const (
	SkipUnmarked   SkipReason = "unmarked"    // the vault did not make the container, so open plans may have no markers
	SkipOpen       SkipReason = "open"        // a plan is open, or somebody is changing a final one
	SkipNotPast    SkipReason = "not-past"    // by the service's clock
	SkipDropped    SkipReason = "dropped"     // meanwhile
	SkipOvertaken  SkipReason = "overtaken"   // another process has built its catalogue, or changed the day
	SkipForeign    SkipReason = "foreign"     // another program has written plans in it
	SkipUnreadable SkipReason = "unreadable"  // the metadata of a plan can't be read
	SkipLostMarker SkipReason = "lost-marker" // an open plan has no marker: a thorough Repair restores it
	SkipDiffering  SkipReason = "differing"   // two listings differ
	SkipTooLarge   SkipReason = "too-large"   // for a catalogue
)

// Catalogue builds the catalogues that are due. The catalogue of a day is one blob that holds what a listing shows of its
// plans. List, Search and Count read it instead of a listing, which takes one request for 2,500 plans.
//
// A day is past when the next day has ended, by the service's clock. Catalogue builds the catalogue of
// each past day that has none and in which nothing is open; it skips the others and reports why. Whoever
// changes a past day removes its catalogue first, so a catalogue never contradicts a write, and the next Catalogue
// rebuilds it. Call it daily. It may run on several nodes at once and beside all other calls, and may be stopped at any
// point and run again.
//
// A single listing may omit a plan, so Catalogue builds a catalogue only if two listings agree. It looks for the catalogue
// of each day with one request, and builds one with five and two for each 2,500 plans, newest day first. The last request
// sets the container's metadata, which shows listings where to look for a catalogue: without the right to set it, nobody
// reads the catalogue. Catalogue works on one day at a time, and takes about 100 bytes of memory for each of its plans. If a
// day fails, it continues with the others; the error joins those of all days. A negative budget is [storage.ErrInvalid].
func (a *Admin) Catalogue(ctx context.Context, o CatalogueOptions) (report CatalogueReport, err error) {
	err = a.call(ctx, "Catalogue", uuid.Nil, func(ctx context.Context) error {
		if o.Budget < 0 {
			return driver.Invalid("CatalogueOptions.Budget", "%v is negative", o.Budget)
		}
		c := cataloguing{store: a.store, opts: o, began: time.Now()}
		err := c.run(ctx)
		report = c.report
		return err
	})
	return report, err
}

// Upkeep is [Admin.Catalogue] with default options, for engines, which call it daily.
func (o offered) Upkeep(ctx context.Context) error {
	_, err := o.Admin().Catalogue(ctx, CatalogueOptions{})
	return err
}

// cataloguing is a Catalogue that is running.
type cataloguing struct {
	*store
	opts   CatalogueOptions
	report CatalogueReport
	began  time.Time
	worked bool // a catalogue was built or verified
}

// run builds what is due. The local clock only decides which days to ask for.
func (c *cataloguing) run(ctx context.Context) error {
	days, err := c.days(ctx)
	if err != nil {
		return err
	}
	days = slices.DeleteFunc(days, func(d day) bool { return !isPast(d.date, time.Now()) })
	c.report.Past = len(days)
	found := make([]blob.Properties, len(days)) // without an ETag: there is no blob
	errs := make([]error, len(days))
	_ = c.parallel(len(days), func(i int) error {
		if days[i].marked {
			found[i], errs[i] = c.look(ctx, days[i], c.client.Head)
		}
		return nil
	})
	for i, d := range days {
		if c.opts.Verify && errs[i] == nil && isBuiltOf(d.container, found[i]) && c.mayWork(ctx) {
			found[i], _, errs[i] = c.verify(ctx, d, found[i]) // one at a time: it takes memory
		}
		switch {
		case ctx.Err() != nil:
			c.report.More = true
			return errors.Join(append(errs, ctx.Err())...)
		case errs[i] != nil:
		case !d.marked:
			c.skip(d, SkipUnmarked, "the vault did not make its container, so plans that are open may have no markers")
		case isBuiltOf(d.container, found[i]):
			c.report.Present++
			errs[i] = c.hint(ctx, d)
		case c.opts.DryRun:
			c.report.Built = append(c.report.Built, CataloguedDay{Day: storage.DayOf(d.date)})
		case c.mayWork(ctx):
			errs[i] = c.build(ctx, d, found[i].ETag)
		}
		if c.opts.Progress != nil {
			c.opts.Progress(storage.Progress{Done: i + 1, Total: len(days)})
		}
	}
	return errors.Join(errs...)
}

// mayWork reports whether another catalogue may be built or verified, and notes if that is left for another call.
func (c *cataloguing) mayWork(ctx context.Context) bool {
	if ctx.Err() != nil || c.worked && used(c.opts.Budget, c.began) {
		c.report.More = true
		return false
	}
	c.worked = true
	return true
}

// look looks at the blob of a day's catalogue with head.
func (c *cataloguing) look(ctx context.Context, d day, head func(context.Context, blob.Ref) (blob.Properties, error)) (blob.Properties, error) {
	ref := catalogueOf(d.container)
	p, err := head(ctx, ref)
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return blob.Properties{}, nil
	}
	return p, blobError("look at catalogue", ref, err)
}

// verify compares a catalogue with its day. If it is damaged or differs, verify returns it as a placeholder that should be
// rebuilt. It first removes a catalogue that differs, because rebuilding may have to wait for an open plan.
func (c *cataloguing) verify(ctx context.Context, d day, p blob.Properties) (now blob.Properties, wrong bool, err error) {
	ref := catalogueOf(d.container)
	difference, etag, err := c.compareCatalogue(ctx, d)
	if damage := (*catalogue.Damage)(nil); errors.As(err, &damage) {
		return blob.Properties{ETag: p.ETag}, true, nil
	}
	if err == nil && difference != "" && etag == p.ETag {
		if c.opts.DryRun {
			return blob.Properties{}, true, nil
		}
		err = c.client.Delete(ctx, ref, blob.IfMatch(etag))
		if err == nil {
			return blob.Properties{}, true, nil
		}
	}
	switch {
	case blob.Is(err, blob.Absent, blob.AbsentContainer):
		return blob.Properties{}, false, c.confirmNoCatalogue(ctx, ref)
	case blob.Is(err, blob.Mismatch), errors.Is(err, errNotBuilt):
		return blob.Properties{}, false, nil // removed meanwhile
	case errors.Is(err, catalogue.ErrSchema):
		return p, false, nil
	}
	return p, false, blobError("verify catalogue", ref, forgetUnknown(err))
}

// confirmNoCatalogue returns nil only if a second look agrees that a catalogue is absent.
func (s *store) confirmNoCatalogue(ctx context.Context, ref blob.Ref) error {
	_, err := s.headAgain(ctx, ref)
	switch {
	case err == nil:
		return vaultError("read catalogue", ref, "%w: the service contradicts itself about whether it exists, or it was built meanwhile: call again", storage.ErrUnavailable)
	case blob.Is(err, blob.Absent, blob.AbsentContainer):
		return nil
	}
	return blobError("look at catalogue", ref, err)
}

// mend rebuilds the wrong catalogues of some days, and returns these days.
func (c *cataloguing) mend(ctx context.Context, days []day) (wrong []storage.Day, err error) {
	errs := make([]error, len(days))
	for i, d := range days {
		was, err := c.look(ctx, d, c.headAgain)
		if err == nil && isBuiltOf(d.container, was) {
			now, differs, verifyErr := c.verify(ctx, d, was)
			if err = verifyErr; differs {
				wrong = append(wrong, storage.DayOf(d.date))
				if !c.opts.DryRun {
					err = c.build(ctx, d, now.ETag)
				}
			}
		}
		errs[i] = err
	}
	return wrong, errors.Join(errs...)
}

func (c *cataloguing) skip(d day, reason SkipReason, detail string, args ...any) {
	c.report.Skipped = append(c.report.Skipped, SkippedDay{storage.DayOf(d.date), reason, fmt.Sprintf(detail, args...)})
}

// build builds the catalogue of a day in place of a version of its blob, which is a placeholder; without one it
// writes the placeholder. Whoever changes the day from here on writes a marker and then removes the placeholder.
// Therefore, as long as the placeholder is there, nothing has been committed since open/ was seen empty.
func (c *cataloguing) build(ctx context.Context, d day, etag string) error {
	ref := catalogueOf(d.container)
	if etag == "" {
		var err error
		etag, err = c.putCatalogue(ctx, ref, []byte(statePlaceholder), statePlaceholder, blob.IfNew)
		if err != nil {
			return c.skipIfOvertaken(d, "write placeholder", ref, err)
		}
	}
	open, err := c.listOpen(ctx, d)
	if err != nil || open {
		return err
	}
	body, plans, err := c.encode(ctx, d)
	if err != nil || body == nil {
		return err
	}
	if _, err := c.putCatalogue(ctx, ref, body, stateBuilt, blob.IfMatch(etag)); err != nil { // the commit point
		return c.skipIfOvertaken(d, "write catalogue", ref, err)
	}
	c.uncatalogued.forget(d.container)
	c.report.Built = append(c.report.Built, CataloguedDay{storage.DayOf(d.date), plans, int64(len(body))})
	return c.hint(ctx, d)
}

// hint notes in the container's metadata that the day has a catalogue, so that listings, which see the metadata anyway, look
// for catalogues only where there may be one. The hint stays when the catalogue is removed. Without it the day is listed,
// so an identity that may not set metadata is no failure.
func (c *cataloguing) hint(ctx context.Context, d day) error {
	if d.hinted || c.opts.DryRun {
		return nil
	}
	hinted := maps.Clone(d.metadata) // the others stay
	hinted[metaCatalogue] = "1"
	err := c.client.SetContainerMetadata(ctx, d.container, hinted)
	switch {
	case blob.Is(err, blob.AbsentContainer), blob.IsForbidden(err):
		return nil
	case err != nil:
		return blobError("hint at catalogue", blob.Ref{Container: d.container}, forgetUnknown(err))
	}
	c.containers.remember(blob.ContainerItem{Name: d.container, Metadata: hinted, Lease: d.lease, Seen: d.seen})
	return nil
}

// putCatalogue writes the blob of a catalogue. It makes no container: the day may have been dropped.
func (s *store) putCatalogue(ctx context.Context, ref blob.Ref, body []byte, state string, cond blob.Condition) (etag string, err error) {
	return s.client.Put(ctx, ref, body, map[string]string{
		metaState: state, metaSchema: strconv.Itoa(catalogue.Schema), metaContainer: ref.Container, blob.WriteID: uuid.NewString(),
	}, cond)
}

// skipIfOvertaken skips a day if err says that another process was faster.
func (c *cataloguing) skipIfOvertaken(d day, doing string, ref blob.Ref, err error) error {
	if !blob.Is(err, blob.Mismatch, blob.Absent, blob.AbsentContainer) || blob.IsUnknown(err) {
		return blobError(doing, ref, err)
	}
	c.skip(d, SkipOvertaken, "another process has built its catalogue, or changed it, meanwhile")
	return nil
}

// listOpen skips a day that is not past by the service's clock, or has anything under open/ by one of two listings.
func (c *cataloguing) listOpen(ctx context.Context, d day) (open bool, err error) {
	for _, size := range pageSizes() {
		if open, err = c.listOpenBy(ctx, d, size); open || err != nil {
			return open, err
		}
	}
	return false, nil
}

func (c *cataloguing) listOpenBy(ctx context.Context, d day, size int) (open bool, err error) {
	n, first := 0, ""
	for page, err := range c.client.List(ctx, d.container, blob.ListOptions{Prefix: openDir, MaxResults: size}) {
		switch {
		case blob.Is(err, blob.AbsentContainer):
			c.skip(d, SkipDropped, "it was dropped meanwhile")
			return true, nil
		case err != nil:
			return true, blobError("list markers", blob.Ref{Container: d.container, Name: openDir}, err)
		case !isPast(d.date, page.Seen):
			c.skip(d, SkipNotPast, "it is not past by the service's clock, which says %s", page.Seen.UTC().Format(time.RFC3339))
			return true, nil
		}
		if n += len(page.Items); first == "" && n > 0 {
			first = page.Items[0].Name
		}
	}
	if n > 0 {
		c.skip(d, SkipOpen, "%s of open plans or work in progress, such as %s", plural(n, "marker"), first)
	}
	return n > 0, nil
}

// tally is the number of some blobs and a hash of their names and versions.
type tally struct {
	blobs int
	hash  uint64
}

func (t *tally) add(item *blob.Item) {
	h := fnv.New64a()
	fmt.Fprintln(h, t.hash, item.Name, item.ETag)
	t.blobs, t.hash = t.blobs+1, h.Sum64()
}

// tallyPlans lists the blobs of a day's plans a second time, without their metadata.
func (s *store) tallyPlans(ctx context.Context, d day) (t tally, err error) {
	ref := blob.Ref{Container: d.container, Name: plansDir}
	for item, err := range s.listPages(ctx, "list", ref, blob.ListOptions{MaxResults: pageSizes()[1]}) {
		if err != nil {
			return t, err
		}
		if name, ok := parseName(item.Name); ok && s.prefix.plan(name.plan).container == d.container {
			t.add(&item)
		}
	}
	return t, nil
}

// encode lists the plans of a day, and returns the catalogue and their number. It returns nil if it skips the day.
func (c *cataloguing) encode(ctx context.Context, d day) (body []byte, plans int, err error) {
	e, err := catalogue.NewEncoder(d.container, blob.MaxBody)
	if err != nil {
		return nil, 0, err
	}
	var listed tally
	for b, err := range c.dayPlans(ctx, d, []string{plansDir}, func(string, string) {}) {
		if blob.Is(err, blob.AbsentContainer) {
			c.skip(d, SkipDropped, "it was dropped meanwhile")
			return nil, 0, nil
		}
		if err != nil {
			return nil, 0, err
		}
		for _, item := range b.all() {
			if listed.add(item); isForeign(item.Metadata) {
				c.skip(d, SkipForeign, "another program wrote plan %s, which a catalogue would hide", b.keys.plan)
				return nil, 0, nil
			}
		}
		if !b.committed() {
			continue // what is left of one, which listings don't show
		}
		p, err := c.format.cataloguePlan(b.keys.plan, *b.entry)
		switch {
		case err != nil:
			c.skip(d, SkipUnreadable, "the metadata of plan %s can't be read: %v", b.keys.plan, err)
			return nil, 0, nil
		case !p.State.Status.Final():
			c.skip(d, SkipLostMarker, "plan %s is %s, and no marker leads to it: a thorough Repair restores the marker", b.keys.plan, p.State.Status)
			return nil, 0, nil
		}
		if err = e.Add(p); err != nil {
			return nil, 0, c.unencoded(d, err)
		}
		plans++
	}
	again, err := c.tallyPlans(ctx, d)
	if err != nil {
		return nil, 0, err
	}
	if again != listed {
		c.skip(d, SkipDiffering, "two listings of its plans differ, with %d and %d blobs: call Catalogue again", listed.blobs, again.blobs)
		return nil, 0, nil
	}
	body, err = e.Finish()
	return body, plans, c.unencoded(d, err)
}

// unencoded skips a day whose catalogue is too large.
func (c *cataloguing) unencoded(d day, err error) error {
	if errors.Is(err, catalogue.ErrTooLarge) {
		c.skip(d, SkipTooLarge, "%v", err)
		return nil
	}
	return err
}

// compareCatalogue compares the catalogue of a day with two listings, and says how it differs from both. As long as its
// version is the same, so is its content.
func (s *store) compareCatalogue(ctx context.Context, d day) (difference, etag string, err error) {
	q := search{s, storage.Filters{}, true}
	whole, _ := stretch(d, q.f)
	for _, size := range pageSizes() {
		c := &catalogued{search: q, window: whole}
		err := c.open(ctx)
		if err != nil || etag != "" && c.etag != etag {
			return "", etag, err // built anew meanwhile
		}
		etag = c.etag
		plans := listing.Day[candidate]{Span: whole.Span, Source: s.plansOf(d, q.f)}
		listed, stop := iter.Pull2(listing.Newest(ctx, []listing.Day[candidate]{plans}, s.pages(size)))
		difference, err = compareListings(c.All(ctx), listed)
		stop()
		if difference == "" || err != nil {
			return "", etag, err
		}
	}
	return difference, etag, nil
}

// compareListings compares the plans of a day in its catalogue with those that a listing yields, and says how they
// differ.
func compareListings(catalogued iter.Seq2[candidate, error], listed func() (candidate, error, bool)) (difference string, err error) {
	for has, err := range catalogued {
		if err != nil {
			return "", err
		}
		other, err, more := listed()
		switch {
		case err != nil:
			return "", err
		case !more:
			return fmt.Sprintf("it has plan %s, which is not listed", has.keys.plan), nil
		case has.keys.plan != other.keys.plan:
			return fmt.Sprintf("it has plan %s where plan %s is listed", has.keys.plan, other.keys.plan), nil
		case other.err != nil:
			return fmt.Sprintf("it has plan %s, of which the listing says: %v", has.keys.plan, other.err), nil
		case !same.Listed(has.result, other.result) || has.truncated != other.truncated:
			return fmt.Sprintf("its fields of plan %s are not those that are listed", has.keys.plan), nil
		}
	}
	other, err, more := listed()
	if more && err == nil {
		return fmt.Sprintf("it lacks plan %s, which is listed", other.keys.plan), nil
	}
	return "", err
}

// cataloguePlan returns what a catalogue has of a plan, from its entry in a listing.
func (f format) cataloguePlan(id uuid.UUID, entry blob.Item) (catalogue.Plan, error) {
	r, cut, err := f.parseMetadata(entry.Metadata, id, typeEntry)
	r.State.ETag = entry.ETag
	return catalogue.Plan{ListResult: r, NameCut: slices.Contains(cut, metaName), DescrCut: slices.Contains(cut, metaDescr)}, err
}

// used reports whether a budget that began at some time is used up. A budget of 0 is unlimited.
func used(budget time.Duration, began time.Time) bool {
	return budget > 0 && time.Since(began) >= budget
}
