package emulator_test

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/planvault/azblob/emulator"
)

// TestKept counts what versioning and soft delete keep of two writes and a delete of one blob,
// and of a container with another blob.
func TestKept(t *testing.T) {
	hierarchy := emulator.WithHierarchicalNamespace()
	for what, test := range map[string]struct {
		opts                []emulator.Option
		afterPut, del       int // how many copies are kept
		container           int
		permanent, versions bool
	}{
		"neither":                {permanent: true},
		"soft delete":            {opts: []emulator.Option{emulator.WithSoftDelete()}, afterPut: 1, del: 2, container: 3},
		"versioning":             {opts: []emulator.Option{emulator.WithVersioning()}, afterPut: 1, del: 2, container: 2, versions: true},
		"both":                   {opts: []emulator.Option{emulator.WithVersioning(), emulator.WithSoftDelete()}, afterPut: 1, del: 2, container: 3, versions: true},
		"soft delete, hierarchy": {opts: []emulator.Option{emulator.WithSoftDelete(), hierarchy}, del: 1, container: 2},
	} {
		s := emulator.New(test.opts...)
		c := plans(t, s.Transport())
		kept := func(when string, want int) {
			t.Helper()
			if n, size := s.Clone().Kept(); n != want || size != int64(want) {
				t.Errorf("%s, %s: %d blobs of %d bytes", what, when, n, size)
			}
		}
		b := c.NewBlockBlobClient("a")
		for range 2 {
			put, err := b.UploadBuffer(t.Context(), []byte("x"), nil)
			if must(t, err); (put.VersionID != nil) != test.versions {
				t.Errorf("%s: version %v", what, put.VersionID)
			}
		}
		kept("put", test.afterPut)
		got, err := b.DownloadStream(t.Context(), nil)
		if must(t, err); (got.VersionID != nil) != test.versions {
			t.Errorf("%s: version %v is read", what, got.VersionID)
		}
		must(t, errOf(b.Delete(t.Context(), nil)))
		kept("delete", test.del)
		must(t, errOf(b.UploadBuffer(t.Context(), []byte("x"), nil)))
		kept("put again", test.del)
		must(t, errOf(c.Delete(t.Context(), nil)))
		kept("container", test.container)
		r, _ := raw(t, s, "PUT", "/other?restype=container", "", nil)
		must(t, r.Body.Close())
		s.Put("other", "a", nil, nil)
		r, _ = raw(t, s, "DELETE", "/other/a", "", nil)
		if must(t, r.Body.Close()); r.Header.Get("X-Ms-Delete-Type-Permanent") != map[bool]string{true: "true", false: "false"}[test.permanent] {
			t.Errorf("%s: %v", what, r.Header)
		}
	}
}

// TestProtected tries every operation on blobs that are archived, or immutable.
func TestProtected(t *testing.T) {
	for what, test := range map[string]struct {
		protect        func(*emulator.Server)
		code           bloberror.Code
		read, put, del bool // what is allowed
	}{
		"archive":           {func(s *emulator.Server) { s.Archive("plans", "a") }, bloberror.BlobArchived, false, false, true},
		"retention":         {func(s *emulator.Server) { s.SetPolicy("plans", emulator.ContainerPolicy) }, bloberror.BlobImmutableDueToPolicy, true, false, false},
		"legal hold":        {func(s *emulator.Server) { s.SetPolicy("plans", emulator.HoldPolicy) }, "BlobImmutableDueToLegalHold", true, false, false},
		"version retention": {func(s *emulator.Server) { s.SetPolicy("plans", emulator.VersionPolicy) }, bloberror.BlobImmutableDueToPolicy, true, true, false},
		"no policy any more": {func(s *emulator.Server) {
			s.SetPolicy("plans", emulator.HoldPolicy)
			s.SetPolicy("plans", emulator.NoPolicy)
		}, "", true, true, true},
	} {
		s := emulator.New()
		s.Put("plans", "a", []byte("x"), nil)
		before, _ := s.Blob("plans", "a")
		test.protect(s)
		if now, _ := s.Blob("plans", "a"); now.ETag != before.ETag {
			t.Errorf("%s: another ETag", what)
		}
		s = s.Clone()
		c := plans(t, s.Transport())
		b := c.NewBlockBlobClient("a")
		check := func(op string, allowed bool, err error) {
			t.Helper()
			if allowed && err != nil || !allowed && !bloberror.HasCode(err, test.code) {
				t.Errorf("%s, %s: %v", what, op, err)
			}
		}
		_, err := b.GetProperties(t.Context(), nil)
		check("head", true, err)
		check("get", test.read, errOf(b.DownloadStream(t.Context(), nil)))
		check("put", test.put, errOf(b.UploadBuffer(t.Context(), []byte("y"), nil)))
		check("delete", test.del, errOf(b.Delete(t.Context(), nil)))
		check("another blob", true, errOf(c.NewBlockBlobClient("b").UploadBuffer(t.Context(), nil, nil)))
	}
}
