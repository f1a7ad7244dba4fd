package azblob

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/catalogue"
	"github.com/planvault/azblob/storage"
)

// CheckOptions are the options of [Vault.Check].
type CheckOptions struct {
	// After and Before select the days (UTC) that have any time after After and before Before. A zero time is
	// no bound.
	After, Before time.Time
	// Progress is called after each day, newest first. It may be nil.
	Progress func(storage.Progress)
}

// CheckReport is what [Vault.Check] found.
type CheckReport struct {
	// Days, Plans and Blobs are the numbers of containers, whole plans and blobs that were looked at. Bytes
	// is how much was read.
	Days, Plans, Blobs int
	Bytes              int64
	// InProgress is the number of plans with unfinished work that is recent, so that its writer may still be
	// running.
	InProgress int
	// Foreign is the number of plans, and of remains of plans, that another program wrote. They are no problems, and
	// Plans does not count them.
	Foreign int
	// Wait is how long it takes until all of these plans can be judged.
	Wait time.Duration
	// Problems are the broken invariants. A sound store has none.
	Problems []Problem
}

// Check reads everything that is stored in the selected days, and the records of members and stop requests,
// and reports each broken invariant. It changes nothing. It may run beside other calls: it looks a second time
// at what seems broken, and only counts what is too recent to be judged.
//
// A problem is not an error. An error says that Check did not finish; the report then has what was found
// before.
func (v *Vault) Check(ctx context.Context, o CheckOptions) (report CheckReport, err error) {
	err = v.call(ctx, "Check", uuid.Nil, func(ctx context.Context) error {
		if err := checkDays("CheckOptions.After", o.After, o.Before); err != nil {
			return err
		}
		days, err := v.selectDays(ctx, o.After, o.Before)
		if err != nil {
			return err
		}
		c := checking{v.store, &report}
		for i, d := range days {
			report.Days++
			if err := c.checkDay(ctx, d); err != nil {
				return err
			}
			if o.Progress != nil {
				o.Progress(storage.Progress{Done: int64(i + 1), Total: int64(len(days))})
			}
		}
		return c.checkRecords(ctx)
	})
	return report, err
}

// checking is a Check that is running.
type checking struct {
	*store
	report *CheckReport
}

// checkRecords checks the control container. Like a day, it counts as absent for an identity that has rights
// to some containers only.
func (c checking) checkRecords(ctx context.Context) error {
	control := blob.Ref{Container: c.prefix.control()}
	for item, err := range c.listPrefix(ctx, "list members", control, false) {
		if blob.IsForbidden(err) && c.probing > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		c.report.Blobs++
		found, err := c.checkRecord(ctx, blob.Ref{Container: control.Container, Name: item.Name})
		if err != nil {
			return err
		}
		c.report.Bytes += found.bytes
		c.report.Problems = append(c.report.Problems, found.problems...)
	}
	return nil
}

// checkRecord compares a record with its name and its metadata. A record that was removed meanwhile is no
// problem.
func (c checking) checkRecord(ctx context.Context, ref blob.Ref) (verdict, error) {
	x := planCheck{store: c.store}
	name, ok := parseRecordName(ref.Name)
	if !ok {
		x.bad(Stray, ref, "is not a name that a vault writes")
		return x.verdict, nil
	}
	if name.role == roleStop {
		x.keys.plan = name.id
	}
	body, p, err := c.client.Get(ctx, ref)
	switch {
	case blob.Is(err, blob.Absent, blob.AbsentContainer):
		return x.verdict, nil
	case blob.Is(err, blob.Ended, blob.Unreachable, blob.Refused):
		return x.verdict, blobError("read", ref, err)
	}
	x.bytes = int64(len(body))
	var r record
	if err == nil {
		r, err = x.format.decodeRecord(body, name)
	}
	if err != nil {
		x.bad(Unreadable, ref, "%v", err)
	} else {
		x.metadata(ref, x.format.recordMetadata(r, p.Metadata[blob.WriteID]), nil, blob.Item{Properties: p})
	}
	return x.verdict, nil
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
		bad(Disagreement, "%s: Catalogue with Verify builds it anew", difference)
		return nil
	}
	switch damage := (*catalogue.Damage)(nil); {
	case errors.As(err, &damage), blob.Is(err, blob.Damaged, blob.Refused):
		bad(Unreadable, "%v: Catalogue with Verify builds it anew", err)
	case !isUnusable(err):
		return err
	}
	return nil // it is a placeholder, or of newer code
}

// checkedAtOnce is how many plans of a day are checked at the same time, because each is in memory as a whole.
const checkedAtOnce = 64

func (c checking) checkDay(ctx context.Context, d day) error {
	dropping := false
	stray := func(name, detail string) {
		c.report.Blobs++
		switch {
		case detail == isDropping:
			dropping = true
			return
		case detail == isOthers:
			if isEntry(name) {
				c.report.Foreign++
			}
			return
		}
		c.report.Problems = append(c.report.Problems, Problem{Kind: Stray, Blob: blob.Ref{Container: d.container, Name: name}.String(), Detail: detail})
	}
	catalogued, err := c.strays(ctx, d, stray)
	if catalogued {
		c.report.Blobs++
	}
	if err == nil && (catalogued || d.hinted) { // a listing of names may have missed it
		err = c.checkCatalogue(ctx, d)
	}
	if err != nil {
		return err
	}
	var plans []planBlobs
	judge := func() error {
		verdicts := make([]verdict, len(plans))
		err := c.parallel(len(plans), func(i int) (err error) {
			verdicts[i], err = c.checkTwice(ctx, plans[i])
			return err
		})
		for i, found := range verdicts {
			c.report.Blobs += len(plans[i].all())
			c.report.Bytes += found.bytes
			c.report.Problems = append(c.report.Problems, found.problems...)
			switch {
			case found.foreign:
				c.report.Foreign++
			case plans[i].committed():
				c.report.Plans++
			}
			if found.inProgress {
				c.report.InProgress++
				c.report.Wait = max(c.report.Wait, found.wait)
			}
		}
		plans = plans[:0]
		return err
	}
	for b, err := range c.dayPlans(ctx, d, directories(), stray) {
		if blob.Is(err, blob.AbsentContainer) {
			if err = c.confirmDropped(ctx, d.container); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
		if plans = append(plans, b); len(plans) == min(c.concurrency, checkedAtOnce) {
			if err := judge(); err != nil {
				return err
			}
		}
	}
	if err := judge(); err != nil || !dropping {
		return err
	}
	return c.checkExpiry(ctx, d)
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
		c.report.Problems = append(c.report.Problems, Problem{Kind: LeftMarker, Blob: ref.String(), Detail: "an expiry of the day did not finish"})
	}
	return nil
}
