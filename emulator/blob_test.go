package emulator_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/planvault/azblob/emulator"
)

func TestBlobRoundTrip(t *testing.T) {
	onBothWires(t, func(t *testing.T, s *emulator.Server, c *container.Client) {
		const name, body = "plans/a b?%/ü-entry.json", `{"a":1}`
		sum := md5.Sum([]byte(body))
		put := mustUpload(t, c, name, body, &blockblob.UploadOptions{
			Metadata: map[string]*string{"planid": to.Ptr("1"), "Plan_Id": to.Ptr("two words"), "empty": to.Ptr("")},
			HTTPHeaders: &blob.HTTPHeaders{
				BlobContentType:        to.Ptr("application/json"),
				BlobContentEncoding:    to.Ptr("identity"),
				BlobContentLanguage:    to.Ptr("de"),
				BlobContentDisposition: to.Ptr("inline"),
				BlobCacheControl:       to.Ptr("no-store"),
			},
			Tier: to.Ptr(blob.AccessTierCool),
		})
		if !bytes.Equal(put.ContentMD5, sum[:]) {
			t.Errorf("MD5 of put is %x", put.ContentMD5)
		}

		got, resp, err := download(t.Context(), c, name, nil)
		if err != nil || got != body {
			t.Fatalf("got %q, %v", got, err)
		}
		if *resp.ETag != *put.ETag || !strings.HasPrefix(string(*put.ETag), `"0x8D`) {
			t.Errorf("ETag of put %s, of get %s", *put.ETag, *resp.ETag)
		}
		if !resp.LastModified.Equal(*put.LastModified) || !bytes.Equal(resp.ContentMD5, sum[:]) ||
			*resp.ContentLength != int64(len(body)) || *resp.ContentType != "application/json" ||
			*resp.ContentEncoding != "identity" || *resp.ContentLanguage != "de" ||
			*resp.ContentDisposition != "inline" || *resp.CacheControl != "no-store" {
			t.Errorf("properties differ: %+v", resp)
		}
		if len(resp.Metadata) != 3 || *resp.Metadata["Planid"] != "1" || *resp.Metadata["Plan_id"] != "two words" {
			t.Errorf("metadata is %v", resp.Metadata)
		}

		head, err := c.NewBlobClient(name).GetProperties(t.Context(), nil)
		must(t, err)
		if *head.ContentLength != int64(len(body)) || *head.ETag != *put.ETag || *head.BlobType != blob.BlobTypeBlockBlob ||
			*head.LeaseState != "available" || *head.LeaseStatus != "unlocked" ||
			!*head.IsServerEncrypted || head.CreationTime.IsZero() || *head.AccessTier != "Cool" {
			t.Errorf("head is %+v", head)
		}

		must(t, errOf(c.NewBlobClient(name).Delete(t.Context(), nil)))
		_, _, err = download(t.Context(), c, name, nil)
		want(t, err, http.StatusNotFound, "BlobNotFound")
		want(t, errOf(c.NewBlobClient(name).GetProperties(t.Context(), nil)), http.StatusNotFound, "BlobNotFound")
		want(t, errOf(c.NewBlobClient(name).Delete(t.Context(), nil)), http.StatusNotFound, "BlobNotFound")
		if s.Len("plans") != 0 {
			t.Error("the blob is still there")
		}
	})
}

