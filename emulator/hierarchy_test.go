package emulator_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/planvault/azblob/emulator"
)

// TestHierarchy looks at what differs on an account with a hierarchical namespace, also after a restart.
func TestHierarchy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "account")
	s, err := emulator.Open(path, emulator.WithHierarchicalNamespace())
	must(t, err)
	c := plans(t, s.Transport())
	for _, name := range []string{"a/b/1", "a-b", "top", "e/gone"} {
		must(t, errOf(c.NewBlockBlobClient(name).UploadBuffer(t.Context(), []byte("x"), nil)))
	}
	must(t, errOf(c.NewBlobClient("e/gone").Delete(t.Context(), nil)))
	must(t, s.Close())
	s, err = emulator.Open(path, emulator.WithHierarchicalNamespace())
	must(t, err)
	defer func() { must(t, s.Close()) }()
	c = plans(t, s.Transport())

	page, err := c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Include: container.ListBlobsInclude{Metadata: true}}).NextPage(t.Context())
	must(t, err)
	var flat []string
	for _, item := range page.Segment.BlobItems {
		name := *item.Name
		if item.Metadata["hdi_isfolder"] != nil {
			name += " is a directory of " + *item.Metadata["hdi_isfolder"]
		}
		flat = append(flat, name)
	}
	if want := []string{"a is a directory of true", "a-b", "a/b is a directory of true", "a/b/1", "e is a directory of true", "top"}; !slices.Equal(flat, want) {
		t.Errorf("flat: %q", flat)
	}
	found, err := c.NewListBlobsHierarchyPager("/", nil).NextPage(t.Context())
	must(t, err)
	var groups []string
	for _, p := range found.Segment.BlobPrefixes {
		groups = append(groups, *p.Name)
	}
	for _, item := range found.Segment.BlobItems {
		groups = append(groups, *item.Name)
	}
	if slices.Sort(groups); !slices.Equal(groups, []string{"a-b", "a/", "e/", "top"}) {
		t.Errorf("by slashes: %q", groups)
	}

	for what, test := range map[string]struct {
		err  error
		code bloberror.Code
	}{
		"another delimiter":       {errOf(c.NewListBlobsHierarchyPager("-", nil).NextPage(t.Context())), bloberror.InvalidQueryParameterValue},
		"a blob in the prefix":    {errOf(c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: to.Ptr("top/x")}).NextPage(t.Context())), bloberror.InvalidQueryParameterValue},
		"a directory removed":     {errOf(c.NewBlobClient("a/b").Delete(t.Context(), nil)), "OperationNotSupportedOnDirectory"},
		"a blob for a directory":  {errOf(c.NewBlockBlobClient("a/b").UploadBuffer(t.Context(), nil, nil)), bloberror.ResourceTypeMismatch},
		"a blob below a blob":     {errOf(c.NewBlockBlobClient("top/x").UploadBuffer(t.Context(), nil, nil)), bloberror.ResourceTypeMismatch},
		"an empty name in a path": {errOf(c.NewBlockBlobClient("a//x").UploadBuffer(t.Context(), nil, nil)), "NotImplemented"},
	} {
		if !bloberror.HasCode(test.err, test.code) {
			t.Errorf("%s: %v", what, test.err)
		}
	}
	info, err := newClient(t, s.Transport()).ServiceClient().GetAccountInfo(t.Context(), nil)
	if must(t, err); !*info.IsHierarchicalNamespaceEnabled {
		t.Error("the account says that it has no hierarchical namespace")
	}
	_, text := raw(t, s, "GET", "/plans?restype=container&comp=list", "", nil)
	if strings.Count(text, "<ResourceType>directory</ResourceType>") != 3 || strings.Count(text, "<ResourceType>file</ResourceType>") != 3 {
		t.Errorf("%s", text)
	}
}

// errOf drops the result of a call.
func errOf[T any](_ T, err error) error { return err }
