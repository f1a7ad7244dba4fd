package emulator_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/planvault/azblob/emulator"
)

// alphabet adds the blobs a/00 … a/24 and b/00 … b/24.
func alphabet(s *emulator.Server) (all []string) {
	for _, dir := range []string{"a", "b"} {
		for i := range 25 {
			name := fmt.Sprintf("%s/%02d", dir, i)
			s.Put("plans", name, []byte(name), map[string]string{"Name": name})
			all = append(all, name)
		}
	}
	return all
}

func TestListBlobsShowsProperties(t *testing.T) {
	onBothWires(t, func(t *testing.T, s *emulator.Server, c *container.Client) {
		put := mustUpload(t, c, "a", "body", nil)
		s.Put("plans", "b", nil, map[string]string{"State": `<&"'> ~`})
		page, err := c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{
			Include: container.ListBlobsInclude{Metadata: true, Tags: true, UncommittedBlobs: true},
		}).NextPage(t.Context())
		must(t, err)
		a, b := page.Segment.BlobItems[0], page.Segment.BlobItems[1]
		if `"`+string(*a.Properties.ETag)+`"` != string(*put.ETag) {
			t.Errorf("ETag is %s in the listing and %s in the answer to put", *a.Properties.ETag, *put.ETag)
		}
		if *a.Properties.ContentLength != 4 || !slices.Equal(a.Properties.ContentMD5, put.ContentMD5) ||
			!a.Properties.LastModified.Equal(*put.LastModified) || *a.Properties.ContentType != "application/octet-stream" ||
			*a.Properties.BlobType != "BlockBlob" || *a.Properties.LeaseState != "available" || len(a.Metadata) != 0 {
			t.Errorf("properties are %+v", a.Properties)
		}
		if *b.Metadata["state"] != `<&"'> ~` {
			t.Errorf("metadata is %v", b.Metadata)
		}
		page, err = c.NewListBlobsFlatPager(nil).NextPage(t.Context())
		if err != nil || page.Segment.BlobItems[1].Metadata != nil {
			t.Errorf("metadata was not requested: %v", err)
		}
	})
}
