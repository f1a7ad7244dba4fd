package blob

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/planvault/azblob/emulator"
)

// TestSignerSignsLikeTheSDK sends each operation, and some requests with more headers and parameters, through a client of
// the SDK, which signs them itself. The signer makes the same signatures.
func TestSignerSignsLikeTheSDK(t *testing.T) {
	const account = "plans"
	key := bytes.Repeat([]byte{7}, 64)
	cred, err := service.NewSharedKeyCredential(account, base64.StdEncoding.EncodeToString(key))
	must(t, err)
	own, sent := newSigner(account, key), 0
	compare := sender(func(r *http.Request) (*http.Response, error) {
		text, err := own.appendText(nil, r)
		must(t, err)
		if got, want := own.authorization(text), r.Header.Get("Authorization"); got != want {
			t.Errorf("%s %s: the signature is %q, and the SDK's %q", r.Method, r.URL, got, want)
		}
		sent++
		return nil, context.Canceled
	})
	for _, endpoint := range []string{"https://plans.blob.core.windows.net", "http://127.0.0.1:10000/plans"} {
		o := &service.ClientOptions{ClientOptions: policy.ClientOptions{Transport: compare, Retry: policy.RetryOptions{MaxRetries: -1}}}
		client, err := service.NewClientWithSharedKeyCredential(endpoint, cred, o)
		must(t, err)
		u, err := url.Parse(endpoint)
		must(t, err)
		direct := direct{account: u, pipeline: runtime.NewPipeline("", "", runtime.PipelineOptions{PerRetry: []policy.Policy{own}}, &o.ClientOptions), authorize: own.sign} // its signatures are the emulator's to judge
		w := &world{Client: &Client{blobs: direct, service: client, slots: slots{limiter: newLimiter(4)}}, server: emulator.New(emulator.Options{})}
		ctx := Once(t.Context())
		for op, do := range operations() {
			if err := do(ctx, w); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", op, err)
			}
		}
		strange := Ref{"box", "plans/a b+c%d.json"}
		b := w.container(strange).NewBlockBlobClient(strange.Name)
		put := &blockblob.UploadOptions{Metadata: pointers(map[string]string{WriteID: "2", "state": `{"status":"Running"}`}), AccessConditions: IfMatch("0x1").sdk()}
		_, _ = b.Upload(ctx, streaming.NopCloser(strings.NewReader("")), put)
		_, _ = b.Upload(ctx, streaming.NopCloser(strings.NewReader("body")), nil)
		_, _ = b.DownloadStream(ctx, &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: 1, Count: 2}, AccessConditions: IfMatch("0x1").sdk()})
		_, _ = b.Delete(ctx, nil)
		_, _, _ = all(w.List(ctx, "box", ListOptions{Prefix: "plans/", StartFrom: "plans/0 1+2&3=", Metadata: true, MaxResults: 10}))
		_, _ = w.container(strange).NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Marker: new("a/b==")}).NextPage(ctx)
		_ = w.AcquireLease(ctx, "box", "id", Forever)
	}
	if want := 2 * (len(operations()) + 5); sent < want {
		t.Errorf("%d signatures were compared, want %d", sent, want)
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
