package main

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

// floor sends requests with a bare client of the SDK, one after the other: the least that any program which
// sends them takes. It neither encodes nor decodes what blobs contain, and takes the checksums from the
// recorded requests.
type floor struct {
	client *service.Client
	root   string // path of the account
}

func newFloor(connectionString string, transport policy.Transporter) (floor, error) {
	var o service.ClientOptions
	o.Retry.MaxRetries = -1
	o.Transport = transport
	client, err := service.NewClientFromConnectionString(connectionString, &o)
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

// request returns a step that sends one request.
func (f floor) request(r recorded) (step, error) {
	path, inAccount := strings.CutPrefix(r.URL.Path, f.root)
	if !inAccount && r.URL.Path+"/" != f.root {
		return nil, fmt.Errorf("not in the account %s", f.root)
	}
	box, name, _ := strings.Cut(path, "/")
	q := r.URL.Query()
	switch operation := strings.TrimSpace(r.Method + " " + q.Get("restype") + " " + q.Get("comp")); {
	case operation == "GET  list":
		return f.listContainers(q), nil
	case operation == "GET container list" && q.Has("delimiter"):
		return f.listGroups(box, q), nil
	case operation == "GET container list":
		return f.list(box, q)
	case operation == "HEAD container", operation == "GET container":
		return func(ctx context.Context) error {
			_, err := f.client.NewContainerClient(box).GetProperties(ctx, nil)
			return err
		}, nil
	case operation == "PUT container":
		return func(ctx context.Context) error {
			_, err := f.client.NewContainerClient(box).Create(ctx, &container.CreateOptions{Metadata: metadataOf(r.Header)})
			return err
		}, nil
	case operation == "POST container batch":
		return f.batch(box, r)
	case name == "":
	case operation == "PUT":
		return f.put(box, name, r)
	case operation == "GET":
		return func(ctx context.Context) error {
			resp, err := f.client.NewContainerClient(box).NewBlobClient(name).DownloadStream(ctx, nil)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.ReadAll(resp.Body)
			return err
		}, nil
	case operation == "HEAD":
		return func(ctx context.Context) error {
			_, err := f.client.NewContainerClient(box).NewBlobClient(name).GetProperties(ctx, nil)
			return err
		}, nil
	case operation == "DELETE":
		o := &blob.DeleteOptions{AccessConditions: conditions(r.Header)}
		return func(ctx context.Context) error {
			_, err := f.client.NewContainerClient(box).NewBlobClient(name).Delete(ctx, o)
			return err
		}, nil
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
	return func(ctx context.Context) error {
		_, err := f.client.NewContainerClient(box).NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(r.body)), o)
		return err
	}, nil
}

func (f floor) list(box string, q url.Values) (step, error) {
	o := &container.ListBlobsFlatOptions{Prefix: value(q, "prefix"), Marker: value(q, "marker"), StartFrom: value(q, "startFrom")}
	o.Include.Metadata = q.Get("include") == "metadata"
	if q.Has("maxresults") {
		n, err := strconv.ParseInt(q.Get("maxresults"), 10, 32)
		if err != nil {
			return nil, err
		}
		o.MaxResults = new(int32(n))
	}
	return func(ctx context.Context) error {
		_, err := f.client.NewContainerClient(box).NewListBlobsFlatPager(o).NextPage(ctx)
		return err
	}, nil
}

func (f floor) listGroups(box string, q url.Values) step {
	o := &container.ListBlobsHierarchyOptions{Prefix: value(q, "prefix"), Marker: value(q, "marker"), StartFrom: value(q, "startFrom")}
	return func(ctx context.Context) error {
		_, err := f.client.NewContainerClient(box).NewListBlobsHierarchyPager(q.Get("delimiter"), o).NextPage(ctx)
		return err
	}
}

func (f floor) listContainers(q url.Values) step {
	o := &service.ListContainersOptions{Prefix: value(q, "prefix"), Marker: value(q, "marker")}
	o.Include.Metadata = q.Get("include") == "metadata"
	return func(ctx context.Context) error {
		_, err := f.client.NewListContainersPager(o).NextPage(ctx)
		return err
	}
}

// batch sends a batch of deletes.
func (f floor) batch(box string, r recorded) (step, error) {
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	type target struct {
		name string
		o    *container.BatchDeleteOptions
	}
	var targets []target
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
		targets = append(targets, target{name, o})
	}
	return func(ctx context.Context) error {
		client := f.client.NewContainerClient(box)
		b, err := client.NewBatchBuilder()
		if err != nil {
			return err
		}
		for _, t := range targets {
			if err := b.Delete(t.name, t.o); err != nil {
				return err
			}
		}
		_, err = client.SubmitBatch(ctx, b, nil)
		return err
	}, nil
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
