package azblob

import (
	"context"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// CheckOptions are the options of [Admin.Check].
type CheckOptions struct {
	// From and To are the first and the last day to check. The zero Day is no bound. Default: all days.
	From, To storage.Day
	// Progress is called after each day, newest first. It may be nil.
	Progress func(storage.Progress)
}

// Check reads everything that is stored in the selected days, and the records of members and stop requests,
// and reports each broken invariant. It changes nothing. It may run beside other calls: it looks a second time
// at what seems broken, and only counts what is too recent to be judged.
//
// A problem is not an error. An error says that Check did not finish; the report then has what was found
// before.
func (a *Admin) Check(ctx context.Context, o CheckOptions) (report CheckReport, err error) {
	err = a.call(ctx, "Check", uuid.Nil, func(ctx context.Context) error {
		if err := driver.CheckDays("CheckOptions.From", o.From, "To", o.To); err != nil {
			return err
		}
		days, err := a.selectDays(ctx, o.From, o.To)
		if err != nil {
			return err
		}
		c := checking{a.store, &report}
		for i, d := range days {
			report.Days++
			if err := c.checkDay(ctx, d); err != nil {
				return err
			}
			if o.Progress != nil {
				o.Progress(storage.Progress{Done: i + 1, Total: len(days)})
			}
		}
		return c.checkRecords(ctx)
	})
	return report, err
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
		x.bad(ProblemStray, ref, "is not a name that a vault writes")
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
		x.bad(ProblemUnreadable, ref, "%v", err)
	} else {
		x.metadata(ref, x.format.recordMetadata(r, p.Metadata[blob.WriteID]), nil, blob.Item{Properties: p})
	}
	return x.verdict, nil
}
