package blob

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// errDelimiter means that the service does not group names by the delimiter of a listing. Accounts with a
// hierarchical namespace support only "/":
// https://learn.microsoft.com/azure/storage/blobs/data-lake-storage-known-issues
var errDelimiter = errors.New("the service does not group names by this delimiter")

// ListGroups yields the groups of a container's blobs, page by page. A group is the part of a name up to and
// including the first delimiter after o.Prefix; each group appears once. A page ends with the names that have
// no delimiter. Of the options, ListGroups uses Prefix, StartFrom and MaxResults. The last pair may have an error, as with
// [Client.List].
//
// If the service does not group by the delimiter, ListGroups lists all names and groups them itself. That
// takes a request for each [MaxPage] blobs. The client remembers such delimiters.
func (c *Client) ListGroups(ctx context.Context, containerName string, o ListOptions, delimiter string) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		if _, known := c.ungrouped.Load(delimiter); !known {
			began, refused := false, false
			for groups, err := range c.listGroups(ctx, containerName, o, delimiter) {
				if refused = !began && errors.Is(err, errDelimiter); refused {
					break
				}
				if !yield(groups, err) {
					return
				}
				began = began || len(groups) > 0
			}
			if !refused {
				return
			}
		}
		last := ""
		for page, err := range c.List(ctx, containerName, ListOptions{Prefix: o.Prefix, StartFrom: o.StartFrom}) {
			var groups []string
			for _, item := range page.Items {
				if group := groupOf(item.Name, o.Prefix, delimiter); group != last {
					groups, last = append(groups, group), group
				}
			}
			if err == nil { // the refusal was about the delimiter
				c.ungrouped.Store(delimiter, true)
			}
			if !yield(groups, err) {
				return
			}
		}
	}
}

// listGroups lets the service group the names. The error of a service that does not is errDelimiter.
func (c *Client) listGroups(ctx context.Context, containerName string, o ListOptions, delimiter string) iter.Seq2[[]string, error] {
	ref := Ref{containerName, o.Prefix}
	opts := container.ListBlobsHierarchyOptions{Prefix: &o.Prefix, ResponseFormat: format}
	if o.StartFrom != "" {
		opts.StartFrom = &o.StartFrom
	}
	if o.MaxResults > 0 {
		opts.MaxResults = new(int32(o.MaxResults))
	}
	return pages(func(marker *string) ([]string, string, error) {
		opts.Marker = marker
		got, err := c.page(ctx, call{op: "list", ref: ref}, nil, func(ctx context.Context, page *listing) error {
			_, err := c.container(ref).NewListBlobsHierarchyPager(delimiter, &opts).NextPage(ctx)
			if refusesRequest(err) {
				return fmt.Errorf("%w: %w", errDelimiter, err)
			}
			for _, item := range page.blobs {
				page.groups = append(page.groups, item.Name)
			}
			if slices.ContainsFunc(page.groups, func(name string) bool { return groupOf(name, o.Prefix, delimiter) != name }) {
				return errDelimiter // it was ignored
			}
			return err
		})
		return got.groups, got.next, err
	})
}

// groupOf returns the part of a name up to and including the first delimiter after the prefix.
func groupOf(name, prefix, delimiter string) string {
	rest := strings.TrimPrefix(name, prefix)
	if i := strings.Index(rest, delimiter); i >= 0 {
		return name[:len(name)-len(rest)+i+len(delimiter)]
	}
	return name
}

// refusesRequest reports whether the service refuses a request for what it asks for, and not for who asks.
// Which status and code accounts with a hierarchical namespace give is not documented.
func refusesRequest(err error) bool {
	var answer *azcore.ResponseError
	return errors.As(err, &answer) && judge(err).reason == Refused && answer.StatusCode != http.StatusUnauthorized && answer.StatusCode != http.StatusForbidden
}
