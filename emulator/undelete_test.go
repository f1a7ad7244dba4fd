package emulator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/planvault/azblob/emulator"
)

// gone lists a container with deleted blobs and snapshots: "a" is a blob, "a?" a deleted one, and "a@" a snapshot.
func gone(t *testing.T, c *container.Client) (list string) {
	t.Helper()
	page, err := c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Include: container.ListBlobsInclude{Deleted: true, Snapshots: true, Metadata: true}}).NextPage(t.Context())
	must(t, err)
	for _, item := range page.Segment.BlobItems {
		list += *item.Name
		switch {
		case item.Snapshot != nil && *item.Snapshot != "":
			list += "@"
		case item.Deleted != nil && *item.Deleted:
			list += "?"
			if item.Metadata["k"] == nil || item.Properties.DeletedTime == nil || *item.Properties.RemainingRetentionDays != 7 && *item.Properties.RemainingRetentionDays != 6 {
				t.Errorf("the deleted blob is listed with %+v", item.Properties)
			}
		}
	}
	return list
}

func TestUndeleteBlob(t *testing.T) {
	now := time.Now()
	s := emulator.New(emulator.WithSoftDelete(), emulator.WithClock(func() time.Time { return now }))
	c := plans(t, s.Transport())
	b := c.NewBlockBlobClient("a")
	put := func(text string) {
		t.Helper()
		must(t, errOf(b.UploadBuffer(t.Context(), []byte(text), nil)))
		must(t, errOf(b.SetMetadata(t.Context(), map[string]*string{"k": to.Ptr(text)}, nil)))
	}
	put("one")
	put("two")
	was, err := b.GetProperties(t.Context(), nil)
	must(t, err)
	must(t, errOf(b.Delete(t.Context(), nil)))
	if got := gone(t, c); got != "a?" {
		t.Errorf("after the delete: %s", got)
	}
	must(t, errOf(b.Undelete(t.Context(), nil)))
	is, err := b.GetProperties(t.Context(), nil)
	if must(t, err); *is.ETag != *was.ETag || gone(t, c) != "a@a" || *is.Metadata["K"] != "two" {
		t.Errorf("%+v came back as %+v of %s", was, is, gone(t, c))
	}
	if _, err := b.Delete(t.Context(), nil); !bloberror.HasCode(err, bloberror.SnapshotsPresent) {
		t.Errorf("a blob with a snapshot is deleted: %v", err)
	}
	must(t, errOf(b.Delete(t.Context(), &sdk.DeleteOptions{DeleteSnapshots: to.Ptr(sdk.DeleteSnapshotsOptionTypeOnly)})))
	must(t, errOf(b.Delete(t.Context(), nil)))
	put("three") // over the deleted one
	must(t, errOf(b.Undelete(t.Context(), nil)))
	if got := gone(t, c); got != "a@a@a" {
		t.Errorf("after an undelete of what is there: %s", got)
	}
	if _, err := c.NewBlobClient("b").Undelete(t.Context(), nil); !bloberror.HasCode(err, bloberror.BlobNotFound) {
		t.Errorf("what was never there: %v", err)
	}
	must(t, errOf(b.Delete(t.Context(), &sdk.DeleteOptions{DeleteSnapshots: to.Ptr(sdk.DeleteSnapshotsOptionTypeInclude)})))
	now = now.Add(7 * 24 * time.Hour)
	r, _ := raw(t, s, "PUT", "/plans/a?comp=undelete", "", nil) // the dates of the SDK's requests are too old
	_, list := raw(t, s, "GET", "/plans?restype=container&comp=list&include=deleted", "", nil)
	if r.Header.Get("X-Ms-Error-Code") != "BlobNotFound" || strings.Contains(list, "<Blob>") {
		t.Errorf("after seven days: %s, %s", r.Status, list)
	}
}

func TestRestoreContainer(t *testing.T) {
	now := time.Now()
	s := emulator.New(emulator.WithSoftDelete(), emulator.WithClock(func() time.Time { return now }))
	c := plans(t, s.Transport())
	must(t, errOf(c.SetMetadata(t.Context(), &container.SetMetadataOptions{Metadata: map[string]*string{"k": to.Ptr("v")}})))
	must(t, errOf(c.NewBlockBlobClient("a").UploadBuffer(t.Context(), []byte("x"), nil)))
	must(t, errOf(c.Delete(t.Context(), nil)))
	account := newClient(t, s.Transport()).ServiceClient()
	deleted := func() (versions []string) {
		page, err := account.NewListContainersPager(&service.ListContainersOptions{Include: service.ListContainersInclude{Deleted: true}}).NextPage(t.Context())
		must(t, err)
		for _, item := range page.ContainerItems {
			if item.Deleted != nil && *item.Deleted {
				versions = append(versions, *item.Version)
			}
		}
		return versions
	}
	// The SDK would take the first part of the path for the name, which is the account's here.
	restore := func(s *emulator.Server, version string) (code string) {
		r, _ := raw(t, s, "PUT", "/plans?restype=container&comp=undelete", "", map[string]string{"x-ms-deleted-container-name": "plans", "x-ms-deleted-container-version": version})
		return r.Header.Get("X-Ms-Error-Code")
	}
	versions := deleted()
	if len(versions) != 1 {
		t.Fatalf("the deleted containers are %q", versions)
	}
	if code := restore(s, versions[0]); code != "ContainerBeingDeleted" {
		t.Errorf("at once: %s", code)
	}
	now = now.Add(time.Minute)
	other := s.Clone()
	if code := restore(s, versions[0]); code != "" {
		t.Error(code)
	}
	p, err := c.GetProperties(t.Context(), nil)
	if must(t, err); *p.Metadata["K"] != "v" || gone(t, c) != "a" || len(deleted()) != 0 {
		t.Errorf("it came back with %v, %s", p.Metadata, gone(t, c))
	}
	if code := restore(s, versions[0]); code != "ContainerNotFound" {
		t.Errorf("twice: %s", code)
	}
	if code := restore(other, "01D"); code != "ContainerNotFound" {
		t.Errorf("another version: %s", code)
	}
	if code := restore(other, versions[0]); code != "" {
		t.Errorf("in the clone: %s", code)
	}
}
