package emulator_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/planvault/azblob/emulator"
)

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
		must(t, errOf(c.Create(t.Context(), nil)))
		if s.Len("plans") != 0 {
			t.Error("the new container has the blobs of the old one")
		}
	})
}

func TestAccount(t *testing.T) {
	for _, kept := range []bool{false, true} {
		var opts []emulator.Option
		if kept {
			opts = append(opts, emulator.WithSoftDelete())
		}
		s := emulator.New(opts...)
		c := newClient(t, s.Transport()).ServiceClient()
		info, err := c.GetAccountInfo(t.Context(), nil)
		if err != nil || *info.AccountKind != service.AccountKind("StorageV2") || *info.SKUName != service.SKUName("Standard_LRS") {
			t.Errorf("account is %v, %v", info, err)
		}
		properties, err := c.GetProperties(t.Context(), nil)
		must(t, err)
		if p := properties.DeleteRetentionPolicy; *p.Enabled != kept || kept && *p.Days != 7 {
			t.Errorf("deleted blobs: %+v", p)
		}
	}
}
