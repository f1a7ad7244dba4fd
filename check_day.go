package azblob

import (
	"context"
	"errors"
	"fmt"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/catalogue"
)

// checkDay checks all that is stored in a day.
func (c checking) checkDay(ctx context.Context, d day) error {
	x := &dayCheck{checking: c, day: d}
	catalogued, err := c.strays(ctx, d, x.stray)
	if catalogued {
		c.report.Blobs++
	}
	if err == nil && (catalogued || d.hinted) { // a listing of names may have missed it
		err = c.checkCatalogue(ctx, d)
	}
	if err != nil {
		return err
	}
	for b, err := range c.dayPlans(ctx, d, directories(), x.stray) {
		if blob.Is(err, blob.AbsentContainer) {
			if err = c.confirmDropped(ctx, d.container); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
		if x.plans = append(x.plans, b); len(x.plans) == min(c.concurrency, checkedAtOnce) {
			if err := x.checkPlans(ctx); err != nil {
				return err
			}
		}
	}
	if err := x.checkPlans(ctx); err != nil || !x.dropping {
		return err
	}
	return c.checkExpiry(ctx, d)
}

// dayCheck is the check of a day.
type dayCheck struct {
	checking
	day      day
	plans    []planBlobs // to be checked next, at the same time
	dropping bool        // the day has the mark of an expiry
}

// stray reports a blob that belongs to no plan of the day.
func (x *dayCheck) stray(name, detail string) {
	x.report.Blobs++
	switch {
	case detail == isDropping:
		x.dropping = true
	case detail != isOthers:
		x.report.Problems = append(x.report.Problems, Problem{Kind: ProblemStray, Blob: blob.Ref{Container: x.day.container, Name: name}.String(), Detail: detail})
	case isEntry(name):
		x.report.Foreign++
	}
}

// checkPlans checks the plans that were collected.
func (x *dayCheck) checkPlans(ctx context.Context) error {
	verdicts := make([]verdict, len(x.plans))
	err := x.parallel(len(x.plans), func(i int) (err error) {
		verdicts[i], err = x.checkTwice(ctx, x.plans[i])
		return err
	})
	for i, found := range verdicts {
		x.report.Blobs += len(x.plans[i].all())
		x.report.Bytes += found.bytes
		x.report.Problems = append(x.report.Problems, found.problems...)
		switch {
		case found.foreign:
			x.report.Foreign++
		case x.plans[i].committed():
			x.report.Plans++
		}
		if found.inProgress {
			x.report.InProgress++
			x.report.Wait = max(x.report.Wait, found.wait)
		}
	}
	x.plans = x.plans[:0]
	return err
}

// checkCatalogue compares the catalogue of a day with listings.
func (c checking) checkCatalogue(ctx context.Context, d day) error {
	ref := catalogueOf(d.container)
	bad := func(kind ProblemKind, format string, args ...any) {
		c.report.Problems = append(c.report.Problems, Problem{Kind: kind, Blob: ref.String(), Detail: fmt.Sprintf(format, args...)})
	}
	difference, etag, err := c.compareCatalogue(ctx, d)
	if difference == "" && err == nil {
		return nil
	}
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return c.confirmNoCatalogue(ctx, ref)
	}
	if etag != "" {
		now, err := c.headAgain(ctx, ref)
		if err != nil && !blob.Is(err, blob.Absent, blob.AbsentContainer) {
			return blobError("look at catalogue", ref, err)
		}
		if err != nil || now.ETag != etag {
			return nil // somebody has changed the day meanwhile
		}
	}
	if err == nil {
		bad(ProblemDisagreement, "%s: Catalogue with Verify builds it anew", difference)
		return nil
	}
	switch damage := (*catalogue.Damage)(nil); {
	case errors.As(err, &damage), blob.Is(err, blob.Damaged, blob.Refused):
		bad(ProblemUnreadable, "%v: Catalogue with Verify builds it anew", err)
	case !isUnusable(err):
		return err
	}
	return nil // it is a placeholder, or of newer code
}

// checkExpiry looks whether an Expire is at work that has marked a day.
func (c checking) checkExpiry(ctx context.Context, d day) error {
	now, err := c.client.HeadContainer(ctx, d.container)
	if err != nil && !blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return blobError("look for expiry", blob.Ref{Container: d.container}, err)
	}
	if err != nil || now.Lease == blob.LeasedForATime {
		return nil
	}
	ref := droppingOf(d.container)
	if _, err := c.client.Head(ctx, ref); err == nil {
		c.report.Problems = append(c.report.Problems, Problem{Kind: ProblemLeftMarker, Blob: ref.String(), Detail: "an expiry of the day did not finish"})
	}
	return nil
}

// checkedAtOnce is how many plans of a day are checked at the same time, because each is in memory as a whole.
const checkedAtOnce = 64
