package driver

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// CheckKeyRecord returns [storage.ErrInvalid] with every wrong field of a key's record that is to be stored, but for holders: of
// these it names the first that is wrong.
func CheckKeyRecord(k storage.KeyRecord) error {
	errs := []error{CheckKeyName(k.Name), checkKeyLimit("KeyRecord.Limit", k.Limit), checkHolders(k.Holders)}
	if y := k.PausedUntil.UTC().Year(); y < 1 || y > 9999 {
		errs = append(errs, Invalid("KeyRecord.PausedUntil", "the year %d can't be written as RFC 3339", y))
	}
	return errors.Join(append(errs, invalid(workflow.CheckAttribution(k.By)))...)
}

func checkKeyLimit(field string, limit int) error {
	if limit < 0 || limit > workflow.MaxKeyLimit {
		return Invalid(field, "%d is not between 0 and %d", limit, workflow.MaxKeyLimit)
	}
	return nil
}

func checkHolders(list []storage.Holder) error {
	if len(list) > storage.MaxHolders {
		return Invalid("KeyRecord.Holders", "has %d plans, at most %d are allowed", len(list), storage.MaxHolders)
	}
	seen := make(map[uuid.UUID]bool, len(list))
	for i, h := range list {
		field := fmt.Sprintf("KeyRecord.Holders[%d]", i)
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
