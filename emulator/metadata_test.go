package emulator_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/planvault/azblob/emulator"
)

// TestMetadataIsKept writes metadata of every length that the packed form encodes differently, and reads it
// back.
func TestMetadataIsKept(t *testing.T) {
	s := emulator.New()
	c := plans(t, s.Transport())
	for name, want := range map[string]map[string]string{
		"none":  nil,
		"empty": {"a": ""},
		"short": {"b": "2", "a": "1", "c": strings.Repeat("x", 127)},
		"long":  {"a": strings.Repeat("x", 128), "b": strings.Repeat("y", 8000-128)},
		"huge":  {"a": strings.Repeat("x", 1<<14), "b": "\x00 and \xff"},
	} {
		s.Put("plans", name, nil, want)
		if b, _ := s.Blob("plans", name); !maps.Equal(b.Metadata, want) {
			t.Errorf("%s: stored as %q", name, b.Metadata)
		}
		if name == "huge" {
			continue // no request could carry it
		}
		p, err := c.NewBlobClient(name).GetProperties(t.Context(), nil)
		must(t, err)
		got := map[string]string{}
		for k, v := range p.Metadata {
			got[strings.ToLower(k)] = *v
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: read as %q", name, got)
		}
	}
	s.Put("plans", "case", nil, map[string]string{"PlanID": "1"})
	if b, _ := s.Blob("plans", "case"); b.Metadata["planid"] != "1" {
		t.Errorf("case: stored as %q", b.Metadata)
	}
}
