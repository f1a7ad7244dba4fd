// Package blob is the vault's only way to the Blob service: a client for the few requests it makes, with the one retry
// layer, the conditions of writes, and the checks of what is read. It knows blobs and nothing of plans.
package blob

import (
	"bytes"
	"context"
	"crypto/md5" // the service's checksum of blobs is MD5
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"golang.org/x/sync/errgroup"
)

// Limits of the service that the client relies on.
const (
	// MaxBody is the largest body of a Put: the SDK sends at most this much in one request.
	MaxBody = blockblob.MaxUploadBlobBytes
	// MaxBatch is how many blobs one DeleteBatch may name.
	MaxBatch = 256
	// MaxPage is how many blobs a page of a listing has at most.
	MaxPage = 5000
	// MaxMetadata is how many bytes the names and values of a blob's metadata may have in all.
	MaxMetadata = 8 << 10
)

// WriteID is the name of the metadata that tells whose write a blob is.
const WriteID = "writeid"

// Ref names a blob, or with an empty Name a container.
type Ref struct{ Container, Name string }

func (r Ref) String() string {
	if r.Name == "" {
		return r.Container
	}
	return r.Container + "/" + r.Name
}

// Options are a client's settings. Concurrency and Retry must be set.
type Options struct {
	Concurrency    int // tries in flight at the same time
	Retry          Retry
	Transport      policy.Transporter
	ServiceVersion string             // x-ms-version to send instead of the SDK's own
	OnRequest      func(RequestEvent) // called after each HTTP request, from its goroutine
	OnRetry        func(RetryEvent)   // called before each wait for another try, likewise
}

// Client sends requests. It is safe for concurrent use.
type Client struct {
	service   *service.Client
	host      string // of the account
	slots     chan struct{}
	retry     Retry
	onRetry   func(RetryEvent)
	own       *http.Client              // nil when the caller gave a transport
	noBatches atomic.Pointer[time.Time] // when they were last given up
}

// New returns a client for the account at endpoint. Its errors do not quote the endpoint, which may hold a secret.
func New(endpoint string, cred azcore.TokenCredential, o Options) (*Client, error) {
	c := newClient(o)
	var err error
	c.service, err = service.NewClient(endpoint, cred, c.options(o))
	return c, c.findHost(err)
}

// NewFromConnectionString returns a client for the account and key, or shared access signature, of a connection string.
func NewFromConnectionString(connectionString string, o Options) (*Client, error) {
	c := newClient(o)
	var err error
	c.service, err = service.NewClientFromConnectionString(connectionString, c.options(o))
	if err := c.findHost(err); err != nil {
		return nil, err
	}
	return c, nil
}

// findHost finishes a client that was made with err.
func (c *Client) findHost(err error) error {
	var u *url.URL
	if err == nil {
		u, err = url.Parse(c.service.URL())
	}
	if bad := (*url.Error)(nil); errors.As(err, &bad) || err == nil && u.Host == "" {
		return errors.New("it names no usable endpoint") // what is wrong with it quotes it
	}
	if err != nil {
		return err
	}
	c.host = u.Host
	return nil
}

func newClient(o Options) *Client {
	c := &Client{slots: make(chan struct{}, o.Concurrency), retry: o.Retry, onRetry: o.OnRetry}
	if o.Transport == nil {
		c.own = &http.Client{Transport: newTransport(o.Concurrency), CheckRedirect: stay}
	}
	return c
}

