package emulator_test

import (
	"net/http"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/planvault/azblob/emulator"
)

// TestSecondary reads from the secondary of an account, which has what was stored at the last Replicate, and
// can't be written.
func TestSecondary(t *testing.T) {
	key, err := azblob.NewSharedKeyCredential(emulator.DefaultAccount, emulator.DefaultKey)
	must(t, err)
	for _, endpoint := range []string{pathStyle + "-secondary", "https://" + emulator.DefaultAccount + "-secondary.blob.core.windows.net"} {
		s := emulator.New()
		s.Put("plans", "a", []byte("old"), nil)
		client, err := azblob.NewClientWithSharedKeyCredential(endpoint, key, noRetries(s.Transport()))
		must(t, err)
		c := client.ServiceClient().NewContainerClient("plans")
		_, _, err = download(t.Context(), c, "a", nil)
		want(t, err, http.StatusForbidden, "InsufficientAccountPermissions") // no secondary yet

		s.Replicate()
		s.Put("plans", "a", []byte("new"), nil)
		s.Put("plans", "b", nil, nil)
		if got, _, err := download(t.Context(), c, "a", nil); err != nil || got != "old" {
			t.Errorf("got %q, %v", got, err)
		}
		if list, _ := names(t, c, nil); len(list) != 1 {
			t.Errorf("it lists %v", list)
		}
		want(t, errOf(upload(t.Context(), c, "c", "", nil)), http.StatusForbidden, "InsufficientAccountPermissions")
		want(t, errOf(c.Create(t.Context(), nil)), http.StatusForbidden, "InsufficientAccountPermissions")
		if s.Len("plans") != 2 {
			t.Error("a write took effect")
		}
		s.Replicate()
		if got, _, err := download(t.Context(), c, "a", nil); err != nil || got != "new" {
			t.Errorf("got %q, %v", got, err)
		}
	}
}
