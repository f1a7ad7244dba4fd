package costs_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
)

// step is a call.
type step func(context.Context) error

// floor sends requests with a bare client of the SDK, one after the other: the least that any program which
// sends them takes. It neither encodes nor decodes what blobs contain, and takes the checksums from the
// recorded requests.
type floor struct {
	client *service.Client
	root   string // path of the account
}

func newFloor(connectionString string, cred azcore.TokenCredential, transport policy.Transporter) (floor, error) {
	var o service.ClientOptions
	o.Retry.MaxRetries = -1
	o.Transport = transport
	client, err := service.NewClientFromConnectionString(connectionString, &o)
	if cred != nil {
		client, err = service.NewClient(tokenEndpoint, cred, &o)
	}
	if err != nil {
		return floor{}, err
	}
	u, err := url.Parse(client.URL())
	if err != nil {
		return floor{}, err
	}
	return floor{client, strings.TrimSuffix(u.Path, "/") + "/"}, nil
}

// replay returns a step that sends the requests.
func (f floor) replay(requests []recorded) (step, error) {
	steps := make([]step, len(requests))
	for i, r := range requests {
		var err error
		if steps[i], err = f.request(r); err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.Method, r.URL.Redacted(), err)
		}
	}
	return func(ctx context.Context) error {
		for i, send := range steps {
			if err := send(ctx); err != nil && !requests[i].refused {
				return err
			}
		}
		return nil
	}, nil
}

// sends returns a step that makes a call of the SDK.
func sends[R any](do func(context.Context) (R, error)) (step, error) {
	return func(ctx context.Context) error {
		_, err := do(ctx)
		return err
	}, nil
}

// request returns a step that sends one request.
func (f floor) request(r recorded) (step, error) {
	path, inAccount := strings.CutPrefix(r.URL.Path, f.root)
	if !inAccount && r.URL.Path+"/" != f.root {
		return nil, fmt.Errorf("not in the account %s", f.root)
	}
	box, name, _ := strings.Cut(path, "/")
	q := r.URL.Query()
	in := func() *container.Client { return f.client.NewContainerClient(box) }
	metadata := container.ListBlobsInclude{Metadata: q.Get("include") == "metadata"}
	prefix, marker, from := value(q, "prefix"), value(q, "marker"), value(q, "startFrom")
	switch operation := strings.TrimSpace(r.Method + " " + q.Get("restype") + " " + q.Get("comp")); {
	case operation == "GET  list":
		o := &service.ListContainersOptions{Prefix: prefix, Marker: marker}
		o.Include.Metadata = metadata.Metadata
		return sends(func(ctx context.Context) (service.ListContainersResponse, error) {
			return f.client.NewListContainersPager(o).NextPage(ctx)
		})
	case operation == "GET container list" && q.Has("delimiter"):
		o := &container.ListBlobsHierarchyOptions{Prefix: prefix, Marker: marker, StartFrom: from}
		return sends(func(ctx context.Context) (container.ListBlobsHierarchyResponse, error) {
			return in().NewListBlobsHierarchyPager(q.Get("delimiter"), o).NextPage(ctx)
		})
	case operation == "GET container list":
		o := &container.ListBlobsFlatOptions{Prefix: prefix, Marker: marker, StartFrom: from, Include: metadata}
		if q.Has("maxresults") {
			n, err := strconv.ParseInt(q.Get("maxresults"), 10, 32)
			if err != nil {
				return nil, err
			}
			o.MaxResults = new(int32(n))
		}
		return sends(func(ctx context.Context) (container.ListBlobsFlatResponse, error) {
			return in().NewListBlobsFlatPager(o).NextPage(ctx)
		})
	case operation == "HEAD container", operation == "GET container":
		return sends(func(ctx context.Context) (container.GetPropertiesResponse, error) {
			return in().GetProperties(ctx, nil)
		})
	case operation == "PUT container":
		return sends(func(ctx context.Context) (container.CreateResponse, error) {
			return in().Create(ctx, &container.CreateOptions{Metadata: metadataOf(r.Header)})
		})
	case operation == "POST container batch":
		return f.batch(box, r)
	case name == "":
	case operation == "PUT":
		return f.put(box, name, r)
	case operation == "GET":
		o := &blob.DownloadStreamOptions{AccessConditions: conditions(r.Header)}
		return sends(func(ctx context.Context) ([]byte, error) {
			resp, err := in().NewBlobClient(name).DownloadStream(ctx, o)
			if err != nil || resp.Body == nil { // the answer is 304
				return nil, err
			}
			defer resp.Body.Close()
			return io.ReadAll(resp.Body)
		})
	case operation == "HEAD":
		return sends(func(ctx context.Context) (blob.GetPropertiesResponse, error) {
			return in().NewBlobClient(name).GetProperties(ctx, nil)
		})
	case operation == "DELETE":
		o := &blob.DeleteOptions{AccessConditions: conditions(r.Header)}
		return sends(func(ctx context.Context) (blob.DeleteResponse, error) { return in().NewBlobClient(name).Delete(ctx, o) })
	}
	return nil, fmt.Errorf("the floor can't send such a request")
}

