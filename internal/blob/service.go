package blob

import (
	"context"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
)

// AccountInfo is what the service says about the account itself. A field is empty if the answer does not tell.
type AccountInfo struct {
	Kind         string // such as StorageV2
	SKU          string // such as Standard_LRS
	Hierarchical *bool  // whether the account has a hierarchical namespace
}

// AccountInfo asks for the kind, the redundancy and the namespace of the account. Until 2025, the service said 404 to
// any token: that is [Refused], too.
func (c *Client) AccountInfo(ctx context.Context) (info AccountInfo, err error) {
	err = c.do(ctx, call{op: "get account info"}, func(ctx context.Context) error {
		resp, err := c.service.GetAccountInfo(ctx, nil)
		info = AccountInfo{string(deref(resp.AccountKind)), string(deref(resp.SKUName)), resp.IsHierarchicalNamespaceEnabled}
		return err
	})
	if bloberror.HasCode(err, bloberror.ResourceNotFound) {
		err = &Error{Reason: Refused, Err: fmt.Errorf("%w: ask with the account's key or a signature; this service does not tell it to tokens", err)}
	}
	return info, err
}

// SoftDelete asks for how many days the account keeps deleted blobs: 0 if it does not keep them. told is false if
// the answer does not say. The service does not tell it of containers.
func (c *Client) SoftDelete(ctx context.Context) (days int, told bool, err error) {
	err = c.do(ctx, call{op: "get service properties"}, func(ctx context.Context) error {
		days, told = 0, false
		resp, err := c.service.GetProperties(ctx, nil)
		if err != nil || resp.DeleteRetentionPolicy == nil || resp.DeleteRetentionPolicy.Enabled == nil {
			return err
		}
		if told = true; *resp.DeleteRetentionPolicy.Enabled {
			days = int(deref(resp.DeleteRetentionPolicy.Days))
		}
		return nil
	})
	return days, told, err
}

// VersionID returns the ID of a blob's current version, or "" if the account did not keep versions when the
// blob was written.
func (c *Client) VersionID(ctx context.Context, ref Ref) (id string, err error) {
	err = c.do(ctx, call{op: "head", ref: ref}, func(ctx context.Context) error {
		resp, err := c.blobs.plain(ctx, http.MethodHead, ref, Always)
		if err == nil {
			id = resp.Header.Get("X-Ms-Version-Id")
		}
		return err
	})
	return id, err
}
