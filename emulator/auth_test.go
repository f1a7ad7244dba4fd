package emulator_test

import (
	"context"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/planvault/azblob/emulator"
)

const pathStyle = "http://localhost:10000/" + emulator.DefaultAccount

// TestOrderOfSignedHeaders signs names of metadata, which the SDK sorts as the service does and not as bytes.
func TestOrderOfSignedHeaders(t *testing.T) {
	onBothWires(t, func(t *testing.T, _ *emulator.Server, c *container.Client) {
		metadata := make(map[string]*string)
		for _, name := range []string{"a", "a_", "a_b", "aa", "a1", "a_1", "ab", "abc", "b_a", "_", "z9", "z_9"} {
			metadata[name] = to.Ptr("value of " + name)
		}
		mustUpload(t, c, "ü/a b+c", "body", &blockblob.UploadOptions{Metadata: metadata})
	})
}

// token is a credential with a made-up token.
type token string

func (k token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(k), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestBearerAndHostStyle(t *testing.T) {
	s := emulator.New(emulator.Options{})
	tr := s.Transport()
	client, err := azblob.NewClient(hostStyle, token("made up"), noRetries(tr))
	must(t, err)
	c := client.ServiceClient().NewContainerClient("plans")
	must(t, errOf(c.Create(t.Context(), nil)))
	mustUpload(t, c, "vault/a b", "body", nil)
	if b, there := s.Blob("plans", "vault/a b"); !there || string(b.Body) != "body" {
		t.Errorf("stored is %v", b)
	}
	resp, err := deleteBatch(t, c, "vault/a b")
	if err != nil || resp.Responses[0].Error != nil {
		t.Errorf("batch: %v, %v", resp.Responses, err)
	}
	key, err := azblob.NewSharedKeyCredential(emulator.DefaultAccount, emulator.DefaultKey)
	must(t, err)
	client, err = azblob.NewClientWithSharedKeyCredential(hostStyle, key, noRetries(tr))
	must(t, err)
	mustUpload(t, client.ServiceClient().NewContainerClient("plans"), "a", "body", nil)
}