// newTransport returns a transport with an idle connection for each request that may be in flight. The SDK's default keeps 10
// to a host and can't be closed by us. The service speaks HTTP/1.1 only, so each request in flight takes a connection; where
// something between us and it offers HTTP/2, all requests would share one, and wait for each other's lost packets.
func newTransport(connections int) *http.Transport {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		Protocols:             new(http.Protocols),
		MaxIdleConns:          connections,
		MaxIdleConnsPerHost:   connections,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// stay is for http.Client.CheckRedirect. The service never redirects, and a request that went elsewhere would take a token or a
// signature there.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// transport is what sends requests. A given http.Client is used without its redirects; what else is given must follow none.
func (c *Client) transport(given policy.Transporter) policy.Transporter {
	if c.own != nil {
		return c.own
	}
	if client, ok := given.(*http.Client); ok {
		own := *client
		own.CheckRedirect = stay
		return &own
	}
	return given
}

func (c *Client) options(o Options) *service.ClientOptions {
	opts := service.ClientOptions{ClientOptions: policy.ClientOptions{PerCallPolicies: []policy.Policy{decode{}}}}
	opts.Retry.MaxRetries = -1 // ours is the only retry layer: the SDK's would turn a lost answer into an error
	opts.Transport = wire{c.transport(o.Transport)}
	if o.ServiceVersion != "" {
		opts.PerCallPolicies = append(opts.PerCallPolicies, serviceVersion(o.ServiceVersion))
	}
	if o.OnRequest != nil {
		opts.PerCallPolicies = append(opts.PerCallPolicies, observe(o.OnRequest))
	}
	return &opts
}

// serviceVersion is a policy that replaces the version header, which the SDK does not let its callers set.
type serviceVersion string

func (v serviceVersion) Do(req *policy.Request) (*http.Response, error) {
	req.Raw().Header["x-ms-version"] = []string{string(v)}
	return req.Next()
}

// observe is a policy that tells of each HTTP request.
type observe func(RequestEvent)

func (o observe) Do(req *policy.Request) (*http.Response, error) {
	started := time.Now()
	resp, err := req.Next()
	event := RequestEvent{Method: req.Raw().Method, URL: req.Raw().URL, Took: time.Since(started), Err: explain(err)}
	if call, ok := req.Raw().Context().Value(callKey{}).(call); ok {
		event.Op, event.Ref = call.op, call.ref
	}
	if foreign := (*foreignError)(nil); errors.As(err, &foreign) {
		event.Status = foreign.status
	}
	if resp != nil {
		event.Status, event.RequestID = resp.StatusCode, resp.Header.Get("x-ms-request-id")
	}
	o(event)
	return resp, err
}

// Close gives up idle connections.
func (c *Client) Close() {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

// Condition is what a write demands of the blob that is there.
type Condition struct {
	ifMatch, ifNoneMatch string
}

// The conditions. IfMatch takes an ETag that the client returned.
var (
	Always  = Condition{}
	IfNew   = Condition{ifNoneMatch: "*"}
	IfThere = Condition{ifMatch: "*"}
)

// IfMatch demands the version of that ETag. One that is not of the service's form is no version's; sent as it is it could mean
// something else, as "*" does to some.
func IfMatch(etag string) Condition {
	if etag == "" || strings.Trim(etag, "0123456789abcdefABCDEFx") != "" {
		etag = "0x0"
	}
	return Condition{ifMatch: `"` + etag + `"`}
}

func (c Condition) String() string {
	switch {
	case c.ifMatch != "":
		return "If-Match: " + c.ifMatch
	case c.ifNoneMatch != "":
		return "If-None-Match: " + c.ifNoneMatch
	}
	return "no condition"
}

func (c Condition) sdk() *sdk.AccessConditions {
	var m sdk.ModifiedAccessConditions
	if c.ifMatch != "" {
		m.IfMatch = to.Ptr(azcore.ETag(c.ifMatch))
	}
	if c.ifNoneMatch != "" {
		m.IfNoneMatch = to.Ptr(azcore.ETag(c.ifNoneMatch))
	}
	return &sdk.AccessConditions{ModifiedAccessConditions: &m}
}

// Properties are what the service tells of a blob beside its content.
type Properties struct {
	ETag         string            // without quotes
	LastModified time.Time         // in whole seconds
	Seen         time.Time         // the service's clock when it told this, in whole seconds
	Metadata     map[string]string // names in lower case
}

// Put writes a blob with its MD5 and returns the new ETag.
//
// metadata must hold a WriteID. Where the service says that the condition does not hold, the blob is looked at: our
// WriteID in it means that an earlier try, or an earlier call with the same WriteID, was answered into the void, and the
// Put has succeeded. Else the error is Mismatch when another version is there and Absent when none is; Unknown is set
// when an earlier try of this call may have taken effect before that.
func (c *Client) Put(ctx context.Context, ref Ref, body []byte, metadata map[string]string, cond Condition) (etag string, err error) {
	sum := md5.Sum(body)
	values := make(map[string]*string, len(metadata))
	for name, value := range metadata {
		values[name] = &value
	}
	opts := &blockblob.UploadOptions{
		Metadata:                values,
		TransactionalValidation: sdk.TransferValidationTypeMD5(sum[:]),
		HTTPHeaders:             &sdk.HTTPHeaders{BlobContentType: to.Ptr("application/json"), BlobContentMD5: sum[:]},
		AccessConditions:        cond.sdk(),
	}
	client := c.container(ref).NewBlockBlobClient(ref.Name)
	err = c.do(ctx, call{op: "put", ref: ref, write: true, bytes: len(body)}, func(ctx context.Context) error {
		resp, err := client.Upload(ctx, streaming.NopCloser(bytes.NewReader(body)), opts)
		if err == nil {
			etag = normal(resp.ETag)
			return nil
		}
		if judge(err).reason != Mismatch {
			return err
		}
		there, headErr := head(ctx, client)
		switch {
		case headErr == nil && there.Metadata[WriteID] == metadata[WriteID]:
			etag = there.ETag
			return nil
		case headErr == nil:
			return err
		case cond == IfNew && judge(headErr).reason == Absent:
			// A rival's upload that is still under way has been seen to answer so, and it may yet fail.
			return fmt.Errorf("%w: %w", errVanished, explain(err))
		default:
			return &lookError{headErr}
		}
	})
	return etag, err
}

// Get reads a whole blob and checks its length and MD5.
func (c *Client) Get(ctx context.Context, ref Ref) (body []byte, p Properties, err error) {
	client := c.container(ref).NewBlobClient(ref.Name)
	err = c.do(ctx, call{op: "get", ref: ref}, func(ctx context.Context) error {
		resp, err := client.DownloadStream(ctx, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		var b bytes.Buffer
		b.Grow(int(min(max(deref(resp.ContentLength), 0), 1<<20))) // a header is not to be believed with all the memory there is
		if _, err := io.Copy(&b, resp.Body); err != nil {
			return err
		}
		body = b.Bytes()
		if length := resp.ContentLength; length != nil && int64(len(body)) < *length {
			return fmt.Errorf("%d of %d bytes came: %w", len(body), *length, io.ErrUnexpectedEOF)
		}
		if sum := md5.Sum(body); !bytes.Equal(sum[:], resp.ContentMD5) {
			return fmt.Errorf("%w: it is %x, the blob's is %x", errDamaged, sum, resp.ContentMD5)
		}
		p = properties(resp.ETag, resp.LastModified, resp.Date, resp.Metadata)
		return nil
	})
	if err != nil {
		return nil, Properties{}, err
	}
	return body, p, nil
}

// Head reads a blob's properties.
func (c *Client) Head(ctx context.Context, ref Ref) (p Properties, err error) {
	client := c.container(ref).NewBlockBlobClient(ref.Name)
	err = c.do(ctx, call{op: "head", ref: ref}, func(ctx context.Context) error {
		p, err = head(ctx, client)
		return err
	})
	return p, err
}

func head(ctx context.Context, client *blockblob.Client) (Properties, error) {
	resp, err := client.GetProperties(ctx, nil)
	return properties(resp.ETag, resp.LastModified, resp.Date, resp.Metadata), err
}

// Delete removes a blob. The error is Absent or AbsentContainer when the service says that there is none: an earlier try, or
// somebody else, may have removed it. It is Mismatch when the condition does not hold.
func (c *Client) Delete(ctx context.Context, ref Ref, cond Condition) error {
	client := c.container(ref).NewBlockBlobClient(ref.Name)
	return c.do(ctx, call{op: "delete", ref: ref, write: true}, func(ctx context.Context) error {
		_, err := client.Delete(ctx, &sdk.DeleteOptions{AccessConditions: cond.sdk()})
		if err != nil && judge(err).reason == Mismatch {
			// A blob that is not there does not match either: Azurite says so with 412, and what the service says is not documented.
			if _, headErr := head(ctx, client); headErr != nil {
				return &lookError{headErr}
			}
		}
		return err
	})
}

// Target is a blob for DeleteBatch.
type Target struct {
	Name string
	// ETag is the only version to delete; empty for any. A blob of another version is left alone.
	ETag string
}

func (t Target) condition() Condition {
	if t.ETag == "" {
		return Always
	}
	return IfMatch(t.ETag)
}

func absence(t Target) error {
	return &Error{Reason: Absent, Err: fmt.Errorf("%s is not there", t.Name)}
}

// changed says which of the blobs that did not match their versions is there in another one. One that is not there does not
// match either: Azurite says so with 412, and what the service says is not documented.
func (c *Client) changed(ctx context.Context, containerName string, unmatched []Target) error {
	var (
		g      errgroup.Group
		absent atomic.Pointer[Target]
	)
	for _, t := range unmatched {
		g.Go(func() error {
			_, err := c.Head(ctx, Ref{Container: containerName, Name: t.Name})
			switch {
			case err == nil:
				return &Error{Reason: Mismatch, Err: fmt.Errorf("%s is of another version", t.Name)}
			case Is(err, Absent, AbsentContainer):
				absent.Store(&t)
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if t := absent.Load(); t != nil {
		return absence(*t)
	}
	return nil
}

// CreateContainer creates a container; one that is there already is fine.
func (c *Client) CreateContainer(ctx context.Context, name string, metadata map[string]string) error {
	ref := Ref{Container: name}
	values := make(map[string]*string, len(metadata))
	for name, value := range metadata {
		values[name] = &value
	}
	err := c.do(ctx, call{op: "create container", ref: ref, write: true}, func(ctx context.Context) error {
		_, err := c.container(ref).Create(ctx, &container.CreateOptions{Metadata: values})
		if bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
			return nil
		}
		return err
	})
	return err
}

// Item is a blob in a listing.
type Item struct {
	Name string
	Properties
}

// Page is one answer to a listing.
type Page struct {
	Items []Item
	// More says that another page follows. A page may be short, or empty, and yet not be the last.
	More bool
}

// ListOptions choose what is listed.
type ListOptions struct {
	Prefix string
	// StartFrom is the first name to list; names before it are left out.
	StartFrom string
	// Metadata asks for each blob's metadata.
	Metadata bool
	// MetadataOf says by its name of which blobs it is kept: a page of thousands holds most of its memory in it. Nil is all.
	MetadataOf func(name string) bool
	// MaxResults is the largest number of blobs on a page; 0 is MaxPage.
	MaxResults int
}

// List yields the blobs of a container page by page, in the order of their names. The last pair has the error, if there is
// one: AbsentContainer when there is no such container.
func (c *Client) List(ctx context.Context, containerName string, o ListOptions) iter.Seq2[Page, error] {
	ref := Ref{containerName, o.Prefix}
	opts := container.ListBlobsFlatOptions{Include: container.ListBlobsInclude{Metadata: o.Metadata}, Prefix: &o.Prefix}
	if o.StartFrom != "" {
		opts.StartFrom = &o.StartFrom
	}
	if o.MaxResults > 0 {
		opts.MaxResults = to.Ptr(int32(o.MaxResults)) // at most 5,000
	}
	return pages(func(marker *string) (page Page, next string, err error) {
		opts.Marker = marker
		err = c.do(ctx, call{op: "list", ref: ref}, func(ctx context.Context) error {
			var seen time.Time
			got, err := receive(ctx, o.MetadataOf, func(ctx context.Context) error {
				// A pager that has failed once says that there is no more: each try takes a new one, from our own marker.
				resp, err := c.container(ref).NewListBlobsFlatPager(&opts).NextPage(ctx)
				seen = deref(resp.Date)
				return err
			})
			if err != nil {
				return err
			}
			for i := range got.blobs {
				got.blobs[i].Seen = seen
			}
			page, next = Page{Items: got.blobs, More: got.next != ""}, got.next
			return nil
		})
		return page, next, err
	})
}

// ListGroups yields what the names of a container's blobs that begin with prefix have up to the next delimiter, itself
// included, each once, page by page. Names without a delimiter come whole, behind the others of their page. The last pair has
// the error, as with List.
func (c *Client) ListGroups(ctx context.Context, containerName, prefix, delimiter string) iter.Seq2[[]string, error] {
	ref := Ref{containerName, prefix}
	opts := container.ListBlobsHierarchyOptions{Prefix: &prefix}
	return pages(func(marker *string) (groups []string, next string, err error) {
		opts.Marker = marker
		err = c.do(ctx, call{op: "list", ref: ref}, func(ctx context.Context) error {
			got, err := receive(ctx, nil, func(ctx context.Context) error {
				_, err := c.container(ref).NewListBlobsHierarchyPager(delimiter, &opts).NextPage(ctx)
				return err
			})
			if err != nil {
				return err
			}
			groups, next = got.groups, got.next
			for _, item := range got.blobs {
				groups = append(groups, item.Name)
			}
			return nil
		})
		return groups, next, err
	})
}

// ContainerItem is a container in a listing.
type ContainerItem struct {
	Name     string
	Metadata map[string]string // names in lower case
}

// HeadContainer reads a container's properties; AbsentContainer when there is no such container.
func (c *Client) HeadContainer(ctx context.Context, name string) (item ContainerItem, err error) {
	ref := Ref{Container: name}
	err = c.do(ctx, call{op: "head container", ref: ref}, func(ctx context.Context) error {
		resp, err := c.container(ref).GetProperties(ctx, nil)
		item = ContainerItem{name, lower(resp.Metadata)}
		return err
	})
	return item, err
}

// ListContainers yields the containers whose names begin with prefix, page by page, in the order of their names.
func (c *Client) ListContainers(ctx context.Context, prefix string) iter.Seq2[[]ContainerItem, error] {
	ref := Ref{Container: prefix}
	opts := service.ListContainersOptions{Prefix: &prefix, Include: service.ListContainersInclude{Metadata: true}}
	return pages(func(marker *string) (items []ContainerItem, next string, err error) {
		opts.Marker = marker
		err = c.do(ctx, call{op: "list containers", ref: ref}, func(ctx context.Context) error {
			got, err := receive(ctx, nil, func(ctx context.Context) error {
				_, err := c.service.NewListContainersPager(&opts).NextPage(ctx)
				return err
			})
			if err != nil {
				return err
			}
			items, next = got.containers, got.next
			return nil
		})
		return items, next, err
	})
}

// pages yields what fetch returns, from the first page until one has no next marker or fails.
func pages[P any](fetch func(marker *string) (page P, next string, err error)) iter.Seq2[P, error] {
	return func(yield func(P, error) bool) {
		var marker *string
		for {
			page, next, err := fetch(marker)
			if !yield(page, err) || err != nil || next == "" {
				return
			}
			marker = &next
		}
	}
}

func (c *Client) container(ref Ref) *container.Client {
	return c.service.NewContainerClient(ref.Container)
}

func properties(etag *azcore.ETag, modified, seen *time.Time, metadata map[string]*string) Properties {
	return Properties{normal(etag), deref(modified), deref(seen), lower(metadata)}
}

// normal takes the quotes off an ETag: the service writes them in headers and leaves them out in listings.
func normal(etag *azcore.ETag) string {
	return strings.Trim(string(deref(etag)), `"`)
}

// lower gives metadata names in lower case: HTTP and Go change the case of headers, listings keep it.
func lower(metadata map[string]*string) map[string]string {
	m := make(map[string]string, len(metadata))
	for name, value := range metadata {
		m[strings.ToLower(name)] = deref(value)
	}
	return m
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
