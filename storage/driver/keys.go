package driver

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// CheckKeyRecord returns [storage.ErrInvalid] with every wrong field of a key's record that is to be stored, but for holders and
// waiting plans: of each list it names the first plan that is wrong.
func CheckKeyRecord(k storage.KeyRecord) error {
	errs := []error{CheckKeyName(k.Name), checkKeyLimit("KeyRecord.Limit", k.Limit), checkKeyTime("KeyRecord.PausedUntil", k.PausedUntil)}
	var waiting []storage.Holder
	for i, w := range k.Waiting {
		waiting = append(waiting, storage.Holder{Plan: w.Plan, Limit: w.Limit})
		errs = append(errs, checkKeyTime(fmt.Sprintf("KeyRecord.Waiting[%d].Until", i), w.Until))
	}
	errs = append(errs, checkHolders("KeyRecord.Holders", k.Holders, storage.MaxHolders), checkHolders("KeyRecord.Waiting", waiting, storage.MaxWaiting))
	return errors.Join(append(errs, invalid(workflow.CheckAttribution(k.By)))...)
}

func checkKeyTime(field string, t time.Time) error {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return Invalid(field, "the year %d can't be written as RFC 3339", y)
	}
	return nil
}

func checkKeyLimit(field string, limit int) error {
	if limit < 0 || limit > workflow.MaxKeyLimit {
		return Invalid(field, "%d is not between 0 and %d", limit, workflow.MaxKeyLimit)
	}
	return nil
}

func checkHolders(name string, list []storage.Holder, most int) error {
	if len(list) > most {
		return Invalid(name, "has %d plans, at most %d are allowed", len(list), most)
	}
	seen := make(map[uuid.UUID]bool, len(list))
	for i, h := range list {
		field := fmt.Sprintf("%s[%d]", name, i)
		switch {
		case !workflow.IsV7(h.Plan):
			return Invalid(field+".Plan", "%s is not a UUIDv7", h.Plan)
		case seen[h.Plan]:
			return Invalid(field+".Plan", "%s is there twice", h.Plan)
		}
		seen[h.Plan] = true
		if err := checkKeyLimit(field+".Limit", h.Limit); err != nil {
			return err
		}
	}
	return nil
}

// CheckKeyName returns [storage.ErrInvalid] for a name that no key's record can have.
func CheckKeyName(name string) error {
	if name == "" || len(name) > storage.MaxKeyRecordName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return Invalid("KeyRecord.Name", "%.100q is not one line of 1 to %d bytes of UTF-8", name, storage.MaxKeyRecordName)
	}
	return nil
}

// CheckRemovedKey returns [storage.ErrInvalid] for a name that no key's record can have, and for an empty version.
func CheckRemovedKey(name string, version storage.Version) error {
	return errors.Join(CheckKeyName(name), CheckRecordVersion(version))
}

// ListedKey returns what a listing shows of a key's record.
func ListedKey(k storage.KeyRecord) storage.ListedKey {
	return storage.ListedKey{
		Name: k.Name, Limit: k.Limit, PausedUntil: k.PausedUntil, By: k.By, Searched: k.Searched, Holders: len(k.Holders), Version: k.Version, Stored: k.Stored,
	}
}
