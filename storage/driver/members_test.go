package driver_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

func TestCheckMember(t *testing.T) {
	for _, test := range []struct {
		name    string
		edit    func(m *storage.Member)
		problem string // "" if the record is good
	}{
		{"good", func(*storage.Member) {}, ""},
		{"a long name", func(m *storage.Member) { m.Name = strings.Repeat("a", driver.MaxMemberName) }, ""},
		{"no start", func(m *storage.Member) { m.Started = time.Time{} }, ""},
		{"no ID", func(m *storage.Member) { m.ID = uuid.Nil }, "Member.ID: 00000000-0000-0000-0000-000000000000 is not a UUIDv7"},
		{"another ID", func(m *storage.Member) { m.ID = uuid.New() }, "is not a UUIDv7"},
		{"a name that is too long", func(m *storage.Member) { m.Name = strings.Repeat("a", driver.MaxMemberName+1) }, "Member.Name: has 1001 bytes"},
		{"a name that is no text", func(m *storage.Member) { m.Name = "\xff" }, "Member.Name: is not valid UTF-8"},
		{"a start that can't be written", func(m *storage.Member) { m.Started = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, "Member.Started: the year 10000"},
		{"a negative TTL", func(m *storage.Member) { m.TTL = -1 }, "Member.TTL: -1ns is negative"},
	} {
		fresh := storage.Member{ID: workflow.NewV7(), Name: "план", Started: time.Now()}
		test.edit(&fresh)
		renewed := fresh
		renewed.Version = "0x1"
		for call, err := range map[string]error{
			"CheckNewMember": driver.CheckNewMember(fresh, false), "CheckRenewedMember": driver.CheckRenewedMember(renewed),
		} {
			if good := test.problem == ""; good != (err == nil) || !good && (!errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), test.problem)) {
				t.Errorf("%s: %s: got %v, want %q", test.name, call, err, test.problem)
			}
		}
	}

	m := storage.Member{ID: workflow.NewV7()}
	if err := driver.CheckNewMember(m, true); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("a vault without versions: %v", err)
	}
	if err := driver.CheckRenewedMember(m); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("a renewal without a version: %v", err)
	}
	if m.Version = "0x1"; !errors.Is(driver.CheckNewMember(m, false), storage.ErrInvalid) {
		t.Error("a new record may have a version")
	}
}
