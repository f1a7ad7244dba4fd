package emulator_test

import (
	"fmt"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/planvault/azblob/emulator"
)

// BenchmarkPutGet writes and reads a blob through the SDK.
func BenchmarkPutGet(b *testing.B) {
	s := emulator.New(emulator.WithoutLog())
	c := plans(b, s.Transport())
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprint(i)
		mustUpload(b, c, name, "body", nil)
		if _, _, err := download(b.Context(), c, name, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkListInMillion lists ten blobs somewhere in a container of a million.
func BenchmarkListInMillion(b *testing.B) {
	s := emulator.New(emulator.WithoutLog())
	for i := range 1_000_000 {
		s.Put("plans", fmt.Sprintf("%07d", i), nil, nil)
	}
	c := plans(b, s.Transport())
	for i := 0; b.Loop(); i++ {
		o := &container.ListBlobsFlatOptions{StartFrom: to.Ptr(fmt.Sprintf("%07d", i*7919%1_000_000)), MaxResults: to.Ptr(int32(10))}
		must(b, errOf(c.NewListBlobsFlatPager(o).NextPage(b.Context())))
	}
}

// BenchmarkListPage lists a full page with metadata.
func BenchmarkListPage(b *testing.B) {
	s := emulator.New(emulator.WithoutLog())
	for i := range 5000 {
		s.Put("plans", fmt.Sprint(i), nil, map[string]string{"planid": "1", "name": "2", "state": "3"})
	}
	c := plans(b, s.Transport())
	for b.Loop() {
		o := &container.ListBlobsFlatOptions{Include: container.ListBlobsInclude{Metadata: true}}
		must(b, errOf(c.NewListBlobsFlatPager(o).NextPage(b.Context())))
	}
}
