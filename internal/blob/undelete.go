package blob

import (
	"context"
	"iter"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
)

// What an account with soft delete keeps of blobs and containers that were deleted.

// KeptItem is what an account has under the name of a blob: the blob, a deleted blob, a snapshot or a deleted snapshot.
type KeptItem struct {
	Item
	Deleted, Snapshot bool
	At                time.Time // of the deletion
}

// ListKept yields the blobs of a container whose names have a prefix, the deleted ones, and the snapshots that were not
// deleted. Versions are not among them. The last pair may have an error.
func (c *Client) ListKept(ctx context.Context, ref Ref) iter.Seq2[[]KeptItem, error] {
	opts := container.ListBlobsFlatOptions{
		Include: container.ListBlobsInclude{Metadata: true, Deleted: true, Snapshots: true}, Prefix: &ref.Name, ResponseFormat: format,
	}
	return pages(func(marker *string) ([]KeptItem, string, error) {
		opts.Marker = marker
		got, err := c.page(withKept(ctx), call{op: "list", ref: ref}, nil, func(ctx context.Context, _ *listing) error {
			_, err := c.container(ref).NewListBlobsFlatPager(&opts).NextPage(ctx)
			return err
		})
		return got.kept, got.next, err
	})
}

// keptKey marks the context of a listing that wants all items.
type keptKey struct{}

func withKept(ctx context.Context) context.Context { return context.WithValue(ctx, keptKey{}, true) }

// Undelete restores a deleted blob, with all its deleted snapshots. It succeeds if the blob is there. The error is
// [Absent] if no deleted blob is kept.
func (c *Client) Undelete(ctx context.Context, ref Ref) error {
	client := c.container(ref).NewBlockBlobClient(ref.Name)
	return c.do(ctx, call{op: "undelete", ref: ref, write: true}, func(ctx context.Context) error {
		_, err := client.Undelete(ctx, nil)
		return err
	})
}

// DeleteSnapshots deletes the snapshots of a blob of a version, which would keep it from being deleted, and not the blob.
func (c *Client) DeleteSnapshots(ctx context.Context, ref Ref, etag string) error {
	client := c.container(ref).NewBlockBlobClient(ref.Name)
	opts := &sdk.DeleteOptions{DeleteSnapshots: to.Ptr(sdk.DeleteSnapshotsOptionTypeOnly), AccessConditions: IfMatch(etag).sdk()}
	return c.do(ctx, call{op: "delete snapshots", ref: ref, write: true}, func(ctx context.Context) error {
		_, err := client.Delete(ctx, opts)
		return err
	})
}

// DeletedContainer is a container that was deleted and can be restored.
type DeletedContainer struct {
	Name, Version string
	At            time.Time // when it was deleted
}

// ListDeletedContainers yields the deleted containers whose names have a prefix, page by page.
func (c *Client) ListDeletedContainers(ctx context.Context, prefix string) iter.Seq2[[]DeletedContainer, error] {
	opts := service.ListContainersOptions{Prefix: &prefix, Include: service.ListContainersInclude{Deleted: true}}
	return pages(func(marker *string) ([]DeletedContainer, string, error) {
		opts.Marker = marker
		got, err := c.page(withKept(ctx), call{op: "list containers", ref: Ref{Container: prefix}}, nil, func(ctx context.Context, _ *listing) error {
			_, err := c.service.NewListContainersPager(&opts).NextPage(ctx)
			return err
		})
		return got.deleted, got.next, err
	})
}

// RestoreContainer restores a deleted container of a version under its name. The
// error is [AbsentContainer] if the version is not kept, and [Mismatch] if there is another container of the name.
func (c *Client) RestoreContainer(ctx context.Context, name, version string) error {
	ref := Ref{Container: name}
	// The SDK takes the first part of the URL's path for the name, which is that of the account at some endpoints.
	ctx = context.WithValue(ctx, restoredKey{}, name)
	return c.do(ctx, call{op: "restore container", ref: ref, write: true}, func(ctx context.Context) error {
		_, err := c.container(ref).Restore(ctx, version, nil)
		return err
	})
}

// restoredKey is the context key of the name of a container that is to be restored.
type restoredKey struct{}

// restored is a policy that names the container that is to be restored.
type restored struct{}

func (restored) Do(req *policy.Request) (*http.Response, error) {
	if name, ok := req.Raw().Context().Value(restoredKey{}).(string); ok {
		req.Raw().Header["x-ms-deleted-container-name"] = []string{name}
	}
	return req.Next()
}
