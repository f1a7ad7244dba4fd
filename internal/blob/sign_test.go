package blob

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
)

// signatures is a transport that notes the signature of a request by the SDK, and that by a signer with the
// same key.
type signatures struct {
	signer   *signer
	sdk, own string
}

func (s *signatures) Do(r *http.Request) (*http.Response, error) {
	s.sdk = r.Header.Get("Authorization")
	text, err := s.signer.appendText(nil, r)
	if err != nil {
		return nil, err
	}
	s.own = s.signer.authorization(text)
	return &http.Response{StatusCode: http.StatusAccepted, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// The SDK signs each kind of request that the client sends. The signer makes the same signature.
func TestSignerSignsLikeTheSDK(t *testing.T) {
	const account = "plans"
	key := bytes.Repeat([]byte{7}, 64)
	cred, err := service.NewSharedKeyCredential(account, base64.StdEncoding.EncodeToString(key))
	must(t, err)
	sent := &signatures{signer: newSigner(account, key)}
	for _, endpoint := range []string{"https://plans.blob.core.windows.net", "http://127.0.0.1:10000/plans"} {
		client, err := service.NewClientWithSharedKeyCredential(endpoint, cred, &service.ClientOptions{ClientOptions: policy.ClientOptions{Transport: sent, Retry: policy.RetryOptions{MaxRetries: -1}}})
		must(t, err)
		box := client.NewContainerClient("vault-2026-01-02")
		one := box.NewBlockBlobClient("plans/a b+c%d.json")
		put := func(body string) func() {
			return func() {
				_, _ = one.Upload(t.Context(), streaming.NopCloser(strings.NewReader(body)), &blockblob.UploadOptions{
					Metadata:                map[string]*string{"planid": new("1"), "plantype": new("entry"), "state": new(`{"status":"Running"}`), "writeid": new("2")},
					TransactionalValidation: sdk.TransferValidationTypeMD5([]byte("0123456789abcdef")),
					HTTPHeaders:             &sdk.HTTPHeaders{BlobContentType: new("application/json"), BlobContentMD5: []byte("0123456789abcdef")},
					AccessConditions:        &sdk.AccessConditions{ModifiedAccessConditions: &sdk.ModifiedAccessConditions{IfMatch: new(azcore.ETag(`"0x1"`)), IfNoneMatch: new(azcore.ETag("*"))}},
				})
			}
		}
		for name, send := range map[string]func(){
			"put":              put("body"),
			"put nothing":      put(""),
			"get":              func() { _, _ = one.DownloadStream(t.Context(), nil) },
			"head":             func() { _, _ = one.GetProperties(t.Context(), nil) },
			"delete":           func() { _, _ = one.Delete(t.Context(), nil) },
			"create container": func() { _, _ = box.Create(t.Context(), nil) },
			"list containers": func() {
				_, _ = client.NewListContainersPager(&service.ListContainersOptions{Prefix: new("vault-"), Include: service.ListContainersInclude{Metadata: true}}).NextPage(t.Context())
			},
			"list": func() {
				_, _ = box.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{
					Prefix: new("plans/"), StartFrom: new("plans/0 1+2&3="), Marker: new("a/b=="), MaxResults: new(int32(10)),
					Include: container.ListBlobsInclude{Metadata: true, Tags: true},
				}).NextPage(t.Context())
			},
			"list groups": func() {
				_, _ = box.NewListBlobsHierarchyPager("-", &container.ListBlobsHierarchyOptions{Prefix: new("plans/")}).NextPage(t.Context())
			},
			"batch": func() {
				builder, err := box.NewBatchBuilder()
				if err == nil {
					err = builder.Delete("plans/1", nil)
				}
				must(t, err)
				_, _ = box.SubmitBatch(t.Context(), builder, nil)
			},
		} {
			*sent = signatures{signer: sent.signer}
			send()
			if sent.sdk == "" || sent.sdk != sent.own {
				t.Errorf("%s, %s: the SDK's signature is %q, the signer's %q", endpoint, name, sent.sdk, sent.own)
			}
		}
	}
}

// The service sorts the names of headers as if they had no hyphens.
func TestSignedHeadersAreSorted(t *testing.T) {
	h := http.Header{}
	want := ""
	for _, name := range []string{"x-ms-a", "x-ms-ab", "x-ms-ac", "x-ms-a-d", "x-ms-version"} {
		h[name] = []string{"1", "2"}
		want += name + ":1,2\n"
	}
	h["Host"] = []string{"not signed"}
	if got := string(appendOwnHeaders(nil, h)); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
