package driver

import (
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// CheckAuditEntry returns [storage.ErrInvalid] with the first wrong field of an audit entry that is to be recorded.
func CheckAuditEntry(d storage.AuditEntry) error {
	if err := invalid(workflow.CheckAttribution(d.By)); err != nil {
		return err
	}
	for _, text := range []struct{ field, text string }{{"Detail", d.Detail}, {"Result", d.Result}} {
		if len(text.text) > storage.MaxDetail {
			return Invalid(text.field, "has %d bytes, at most %d are allowed", len(text.text), storage.MaxDetail)
		}
		if err := invalid(workflow.CheckAttribution(workflow.Attribution{Why: text.text})); err != nil {
			return Invalid(text.field, "has a character that is not allowed")
		}
	}
	switch {
	case !workflow.IsV7(d.ID):
		return Invalid("ID", "%s is not a UUIDv7", d.ID)
	case d.CheckWhat() != nil:
		return d.CheckWhat()
	case len(d.Plans) > storage.MaxAuditPlans:
		return Invalid("Plans", "has %d plans, at most %d are allowed", len(d.Plans), storage.MaxAuditPlans)
	case d.From.IsZero() != d.To.IsZero():
		return Invalid("From", "%v and To, %v, are not both days", d.From, d.To)
	}
	for _, id := range d.Plans {
		if id == uuid.Nil {
			return Invalid("Plans", "has a nil ID")
		}
	}
	return CheckDays("From", d.From, "To", d.To)
}

// CheckAuditFilters returns [storage.ErrInvalid] for a negative limit.
func CheckAuditFilters(f storage.AuditFilters) error {
	if f.Limit < 0 {
		return Invalid("AuditFilters.Limit", "%d is negative", f.Limit)
	}
	return nil
}

// RecordedAuditEntry returns an audit entry as a vault keeps it: with the time of its ID, and times in UTC.
func RecordedAuditEntry(d storage.AuditEntry, stored time.Time) storage.AuditEntry {
	d.By = workflow.Attribution{By: d.By.By, Why: d.By.Why, At: workflow.Time(d.ID)}
	d.Stored = stored.UTC()
	d.Plans = append([]uuid.UUID(nil), d.Plans...)
	return d
}
