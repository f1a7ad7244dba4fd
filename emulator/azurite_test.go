package emulator_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/planvault/azblob/emulator"
)

// TestAsAzurite checks what the comparison with Azurite has shown, for those who run the tests without
// Azurite.
func TestAsAzurite(t *testing.T) {
	block := func(more ...string) map[string]string {
		h := map[string]string{"x-ms-blob-type": "BlockBlob"}
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = more[i+1]
		}
		return h
	}
	const (
		sumOfBody  = "hBotaJrYa9FhFEdFPCLG/A=="
		sumOfOther = "eV8yArF8trw9S3cdjGyerw=="
	)
	for _, tc := range []struct {
		name, method, path string
		header             map[string]string
		status             int
		code               string
		has, lacks         string // headers
		body               string
	}{
		{name: "no media type of what HEAD does not send", method: "HEAD", path: "/plans/missing", status: 404, code: "BlobNotFound", lacks: "Content-Type"},
		{name: "304 is bare", method: "GET", path: "/plans/b", header: map[string]string{"If-Modified-Since": future}, status: 304, code: "ConditionNotMet", lacks: "Etag"},
		{name: "tier of HEAD", method: "HEAD", path: "/plans/b", status: 200, has: "X-Ms-Access-Tier-Inferred"},
		{name: "no tier of GET", method: "GET", path: "/plans/b", status: 200, lacks: "X-Ms-Access-Tier", body: "body"},
		{name: "a condition that metadata of containers does not have", method: "PUT", path: "/plans?restype=container&comp=metadata", header: map[string]string{"If-Unmodified-Since": future}, status: 400, code: "ConditionHeadersNotSupported"},
		{name: "conditions count behind the container", method: "DELETE", path: "/other/b", header: map[string]string{"If-Match": "*", "If-None-Match": "*"}, status: 404, code: "ContainerNotFound"},
		{name: "metadata counts behind the container", method: "PUT", path: "/other/b", header: block("x-ms-meta-1a", "1"), status: 404, code: "ContainerNotFound"},
		{name: "digests count before metadata", method: "PUT", path: "/plans/b", header: block("x-ms-meta-1a", "1", "Content-MD5", sumOfOther), status: 400, code: "Md5Mismatch"},
		{name: "the blob's MD5 wins", method: "PUT", path: "/plans/c", header: block("x-ms-blob-content-md5", sumOfBody, "Content-MD5", sumOfOther), status: 201},
		{name: "containers are made whatever the conditions", method: "PUT", path: "/other?restype=container", header: map[string]string{"If-Match": "*", "If-None-Match": "*"}, status: 201},
		{name: "a range of another form", method: "GET", path: "/plans/b", header: map[string]string{"Range": "bytes=-2"}, status: 200, body: "body"},
		{name: "a range of another unit", method: "GET", path: "/plans/b", header: map[string]string{"Range": "words=0-1"}, status: 200, body: "body"},
		{name: "a range backwards", method: "GET", path: "/plans/b", header: map[string]string{"Range": "bytes=3-1"}, status: 200, body: "body"},
		{name: "a long range", method: "GET", path: "/plans/b", header: map[string]string{"Range": "bytes=1-99999999999999999999"}, status: 206, body: "ody"},
		{name: "a far range", method: "GET", path: "/plans/b", header: map[string]string{"Range": "bytes=99999999999999999999-"}, status: 416, code: "InvalidRange"},
		{name: "backslashes are slashes", method: "GET", path: `/plans/d%5Ce`, status: 200, body: "with a slash"},
		{name: "the longest name", method: "PUT", path: "/plans/" + strings.Repeat("n", 1024), header: block(), status: 201},
		{name: "metadata that just fits", method: "PUT", path: "/plans/c", header: block("x-ms-meta-a", strings.Repeat("v", 8191)), status: 201},
		{name: "metadata with an underscore first", method: "PUT", path: "/plans/c", header: block("x-ms-meta-_1a", "v"), status: 201},
		{name: "metadata with a tab", method: "PUT", path: "/plans/c", header: block("x-ms-meta-a", "a\tb"), status: 201},
		{name: "metadata of all that is allowed", method: "PUT", path: "/plans/c", header: block("x-ms-meta-a", "! ~"), status: 201},
		{name: "an empty number of results", method: "GET", path: "/plans?restype=container&comp=list&maxresults=", status: 400, code: "InvalidQueryParameterValue"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := emulator.New()
			s.Put("plans", "b", []byte("body"), nil)
			s.Put("plans", "d/e", []byte("with a slash"), nil)
			body := ""
			if tc.method == "PUT" {
				body = "body"
			}
			resp, text := raw(t, s, tc.method, tc.path, body, tc.header)
			if resp.StatusCode != tc.status || resp.Header.Get("x-ms-error-code") != tc.code {
				t.Errorf("got %d %s, want %d %s", resp.StatusCode, resp.Header.Get("x-ms-error-code"), tc.status, tc.code)
			}
			if tc.has != "" && resp.Header.Get(tc.has) == "" {
				t.Errorf("there is no %s", tc.has)
			}
			if tc.lacks != "" && resp.Header.Get(tc.lacks) != "" {
				t.Errorf("%s is %q", tc.lacks, resp.Header.Get(tc.lacks))
			}
			if tc.body != "" && text != tc.body {
				t.Errorf("the body is %q", text)
			}
		})
	}
}

func TestBatchOnMissingContainer(t *testing.T) {
	const one = "DELETE /devstoreaccount1/plans/a HTTP/1.1\r\nAuthorization: Bearer x\r\n\r\n"
	resp, text := raw(t, emulator.New(), "POST", "/plans?restype=container&comp=batch", batchBody(one),
		map[string]string{"Content-Type": "multipart/mixed; boundary=b"})
	if resp.StatusCode != http.StatusAccepted || !strings.Contains(text, "X-Ms-Error-Code: ContainerNotFound\r\n") {
		t.Errorf("got %d, %q", resp.StatusCode, text)
	}
	if strings.Contains(text, "\r\nDate:") {
		t.Errorf("the failed item has a date: %q", text)
	}
}

func TestSignedMetadataNotASCII(t *testing.T) {
	s := emulator.New()
	s.PutContainer("plans", nil)
	c := keyClient(t, s.Transport(), pathStyle, emulator.DefaultAccount, emulator.DefaultKey)
	want(t, errOf(upload(t.Context(), c, "a", "body", &blockblob.UploadOptions{Metadata: map[string]*string{"a": to.Ptr("ü")}})), http.StatusForbidden, "AuthenticationFailed")
}