func (f floor) put(box, name string, r recorded) (step, error) {
	sum, err := base64.StdEncoding.DecodeString(r.Header.Get("Content-MD5"))
	if err != nil {
		return nil, err
	}
	kind := r.Header.Get("x-ms-blob-content-type")
	o := &blockblob.UploadOptions{
		Metadata:                metadataOf(r.Header),
		TransactionalValidation: blob.TransferValidationTypeMD5(sum),
		HTTPHeaders:             &blob.HTTPHeaders{BlobContentType: &kind, BlobContentMD5: sum},
		AccessConditions:        conditions(r.Header),
	}
	return sends(func(ctx context.Context) (blockblob.UploadResponse, error) {
		return f.client.NewContainerClient(box).NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(r.body)), o)
	})
}

// batch sends a batch of deletes.
func (f floor) batch(box string, r recorded) (step, error) {
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	var names []string
	var options []*container.BatchDeleteOptions
	for parts := multipart.NewReader(bytes.NewReader(r.body), params["boundary"]); ; {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		item, err := http.ReadRequest(bufio.NewReader(part))
		if err != nil {
			return nil, err
		}
		_, name, _ := strings.Cut(item.URL.Path, "/"+box+"/")
		o := &container.BatchDeleteOptions{}
		o.AccessConditions = conditions(item.Header)
		names, options = append(names, name), append(options, o)
	}
	return sends(func(ctx context.Context) (resp container.SubmitBatchResponse, err error) {
		client := f.client.NewContainerClient(box)
		b, err := client.NewBatchBuilder()
		if err != nil {
			return resp, err
		}
		for i, name := range names {
			if err := b.Delete(name, options[i]); err != nil {
				return resp, err
			}
		}
		return client.SubmitBatch(ctx, b, nil)
	})
}

func value(q url.Values, name string) *string {
	if !q.Has(name) {
		return nil
	}
	return new(q.Get(name))
}

func conditions(h http.Header) *blob.AccessConditions {
	var m blob.ModifiedAccessConditions
	if etag := h.Get("If-Match"); etag != "" {
		m.IfMatch = new(azcore.ETag(etag))
	}
	if etag := h.Get("If-None-Match"); etag != "" {
		m.IfNoneMatch = new(azcore.ETag(etag))
	}
	return &blob.AccessConditions{ModifiedAccessConditions: &m}
}

func metadataOf(h http.Header) map[string]*string {
	m := map[string]*string{}
	for name, values := range h {
		if key, ok := strings.CutPrefix(strings.ToLower(name), "x-ms-meta-"); ok {
			m[key] = &values[0]
		}
	}
	return m
}
