package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/workflow"
)

// AuditEntry is a change of a store, or a look at the secrets of a plan.
type AuditEntry struct {
	// ID is a UUIDv7. Its time says when the change began, by the clock of the process that made it.
	ID uuid.UUID
	// What is the change: a word of at most 30 lower-case letters and hyphens, such as purge.
	What string
	// By says who and why. Its At is the time of the ID.
	By workflow.Attribution
	// Plans are those that the change names, at most [MaxAuditPlans]. A change of more names none.
	Plans []uuid.UUID
	// From and To are the first and the last of the days that the change is limited to. Both are zero if it is not.
	From, To Day
	// Detail has the other arguments of the change, for people, in at most [MaxDetail] bytes.
	Detail string
	// Result is empty until the change has ended. Then it says how, in at most [MaxDetail] bytes.
	Result string
	// Stored is when the entry was last recorded, by the store's clock.
	Stored time.Time
}

// MaxDetail and MaxAuditPlans bound the fields of an audit entry, so that it fits into the metadata of a blob.
const (
	MaxDetail     = workflow.MaxWhy / 2
	MaxAuditPlans = 20
)

// Audit makes a change, and has it in the audit log of the vault: before it begins, because it may not end, and again with its
// result. The entry's ID, Stored and Result are filled in, and a Detail that is too long is cut. An entry without By is
// [ErrInvalid]: whoever changes a vault says who asked.
//
// do gets a context with which other calls of Audit record nothing: a change of many parts has one entry. A vault
// without [Control] just makes the change. So does one whose log can't be written within ten seconds, or within one if
// ctx has ended: the log keeps no change from being made, and the vault's observer sees that Record failed.
func Audit(ctx context.Context, vault Vault, entry AuditEntry, do func(ctx context.Context) error) error {
	return AuditLate(ctx, vault, entry, func(ctx context.Context, begin func()) error {
		begin()
		return do(ctx)
	})
}

// AuditLate is [Audit] of a change that may turn out to have nothing to do: do calls begin before it changes anything, and the
// log has no entry if it does not. Calls of begin may be concurrent; those after the first record nothing.
func AuditLate(ctx context.Context, vault Vault, entry AuditEntry, do func(ctx context.Context, begin func()) error) error {
	log, ok := As[Control](vault)
	if audited.Is(ctx) {
		return do(ctx, func() {})
	}
	if err := errors.Join(entry.CheckWhat(), CheckBy(entry.By)); err != nil {
		return err
	}
	if !ok {
		return do(audited.Mark(ctx), func() {})
	}
	entry.ID, entry.Detail = workflow.NewV7(), auditText(entry.Detail)
	if len(entry.Plans) > MaxAuditPlans {
		entry.Plans = nil
	}
	recorded := false
	begin := sync.OnceFunc(func() { recorded = recordWithin(ctx, log, entry, logPatience) == nil })
	err := do(audited.Mark(ctx), begin)
	if entry.Result = "done"; err != nil {
		entry.Result = auditText("failed: " + Detail(err))
	}
	if recorded {
		patience := logPatience
		if ctx.Err() != nil {
			patience = lateLogPatience
		}
		_ = recordWithin(context.WithoutCancel(ctx), log, entry, patience)
	}
	return err
}

// CheckWhat returns [ErrInvalid] if What is not a word of at most 30 lower-case letters and hyphens.
func (d AuditEntry) CheckWhat() error {
	if d.What == "" || len(d.What) > 30 || strings.Trim(d.What, "abcdefghijklmnopqrstuvwxyz-") != "" {
		return invalid("What", "%.100q is not a word of at most 30 lower-case letters and hyphens", d.What)
	}
	return nil
}

// CheckBy returns [ErrInvalid] for an attribution that does not say who asks, or can't be stored.
func CheckBy(by workflow.Attribution) error {
	if strings.TrimSpace(by.By) == "" {
		return invalid("By", "is empty: say who asks for the change")
	}
	if err := workflow.CheckAttribution(by); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// logPatience is how long a change waits for the log, and lateLogPatience how long one whose context has ended.
const (
	logPatience     = 10 * time.Second
	lateLogPatience = time.Second
)

func recordWithin(ctx context.Context, log Control, entry AuditEntry, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return log.Record(ctx, entry)
}

// auditText returns one line of a text, of at most [MaxDetail] bytes.
func auditText(text string) string {
	const cut = "…"
	text = strings.TrimSpace(strings.Map(space, strings.ToValidUTF8(text, "\ufffd")))
	if len(text) > MaxDetail {
		text = strings.ToValidUTF8(text[:MaxDetail-len(cut)], "") + cut
	}
	return text
}

// AuditFilters selects audit entries. Zero fields select all.
type AuditFilters struct {
	// Plan selects the entries that name the plan, and those that name none and may have changed it.
	Plan uuid.UUID
	// Day selects the entries of changes that may be about plans of this day.
	Day Day
	// After and Before select by the time of the ID.
	After, Before time.Time
	// Limit is the most that are yielded; 0 means all.
	Limit int
}

// Match reports whether the filters select an audit entry, whatever the limit.
func (f AuditFilters) Match(d AuditEntry) bool {
	at := workflow.Time(d.ID)
	switch {
	case !f.After.IsZero() && !at.After(f.After), !f.Before.IsZero() && !at.Before(f.Before):
		return false
	case f.Plan != uuid.Nil && len(d.Plans) > 0:
		return slices.Contains(d.Plans, f.Plan) && (f.Day.IsZero() || d.mayTouch(f.Day))
	case f.Plan != uuid.Nil && !d.mayTouch(DayOf(workflow.Time(f.Plan))):
		return false
	}
	return f.Day.IsZero() || d.mayTouch(f.Day)
}

// mayTouch reports whether the change may be about plans of a day.
func (d AuditEntry) mayTouch(day Day) bool {
	if len(d.Plans) > 0 {
		return slices.ContainsFunc(d.Plans, func(id uuid.UUID) bool { return DayOf(workflow.Time(id)) == day })
	}
	return d.From.IsZero() || !day.Before(d.From) && !day.After(d.To)
}
