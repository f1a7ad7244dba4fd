package emulator_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/planvault/azblob/emulator"
)

func TestTornUploadLeavesNothing(t *testing.T) {
	onBothWires(t, func(t *testing.T, s *emulator.Server, c *container.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		body := &tornBody{Reader: strings.NewReader(strings.Repeat("x", 1<<20)), tear: cancel}
		_, err := c.NewBlockBlobClient("a").Upload(ctx, body, nil)
		if err == nil {
			t.Error("the upload succeeded")
		}
		if s.Len("plans") != 0 {
			t.Error("half a blob was stored")
		}
	})
}

// tornBody fails half-way.
type tornBody struct {
	*strings.Reader
	tear func()
}

func (b *tornBody) Read(p []byte) (int, error) {
	if b.Reader.Len() < 1<<19 {
		b.tear()
		return 0, io.ErrUnexpectedEOF
	}
	return b.Reader.Read(p)
}

func (*tornBody) Close() error { return nil }

// raw sends a request that the SDK would not send, with a token.
func raw(t testing.TB, s *emulator.Server, method, path, body string, header map[string]string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost/devstoreaccount1"+path, strings.NewReader(body))
	must(t, err)
	req.Header.Set("Authorization", "Bearer token")
	req.Header.Set("x-ms-version", "2026-12-06")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := s.Transport().Do(req)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp, string(text)
}

// TestRefusals sends requests that the comparison with Azurite can't send.
func TestRefusals(t *testing.T) {
	s := emulator.New(emulator.Options{})
	s.Put("plans", "b", []byte("body"), nil)
	block := map[string]string{"x-ms-blob-type": "BlockBlob"}
	for _, tc := range []struct {
		method, path, body string
		header             map[string]string
		status             int
		code               string
	}{
		{"GET", "/plans/b?a;b", "", nil, 400, "InvalidQueryParameterValue"},
		{"GET", "/plans?restype=container&comp=list&prefix=a&prefix=b", "", nil, 400, "InvalidQueryParameterValue"},
		{"GET", "/b", "", nil, 501, "NotImplemented"},
		{"PUT", "/plans/%ff", "", block, 400, "InvalidResourceName"},
		{"PUT", "/plans/a", "", map[string]string{"x-ms-blob-type": "BlockBlob", "x-ms-meta-a": "ü"}, 400, "InvalidMetadata"},
		{"DELETE", "/plans/b", "", map[string]string{"Authorization": "Bearer "}, 401, "NoAuthenticationInformation"},
	} {
		resp, text := raw(t, s, tc.method, tc.path, tc.body, tc.header)
		if resp.StatusCode != tc.status || resp.Header.Get("x-ms-error-code") != tc.code || !strings.Contains(text, "<Code>"+tc.code+"</Code>") {
			t.Errorf("%s %s: got %d %s, want %d %s", tc.method, tc.path, resp.StatusCode, text, tc.status, tc.code)
		}
	}
	if s.Len("plans") != 1 {
		t.Error("a refused request took effect")
	}
}

// TestMetadataOnTheWay checks metadata that HTTP changes in transit. The transport must behave like a socket.
func TestMetadataOnTheWay(t *testing.T) {
	for _, tc := range []struct {
		name     string
		metadata map[string]*string
		refused  string // on the client's side
	}{
		{name: "blanks around", metadata: map[string]*string{"a": to.Ptr(" v ")}},
		{name: "two cases of a name", metadata: map[string]*string{"a": to.Ptr("1"), "A": to.Ptr("2")}},
		{name: "line break", metadata: map[string]*string{"a": to.Ptr("1\n2")}, refused: "invalid header field value"},
		{name: "blank in a name", metadata: map[string]*string{"a b": to.Ptr("1")}, refused: "invalid header field name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onBothWires(t, func(t *testing.T, s *emulator.Server, c *container.Client) {
				_, err := upload(t.Context(), c, "a", "body", &blockblob.UploadOptions{Metadata: tc.metadata})
				if tc.refused == "" {
					want(t, err, http.StatusForbidden, "AuthenticationFailed")
				} else if err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("got %v", err)
				}
				if s.Len("plans") != 0 {
					t.Error("it was stored")
				}
			})
		})
	}
}