func TestEmptyBlob(t *testing.T) {
	onBothWires(t, func(t *testing.T, _ *emulator.Server, c *container.Client) {
		mustUpload(t, c, "empty", "", nil)
		got, resp, err := download(t.Context(), c, "empty", nil)
		if err != nil || got != "" || *resp.ContentLength != 0 {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

func TestSetMetadataReplaces(t *testing.T) {
	onBothWires(t, func(t *testing.T, _ *emulator.Server, c *container.Client) {
		put := mustUpload(t, c, "a", "body", &blockblob.UploadOptions{Metadata: map[string]*string{"old": to.Ptr("1")}})
		set, err := c.NewBlobClient("a").SetMetadata(t.Context(), map[string]*string{"new": to.Ptr("2")}, nil)
		must(t, err)
		if *set.ETag == *put.ETag {
			t.Error("the ETag is the same")
		}
		got, resp, err := download(t.Context(), c, "a", nil)
		if err != nil || got != "body" || len(resp.Metadata) != 1 || *resp.Metadata["New"] != "2" {
			t.Errorf("got %q %v, %v", got, resp.Metadata, err)
		}
		want(t, errOf(c.NewBlobClient("b").SetMetadata(t.Context(), nil, nil)), http.StatusNotFound, "BlobNotFound")
	})
}

func TestRanges(t *testing.T) {
	for _, tc := range []struct {
		name   string
		offset int64
		count  int64
		want   string
		status int
	}{
		{name: "begin", offset: 0, count: 3, want: "012"},
		{name: "middle", offset: 3, count: 4, want: "3456"},
		{name: "to the end", offset: 7, want: "789"},
		{name: "beyond", offset: 8, count: 100, want: "89"},
		{name: "all but by range", offset: 0, count: 10, want: "0123456789"},
		{name: "behind the end", offset: 10, count: 1, status: http.StatusRequestedRangeNotSatisfiable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onBothWires(t, func(t *testing.T, _ *emulator.Server, c *container.Client) {
				mustUpload(t, c, "a", "0123456789", nil)
				got, resp, err := download(t.Context(), c, "a", &blob.DownloadStreamOptions{
					Range: blob.HTTPRange{Offset: tc.offset, Count: tc.count},
				})
				if tc.status != 0 {
					want(t, err, tc.status, "InvalidRange")
					return
				}
				if err != nil || got != tc.want {
					t.Errorf("got %q, %v", got, err)
				}
				if tc.count > 0 && (resp.ContentRange == nil || !strings.HasSuffix(*resp.ContentRange, "/10")) {
					t.Errorf("Content-Range is %v", resp.ContentRange)
				}
			})
		})
	}
}

func TestRangeMD5(t *testing.T) {
	s := emulator.New()
	c := plans(t, s.Transport())
	mustUpload(t, c, "a", "0123456789", nil)
	_, resp, err := download(t.Context(), c, "a", &blob.DownloadStreamOptions{
		Range:              blob.HTTPRange{Offset: 2, Count: 3},
		RangeGetContentMD5: to.Ptr(true),
	})
	must(t, err)
	part, whole := md5.Sum([]byte("234")), md5.Sum([]byte("0123456789"))
	if !bytes.Equal(resp.ContentMD5, part[:]) || !bytes.Equal(resp.BlobContentMD5, whole[:]) {
		t.Errorf("MD5 of the range is %x, of the blob %x", resp.ContentMD5, resp.BlobContentMD5)
	}
}

func TestChecksums(t *testing.T) {
	wrong, right := md5.Sum([]byte("other")), md5.Sum([]byte("body"))
	for _, tc := range []struct {
		name string
		o    blockblob.UploadOptions
		code string
	}{
		{name: "MD5 right", o: blockblob.UploadOptions{TransactionalValidation: blob.TransferValidationTypeMD5(right[:])}},
		{name: "MD5 wrong", o: blockblob.UploadOptions{TransactionalValidation: blob.TransferValidationTypeMD5(wrong[:])}, code: "Md5Mismatch"},
		{name: "blob MD5 right", o: blockblob.UploadOptions{HTTPHeaders: &blob.HTTPHeaders{BlobContentMD5: right[:]}}},
		{name: "blob MD5 wrong", o: blockblob.UploadOptions{HTTPHeaders: &blob.HTTPHeaders{BlobContentMD5: wrong[:]}}, code: "Md5Mismatch"},
		{name: "MD5 short", o: blockblob.UploadOptions{HTTPHeaders: &blob.HTTPHeaders{BlobContentMD5: right[:8]}}, code: "InvalidMd5"},
		{name: "CRC64 right", o: blockblob.UploadOptions{TransactionalValidation: blob.TransferValidationTypeComputeCRC64()}},
		{name: "CRC64 wrong", o: blockblob.UploadOptions{TransactionalValidation: blob.TransferValidationTypeCRC64(7)}, code: "Crc64Mismatch"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := emulator.New()
			c := plans(t, s.Transport())
			_, err := upload(t.Context(), c, "a", "body", &tc.o)
			if tc.code == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			want(t, err, http.StatusBadRequest, tc.code)
			if s.Len("plans") != 0 {
				t.Error("it was stored")
			}
		})
	}
}

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

func TestVersionsAndTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := emulator.New()
		c := plans(t, s.Transport())
		seen := make(map[string]bool)
		var first blob.GetPropertiesResponse
		for i := range 100 {
			// All writes are in the same instant, but no two versions are equal.
			etag := string(*mustUpload(t, c, "a", "same", nil).ETag)
			if seen[etag] {
				t.Fatalf("ETag %s was used twice", etag)
			}
			seen[etag] = true
			if i == 0 {
				var err error
				if first, err = c.NewBlobClient("a").GetProperties(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(90*time.Second + 700*time.Millisecond)
		mustUpload(t, c, "a", "same", nil)
		last, err := c.NewBlobClient("a").GetProperties(t.Context(), nil)
		must(t, err)
		if d := last.LastModified.Sub(*first.LastModified); d != 90*time.Second {
			t.Errorf("Last-Modified went on by %s", d)
		}
		if !last.CreationTime.Equal(*last.LastModified) {
			t.Error("the creation time is not that of the last upload")
		}
		if !last.Date.Equal(time.Now().Truncate(time.Second)) {
			t.Errorf("Date is %s", last.Date)
		}
	})
}

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

func TestRefusals(t *testing.T) {
	const list = "/plans?restype=container&comp=list&"
	block := map[string]string{"x-ms-blob-type": "BlockBlob"}
	with := func(name, value string) map[string]string {
		return map[string]string{"x-ms-blob-type": "BlockBlob", name: value}
	}
	for _, tc := range []struct {
		name, method, path string
		header             map[string]string
		status             int
		code               string
	}{
		{"no blob type", "PUT", "/plans/a", nil, 400, "MissingRequiredHeader"},
		{"page blob", "PUT", "/plans/a", map[string]string{"x-ms-blob-type": "PageBlob"}, 501, "NotImplemented"},
		{"odd blob type", "PUT", "/plans/a", map[string]string{"x-ms-blob-type": "Blob"}, 400, "InvalidHeaderValue"},
		{"tags", "PUT", "/plans/a", with("x-ms-tags", "a=b"), 400, "UnsupportedHeader"},
		{"copy", "PUT", "/plans/a", with("x-ms-copy-source", "http://x/"), 400, "UnsupportedHeader"},
		{"own keys", "GET", "/plans/b", map[string]string{"x-ms-encryption-key": "a"}, 400, "UnsupportedHeader"},
		{"tag condition", "GET", "/plans/b", map[string]string{"x-ms-if-tags": "a='b'"}, 400, "UnsupportedHeader"},
		{"metadata on a read", "GET", "/plans/b", map[string]string{"x-ms-meta-a": "b"}, 400, "UnsupportedHeader"},
		{"lease", "PUT", "/plans/b", with("x-ms-lease-id", "a"), 412, "LeaseNotPresentWithBlobOperation"},
		{"lease of a container", "DELETE", "/plans?restype=container", map[string]string{"x-ms-lease-id": "a"}, 412, "LeaseNotPresentWithContainerOperation"},
		{"acquire a lease", "PUT", "/plans/b?comp=lease", nil, 501, "NotImplemented"},
		{"block", "PUT", "/plans/b?comp=block&blockid=AAAA", nil, 501, "NotImplemented"},
		{"archive", "PUT", "/plans/a", with("x-ms-access-tier", "Archive"), 400, "InvalidHeaderValue"},
		{"public", "PUT", "/other?restype=container", map[string]string{"x-ms-blob-public-access": "blob"}, 400, "UnsupportedHeader"},
		{"snapshot", "GET", "/plans/b?snapshot=2026-01-01", nil, 400, "UnsupportedQueryParameter"},
		{"version", "DELETE", "/plans/b?versionid=2026-01-01", nil, 400, "UnsupportedQueryParameter"},
		{"only snapshots", "DELETE", "/plans/b", map[string]string{"x-ms-delete-snapshots": "only"}, 501, "NotImplemented"},
		{"parameter twice", "GET", "/plans?restype=container&comp=list&prefix=a&prefix=b", nil, 400, "InvalidQueryParameterValue"},
		{"bad query", "GET", "/plans/b?a;b", nil, 400, "InvalidQueryParameterValue"},
		{"bad timeout", "GET", "/plans/b?timeout=x", nil, 400, "InvalidQueryParameterValue"},
		{"bad version", "GET", "/plans/b", map[string]string{"x-ms-version": "latest"}, 400, "InvalidHeaderValue"},
		{"root container", "GET", "/b", nil, 501, "NotImplemented"},
		{"method", "PATCH", "/plans/b", nil, 405, "UnsupportedHttpVerb"},
		{"both digests", "PUT", "/plans/a", map[string]string{"x-ms-blob-type": "BlockBlob", "Content-MD5": "x", "x-ms-content-crc64": "x"}, 400, "BothCrc64AndMd5HeaderPresent"},
		{"bad MD5", "PUT", "/plans/a", with("Content-MD5", "x"), 400, "InvalidMd5"},
		{"bad date", "PUT", "/plans/a", with("If-Modified-Since", "yesterday"), 400, "InvalidHeaderValue"},
		{"two conditions", "DELETE", "/plans/b", map[string]string{"If-Match": "*", "If-None-Match": "a"}, 400, "MultipleConditionHeadersNotSupported"},
		{"two tags", "DELETE", "/plans/b", map[string]string{"If-Match": `"a", "b"`}, 400, "MultipleConditionHeadersNotSupported"},
		{"condition on a container", "DELETE", "/plans?restype=container", map[string]string{"If-Match": "*"}, 400, "ConditionHeadersNotSupported"},
		{"no such container", "PUT", "/other/a", block, 404, "ContainerNotFound"},
		{"system container", "PUT", "/$web/a", block, 400, "InvalidResourceName"},
		{"name not UTF-8", "PUT", "/plans/%ff", block, 400, "InvalidResourceName"},
		{"name too long", "PUT", "/plans/" + strings.Repeat("n", 1025), block, 400, "InvalidResourceName"},
		{"metadata too large", "PUT", "/plans/a", with("x-ms-meta-a", strings.Repeat("v", 8192)), 400, "MetadataTooLarge"},
		{"metadata too large in total", "PUT", "/plans/a", map[string]string{
			"x-ms-blob-type": "BlockBlob", "x-ms-meta-a": strings.Repeat("v", 4096), "x-ms-meta-b": strings.Repeat("v", 4096),
		}, 400, "MetadataTooLarge"},
		{"metadata with a hyphen", "PUT", "/plans/a", with("x-ms-meta-a-b", "v"), 400, "InvalidMetadata"},
		{"metadata with a digit first", "PUT", "/plans/a", with("x-ms-meta-1a", "v"), 400, "InvalidMetadata"},
		{"metadata without a name", "PUT", "/plans/a", with("x-ms-meta-", "v"), 400, "EmptyMetadataKey"},
		{"metadata not ASCII", "PUT", "/plans/a", with("x-ms-meta-a", "ü"), 400, "InvalidMetadata"},
		{"list maxresults=0", "GET", list + "maxresults=0", nil, 400, "OutOfRangeQueryParameterValue"},
		{"list maxresults=-1", "GET", list + "maxresults=-1", nil, 400, "OutOfRangeQueryParameterValue"},
		{"list maxresults=x", "GET", list + "maxresults=x", nil, 400, "InvalidQueryParameterValue"},
		{"list marker=x", "GET", list + "marker=x", nil, 400, "InvalidQueryParameterValue"},
		{"list marker=2!", "GET", list + "marker=2!", nil, 400, "InvalidQueryParameterValue"},
		{"list include=permissions", "GET", list + "include=permissions", nil, 400, "InvalidQueryParameterValue"},
		{"list include=metadata,x", "GET", list + "include=metadata,x", nil, 400, "InvalidQueryParameterValue"},
		{"list showonly=deleted", "GET", list + "showonly=deleted", nil, 400, "UnsupportedQueryParameter"},
		{"list endBefore=x", "GET", list + "endBefore=x", nil, 400, "UnsupportedQueryParameter"},
		{"body too long", "PUT", "/plans/a", with("x-long", "1"), 413, "RequestBodyTooLarge"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := emulator.New(emulator.WithMaxBody(1000))
			s.Put("plans", "b", []byte("body"), nil)
			before, _ := s.Blob("plans", "b")
			body := ""
			if tc.header["x-long"] != "" {
				body = strings.Repeat("x", 1001)
			}
			resp, text := raw(t, s, tc.method, tc.path, body, tc.header)
			if resp.StatusCode != tc.status || resp.Header.Get("x-ms-error-code") != tc.code {
				t.Errorf("got %d %s, want %d %s", resp.StatusCode, resp.Header.Get("x-ms-error-code"), tc.status, tc.code)
			}
			if !strings.Contains(text, "<Code>"+tc.code+"</Code>") {
				t.Errorf("the body is %q", text)
			}
			after, _ := s.Blob("plans", "b")
			if s.Len("plans") != 1 || after.ETag != before.ETag {
				t.Error("it took effect")
			}
		})
	}
}

func TestAnswersAreComplete(t *testing.T) {
	s := emulator.New()
	s.Put("plans", "b", []byte("body"), nil)
	for _, method := range []string{"GET", "HEAD", "DELETE", "PATCH"} {
		resp, text := raw(t, s, method, "/plans/b", "", map[string]string{"x-ms-client-request-id": "mine", "x-ms-version": "2026-02-06"})
		for name, value := range map[string]string{"x-ms-client-request-id": "mine", "x-ms-version": "2026-02-06"} {
			if got := resp.Header.Get(name); got != value {
				t.Errorf("%s: %s is %q", method, name, got)
			}
		}
		for _, name := range []string{"Date", "x-ms-request-id"} {
			if resp.Header.Get(name) == "" {
				t.Errorf("%s: there is no %s", method, name)
			}
		}
		if method == "HEAD" && text != "" {
			t.Errorf("HEAD has a body: %q", text)
		}
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
