package emulator_test

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/planvault/azblob/emulator"
)

func TestContainers(t *testing.T) {
	onBothWires(t, func(t *testing.T, s *emulator.Server, c *container.Client) {
		want(t, errOf(c.Create(t.Context(), nil)), http.StatusConflict, "ContainerAlreadyExists")

		set, err := c.SetMetadata(t.Context(), &container.SetMetadataOptions{Metadata: map[string]*string{"Layout": to.Ptr("1")}})
		must(t, err)
		got, err := c.GetProperties(t.Context(), nil)
		must(t, err)
		if *got.ETag != *set.ETag || *got.Metadata["Layout"] != "1" || *got.LeaseState != "available" {
			t.Errorf("properties are %+v", got)
		}
		must(t, errOf(c.Delete(t.Context(), nil)))
		want(t, errOf(c.GetProperties(t.Context(), nil)), http.StatusNotFound, "ContainerNotFound")
		want(t, errOf(upload(t.Context(), c, "a", "body", nil)), http.StatusNotFound, "ContainerNotFound")
		_, _, err = download(t.Context(), c, "a", nil)
		want(t, err, http.StatusNotFound, "ContainerNotFound")
		want(t, errOf(c.NewListBlobsFlatPager(nil).NextPage(t.Context())), http.StatusNotFound, "ContainerNotFound")
		want(t, errOf(c.Delete(t.Context(), nil)), http.StatusNotFound, "ContainerNotFound")
		if list := slices.Collect(s.Containers()); len(list) != 0 {
			t.Errorf("there is still %v", list)
		}
	})
}

func TestCreateContainerWithMetadata(t *testing.T) {
	s := emulator.New()
	c := newClient(t, s.Transport()).ServiceClient().NewContainerClient("new")
	must(t, errOf(c.Create(t.Context(), &container.CreateOptions{Metadata: map[string]*string{"layout": to.Ptr("2")}})))
	got, err := c.GetProperties(t.Context(), nil)
	if err != nil || *got.Metadata["Layout"] != "2" {
		t.Errorf("metadata is %v, %v", got.Metadata, err)
	}
}

func TestContainerBeingDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := emulator.New()
		c := plans(t, s.Transport())
		mustUpload(t, c, "a", "body", nil)
		must(t, errOf(c.Delete(t.Context(), nil)))
		want(t, errOf(c.Create(t.Context(), nil)), http.StatusConflict, "ContainerBeingDeleted")
		want(t, errOf(upload(t.Context(), c, "a", "body", nil)), http.StatusNotFound, "ContainerNotFound")
		want(t, errOf(c.Delete(t.Context(), nil)), http.StatusNotFound, "ContainerNotFound")
		time.Sleep(30*time.Second - 1)
		want(t, errOf(c.Create(t.Context(), nil)), http.StatusConflict, "ContainerBeingDeleted")
		time.Sleep(time.Nanosecond)
		if _, err := c.Create(t.Context(), nil); err != nil {
			t.Error(err)
		}
		if s.Len("plans") != 0 {
			t.Error("the new container has the blobs of the old one")
		}
	})
}

func TestContainerDeletionAtOnce(t *testing.T) {
	s := emulator.New(emulator.WithContainerDeletion(0))
	c := plans(t, s.Transport())
	must(t, errOf(c.Delete(t.Context(), nil)))
	if _, err := c.Create(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestDeleteContainerConditions(t *testing.T) {
	s := emulator.New()
	c := plans(t, s.Transport())
	_, err := c.Delete(t.Context(), &container.DeleteOptions{AccessConditions: &container.AccessConditions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfUnmodifiedSince: to.Ptr(time.Now().Add(-time.Hour))},
	}})
	want(t, err, http.StatusPreconditionFailed, "ConditionNotMet")
}

func TestContainerNames(t *testing.T) {
	for name, code := range map[string]string{
		"abc":            "",
		"a-1-2026-01-01": "",
		"0ab":            "",
		"ab":             "OutOfRangeInput",
		string(long(64)): "OutOfRangeInput",
		string(long(63)): "",
		"Abc":            "InvalidResourceName",
		"a--b":           "InvalidResourceName",
		"-ab":            "InvalidResourceName",
		"ab-":            "InvalidResourceName",
		"a_b":            "InvalidResourceName",
		"a.b":            "InvalidResourceName",
		"äbc":            "InvalidResourceName",
	} {
		s := emulator.New()
		_, err := newClient(t, s.Transport()).CreateContainer(t.Context(), name, nil)
		if code == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		wantFor(t, name, err, http.StatusBadRequest, code)
	}
}

func long(n int) []byte {
	return slices.Repeat([]byte("x"), n)
}

func TestListContainers(t *testing.T) {
	s := emulator.New()
	for _, name := range []string{"prod-2026-01-02", "prod-2026-01-01", "prod-2-2026-01-01", "test-2026-01-01"} {
		s.PutContainer(name, map[string]string{"Layout": name})
	}
	c := newClient(t, s.Transport()).ServiceClient()
	var got []string
	pages := 0
	for pager := c.NewListContainersPager(&service.ListContainersOptions{
		Prefix: to.Ptr("prod-"), MaxResults: to.Ptr(int32(2)), Include: service.ListContainersInclude{Metadata: true},
	}); pager.More(); pages++ {
		page, err := pager.NextPage(t.Context())
		must(t, err)
		for _, item := range page.ContainerItems {
			got = append(got, *item.Name)
			if *item.Metadata["layout"] != *item.Name || item.Properties.LastModified == nil {
				t.Errorf("%s is %v, %v", *item.Name, item.Metadata, item.Properties)
			}
		}
	}
	if wanted := []string{"prod-2-2026-01-01", "prod-2026-01-01", "prod-2026-01-02"}; !slices.Equal(got, wanted) || pages != 2 {
		t.Errorf("got %v in %d pages", got, pages)
	}
}

func TestAccount(t *testing.T) {
	for _, kept := range []bool{false, true} {
		var opts []emulator.Option
		sku := service.SKUName("Standard_LRS")
		if kept {
			opts = append(opts, emulator.WithSoftDelete())
		}
		s := emulator.New(opts...)
		if kept {
			s.Replicate()
			sku = "Standard_RAGRS"
		}
		c := newClient(t, s.Transport()).ServiceClient()
		info, err := c.GetAccountInfo(t.Context(), nil)
		if err != nil || *info.AccountKind != service.AccountKind("StorageV2") || *info.SKUName != sku {
			t.Errorf("account is %v, %v", info, err)
		}
		properties, err := c.GetProperties(t.Context(), nil)
		must(t, err)
		if p := properties.DeleteRetentionPolicy; *p.Enabled != kept || kept && *p.Days != 7 {
			t.Errorf("deleted blobs: %+v", p)
		}
	}
}
