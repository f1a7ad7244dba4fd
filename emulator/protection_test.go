package emulator_test

import (
	"strings"
	"testing"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/merge"
)

// TestKept counts what versioning and soft delete keep of two writes and a delete of one blob, and of a
// container with another blob.
func TestKept(t *testing.T) {
	hierarchy, soft, versioning := emulator.Options{HierarchicalNamespace: true}, emulator.Options{SoftDelete: true}, emulator.Options{Versioning: true}
	for what, test := range map[string]struct {
		opts                []emulator.Options
		put, del, container int // how many copies are kept
		versions            bool
	}{
		"neither":                {},
		"soft delete":            {opts: []emulator.Options{soft}, put: 1, del: 2, container: 3},
		"versioning":             {opts: []emulator.Options{versioning}, put: 1, del: 2, container: 2, versions: true},
		"both":                   {opts: []emulator.Options{versioning, soft}, put: 1, del: 2, container: 3, versions: true},
		"soft delete, hierarchy": {opts: []emulator.Options{soft, hierarchy}, del: 1, container: 2},
	} {
		s := emulator.New(merge.Fields(test.opts...))
		s.PutContainer("plans", nil)
		for _, step := range []struct {
			line   string
			kept   int
			header string // that names a version
		}{
			{"put /plans/a body=x", 0, "x-ms-version-id"},
			{"put /plans/a body=x", test.put, "x-ms-version-id"},
			{"get /plans/a", test.put, "x-ms-version-id"},
			{"delete /plans/a", test.del, ""},
			{"put /plans/a body=x", test.del, "x-ms-version-id"},
			{"drop /plans", test.container, ""},
		} {
			h := send(t, s, step.line).header
			if n, size := s.Clone().Kept(); n != step.kept || size != int64(step.kept) {
				t.Errorf("%s, %s: %d blobs of %d bytes are kept, want %d", what, step.line, n, size, step.kept)
			}
			if step.header != "" && (h.Get(step.header) != "") != test.versions {
				t.Errorf("%s, %s: version %q", what, step.line, h.Get(step.header))
			}
			permanent := map[bool]string{true: "true", false: "false"}[test.del == 0]
			if strings.HasPrefix(step.line, "delete") && h.Get("x-ms-delete-type-permanent") != permanent {
				t.Errorf("%s: %v", what, h)
			}
		}
	}
}

// TestProtected tries every operation on blobs that are archived, or immutable.
func TestProtected(t *testing.T) {
	policy := func(p emulator.Policy) func(*emulator.Server) {
		return func(s *emulator.Server) { s.SetPolicy("plans", p) }
	}
	const held, immutable, archived = "409 BlobImmutableDueToLegalHold", "409 BlobImmutableDueToPolicy", "409 BlobArchived"
	for what, test := range map[string]struct {
		protect       func(*emulator.Server)
		get, put, del string
	}{
		"archive":           {func(s *emulator.Server) { s.Archive("plans", "a") }, archived, archived, "202"},
		"retention":         {policy(emulator.ContainerPolicy), "200", immutable, immutable},
		"legal hold":        {policy(emulator.HoldPolicy), "200", held, held},
		"version retention": {policy(emulator.VersionPolicy), "200", "201", immutable},
		"no policy any more": {func(s *emulator.Server) {
			s.SetPolicy("plans", emulator.HoldPolicy)
			s.SetPolicy("plans", emulator.NoPolicy)
		}, "200", "201", "202"},
	} {
		s := emulator.New(emulator.Options{})
		s.Put("plans", "a", []byte("x"), nil)
		before, _ := s.Blob("plans", "a")
		test.protect(s)
		if now, _ := s.Blob("plans", "a"); now.ETag != before.ETag {
			t.Errorf("%s: another ETag", what)
		}
		s = s.Clone()
		for _, step := range [][2]string{
			{"head /plans/a", "200"},
			{"get /plans/a", test.get},
			{"put /plans/a body=y", test.put},
			{"delete /plans/a", test.del},
			{"put /plans/b", "201"},
		} {
			if got := result(t, s, step[0]); got != step[1] {
				t.Errorf("%s, %s: %s, want %s", what, step[0], got, step[1])
			}
		}
	}
}
