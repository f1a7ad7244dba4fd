package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/merge"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noRetries returns options for clients that return every answer.
func noRetries(t policy.Transporter) *azblob.ClientOptions {
	return &azblob.ClientOptions{ClientOptions: policy.ClientOptions{
		Transport: t,
		Retry:     policy.RetryOptions{MaxRetries: -1},
	}}
}

// newClient returns a client of the SDK with a transport.
func newClient(t testing.TB, tr *emulator.Transport) *azblob.Client {
	t.Helper()
	c, err := azblob.NewClientFromConnectionString(tr.Server().ConnectionString(), noRetries(tr))
	must(t, err)
	return c
}

// plans returns a client for the container "plans", which it creates if needed.
func plans(t testing.TB, tr *emulator.Transport) *container.Client {
	t.Helper()
	if tr.Server().Len("plans") == 0 {
		tr.Server().PutContainer("plans", nil)
	}
	return newClient(t, tr).ServiceClient().NewContainerClient("plans")
}

// onBothWires runs a test with a container "plans" over a transport and over a socket.
func onBothWires(t *testing.T, test func(*testing.T, *emulator.Server, *container.Client), opts ...emulator.Options) {
	t.Helper()
	t.Run("transport", func(t *testing.T) {
		s := emulator.New(merge.Fields(opts...))
		test(t, s, plans(t, s.Transport()))
	})
	t.Run("socket", func(t *testing.T) {
		s := emulator.New(merge.Fields(opts...))
		test(t, s, plansOnSocket(t, s))
	})
}

// plansOnSocket is plans with a listener that closes when the test ends.
func plansOnSocket(t *testing.T, s *emulator.Server) *container.Client {
	t.Helper()
	l, err := s.Listen("127.0.0.1:0")
	must(t, err)
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := azblob.NewClientFromConnectionString(l.ConnectionString(), noRetries(&http.Client{Transport: transport}))
	must(t, err)
	s.PutContainer("plans", nil)
	return c.ServiceClient().NewContainerClient("plans")
}

func upload(ctx context.Context, c *container.Client, name, body string, o *blockblob.UploadOptions) (blockblob.UploadResponse, error) {
	return c.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(strings.NewReader(body)), o)
}

func mustUpload(t testing.TB, c *container.Client, name, body string, o *blockblob.UploadOptions) blockblob.UploadResponse {
	t.Helper()
	resp, err := upload(t.Context(), c, name, body, o)
	must(t, err)
	return resp
}

// deleteBatch deletes blobs in one batch.
func deleteBatch(t testing.TB, c *container.Client, names ...string) (container.SubmitBatchResponse, error) {
	t.Helper()
	batch, err := c.NewBatchBuilder()
	must(t, err)
	for _, name := range names {
		must(t, batch.Delete(name, nil))
	}
	return c.SubmitBatch(t.Context(), batch, nil)
}

func download(ctx context.Context, c *container.Client, name string, o *blob.DownloadStreamOptions) (string, blob.DownloadStreamResponse, error) {
	resp, err := c.NewBlobClient(name).DownloadStream(ctx, o)
	if err != nil {
		return "", resp, err
	}
	if resp.Body == nil {
		// The SDK treats a 304 as a success without a body.
		return "", resp, &azcore.ResponseError{StatusCode: http.StatusNotModified, ErrorCode: *resp.ErrorCode}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), resp, err
}

// conditions returns conditions of the SDK; "" means none.
func conditions(match, noneMatch string) *blob.AccessConditions {
	m := &blob.ModifiedAccessConditions{}
	if match != "" {
		m.IfMatch = to.Ptr(azcore.ETag(match))
	}
	if noneMatch != "" {
		m.IfNoneMatch = to.Ptr(azcore.ETag(noneMatch))
	}
	return &blob.AccessConditions{ModifiedAccessConditions: m}
}

// want checks that err is an error of the service with this status and code.
func want(t testing.TB, err error, status int, code string) {
	t.Helper()
	wantFor(t, "request", err, status, code)
}

// wantFor is want with a description of the request.
func wantFor(t testing.TB, what string, err error, status int, code string) {
	t.Helper()
	var resp *azcore.ResponseError
	switch {
	case !errors.As(err, &resp):
		t.Errorf("%s: got error %v, want %d %s", what, err, status, code)
	case resp.StatusCode != status || resp.ErrorCode != code:
		t.Errorf("%s: got %d %s, want %d %s", what, resp.StatusCode, resp.ErrorCode, status, code)
	}
}

// names returns the names of a listing, page by page.
func names(t testing.TB, c *container.Client, o *container.ListBlobsFlatOptions) (all []string, pages int) {
	t.Helper()
	for pager := c.NewListBlobsFlatPager(o); pager.More(); pages++ {
		page, err := pager.NextPage(t.Context())
		must(t, err)
		for _, item := range page.Segment.BlobItems {
			all = append(all, *item.Name)
		}
	}
	return all, pages
}

// trace returns the log as lines.
func trace(s *emulator.Server) []string {
	var lines []string
	for _, r := range s.Requests() {
		lines = append(lines, r.String())
	}
	return lines
}

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
