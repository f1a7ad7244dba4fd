package driver

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// maxMemberName is how many bytes the name of a member may have.
const maxMemberName = 1000

// CheckNewMember returns [storage.ErrInvalid] with every wrong field of a new member's record: an ID that is
// not a UUIDv7, a name that is too long or not valid UTF-8, or a version. unversioned says that the vault
// accepts updates without versions. Such a vault has no members, because those updates would take effect
// after a takeover.
func CheckNewMember(m storage.Member, unversioned bool) error {
	errs := memberErrors(m)
	if m.Version != "" {
		errs = append(errs, Invalid("Member.Version", "%.100q is set: a new record has no version", m.Version))
	}
	return errors.Join(append(errs, CheckFenced(unversioned))...)
}

// CheckRenewedMember returns [storage.ErrInvalid] with every wrong field of a record that is to replace the
// one with its version.
func CheckRenewedMember(m storage.Member) error {
	return errors.Join(append(memberErrors(m), CheckRecordVersion(m.Version))...)
}

func memberErrors(m storage.Member) (errs []error) {
	if !workflow.IsV7(m.ID) {
		errs = append(errs, Invalid("Member.ID", "%s is not a UUIDv7", m.ID))
	}
	switch {
	case !utf8.ValidString(m.Name):
		errs = append(errs, Invalid("Member.Name", "is not valid UTF-8"))
	case len(m.Name) > maxMemberName:
		errs = append(errs, Invalid("Member.Name", "has %d bytes, at most %d are allowed", len(m.Name), maxMemberName))
	}
	if y := m.Started.UTC().Year(); y < 1 || y > 9999 {
		errs = append(errs, Invalid("Member.Started", "the year %d can't be written as RFC 3339", y))
	}
	if m.TTL < 0 {
		errs = append(errs, Invalid("Member.TTL", "%v is negative", m.TTL))
	}
	if !IsPhase(m.Phase) {
		errs = append(errs, Invalid("Member.Phase", "%.100q is not a word of at most %d lower-case letters", m.Phase, maxPhase))
	}
	if n := len(m.LetGo); n > storage.MaxLetGo {
		errs = append(errs, Invalid("Member.LetGo", "has %d plans, at most %d are allowed", n, storage.MaxLetGo))
	}
	switch {
	case !utf8.ValidString(m.Trouble):
		errs = append(errs, Invalid("Member.Trouble", "is not valid UTF-8"))
	case len(m.Trouble) > storage.MaxTrouble:
		errs = append(errs, Invalid("Member.Trouble", "has %d bytes, at most %d are allowed", len(m.Trouble), storage.MaxTrouble))
	}
	return errs
}

// maxPhase is how many letters a phase may have.
const maxPhase = 20

// IsPhase reports whether a record may have a phase: no letter at all, or a word of lower-case letters.
func IsPhase(p storage.Phase) bool {
	return len(p) <= maxPhase && strings.Trim(string(p), "abcdefghijklmnopqrstuvwxyz") == ""
}

// CheckRecordVersion returns [storage.ErrInvalid] if the version of a member or a stop request is empty.
func CheckRecordVersion(version storage.Version) error {
	if version == "" {
		return Invalid("Version", "is empty: give the version that was read or stored last")
	}
	return nil
}

// CheckStop returns the error of a request to stop a plan: [storage.ErrNotFound] if no plan has the ID, and
// [storage.ErrInvalid] if a text of by is too long or not valid UTF-8.
func CheckStop(plan uuid.UUID, by workflow.Attribution) error {
	if err := CheckID(plan); err != nil {
		return err
	}
	return invalid(workflow.CheckAttribution(by))
}
