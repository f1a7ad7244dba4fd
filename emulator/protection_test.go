package emulator_test

import (
	"path/filepath"
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

// TestSecondary reads from the secondary of an account, which has what was stored at the last Replicate, and
// can't be written.
func TestSecondary(t *testing.T) {
	for _, url := range []string{pathStyle + "-secondary", "https://" + emulator.DefaultAccount + "-secondary.blob.core.windows.net"} {
		s := emulator.New(emulator.Options{})
		s.Put("plans", "a", []byte("old"), nil)
		want := func(line, outcome, body string) {
			t.Helper()
			e := inProcess(s)
			e.url = url
			r, err := parse(newMemory("plans"), line).send(t.Context(), e, inEmulator)
			must(t, err)
			got := (&exchange{reply: [2]*reply{inEmulator: r}}).outcome(inEmulator)
			if got != outcome || body != "" && string(r.body) != body {
				t.Errorf("%s, %s: %s, %s", url, line, got, r.body)
			}
		}
		const refused = "403 InsufficientAccountPermissions"
		want("get /plans/a", refused, "") // there is no secondary yet
		s.Replicate()
		s.Put("plans", "a", []byte("new"), nil)
		s.Put("plans", "b", nil, nil)
		want("get /plans/a", "200", "old")
		want("get /plans/b", "404 BlobNotFound", "")
		want("put /plans/c", refused, "")
		want("create /new", refused, "")
		if s.Len("plans") != 2 {
			t.Error("a write took effect")
		}
		s.Replicate()
		want("get /plans/a", "200", "new")
	}
}

// TestHierarchy looks at what differs on an account with a hierarchical namespace, also after a restart.
func TestHierarchy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "account")
	s, err := emulator.Open(path, emulator.Options{HierarchicalNamespace: true})
	must(t, err)
	s.PutContainer("plans", nil)
	for _, name := range []string{"a/b/1", "a-b", "top", "e/gone"} {
		send(t, s, "put /plans/"+name+" body=x")
	}
	send(t, s, "delete /plans/e/gone")
	must(t, s.Close())
	s = open(t, path, emulator.Options{HierarchicalNamespace: true})

	for line, want := range map[string]string{
		"list /plans ?include=metadata": "a/ a-b a/b/ a/b/1 e/ top", // a slash marks a directory
		"list /plans ?delimiter=/":      "a-b top; a/ e/",
	} {
		page, err := parseXML(send(t, s, line).body)
		must(t, err)
		var names, prefixes []string
		for _, item := range page.child("Blobs").Children {
			name := item.child("Name").Text
			switch item.child("Properties").child("ResourceType").Text {
			case "directory":
				if item.child("Metadata").child("hdi_isfolder").Text != "true" {
					t.Errorf("the metadata of %s does not say that it is a directory", name)
				}
				names = append(names, name+"/")
			case "file":
				names = append(names, name)
			default: // a prefix
				prefixes = append(prefixes, name)
			}
		}
		got := strings.Trim(strings.Join(names, " ")+"; "+strings.Join(prefixes, " "), "; ")
		if got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	for line, want := range map[string]string{
		"list /plans ?delimiter=-":  "400 InvalidQueryParameterValue",
		"list /plans ?prefix=top/x": "400 InvalidQueryParameterValue", // a blob in the prefix
		"delete /plans/a/b":         "400 OperationNotSupportedOnDirectory",
		"put /plans/a/b":            "409 ResourceTypeMismatch",
		"put /plans/top/x":          "409 ResourceTypeMismatch",
		"put /plans/a//x":           "501 NotImplemented",
	} {
		if got := result(t, s, line); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	if h := send(t, s, "account /").header; h.Get("x-ms-is-hns-enabled") != "true" {
		t.Error("the account says that it has no hierarchical namespace")
	}
}

// errOf drops the result of a call.
func errOf[T any](_ T, err error) error { return err }
