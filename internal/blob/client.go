// Package blob is the vault's client for the Blob service. It has the few requests that the vault makes, the
// only retry layer, the conditions of writes, and the checks of what is read. It knows blobs, and nothing
// about plans.
package blob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5" // the service's checksum of blobs is MD5
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
)

// Limits of the service that the client relies on.
const (
	// MaxBody is the largest body of a Put, which is the most that the SDK sends in one request.
	MaxBody = blockblob.MaxUploadBlobBytes
	// MaxBatch is the largest number of blobs in a DeleteBatch.
	MaxBatch = 256
	// MaxPage is the largest number of blobs in a page of a listing.
	MaxPage = 5000
	// MaxMetadata is the limit for the total size of the names and values of a blob's metadata, in bytes.
	MaxMetadata = 8 << 10
)

// Version is the version of the service's REST API that the client asks for. It is the oldest one that has startFrom,
// because services lag behind the SDK: a service refuses requests of a version that it does not know. What else is newer
// than 2019-07-07, the version of Azure Stack Hub, is the batch: without it blobs are deleted one by one.
const Version = "2026-02-06"

// application begins the User-Agent of all requests.
const application = "planvault"

// WriteID is the name of the metadata that identifies the write that stored a blob.
const WriteID = "writeid"

// Ref names a blob, or a container if Name is empty.
type Ref struct{ Container, Name string }

func (r Ref) String() string {
	if r.Name == "" {
		return r.Container
	}
	return r.Container + "/" + r.Name
}

// Options configures a [Client]. Concurrency and Retry are required.
type Options struct {
	// ClientOptions are the caller's. APIVersion is the x-ms-version to send instead of [Version]. Retry is ignored.
	policy.ClientOptions
	Concurrency int // the most attempts in flight at the same time, apart from urgent ones
	Retry       Retry
	// OnStart is called before each HTTP request, OnRequest after it, and OnRetry before each wait for another
	// attempt, in the goroutine of the request. The context has the values of the caller's.
	OnStart   func(context.Context, RequestEvent)
	OnRequest func(context.Context, RequestEvent)
	OnRetry   func(context.Context, RetryEvent)
}

// Client sends requests. It is safe for concurrent use.
type Client struct {
	blobs   direct
	service *service.Client
	host    string // of the account
	// ofContainer means that the login is a shared access signature of a container.
	ofContainer bool
	slots       slots
	retry       Retry
	onRetry     func(context.Context, RetryEvent)
	own         *http.Client              // nil if the caller provides a transport
	noBatches   atomic.Pointer[time.Time] // when the client last gave up batches
	ungrouped   sync.Map                  // delimiters by which the service does not group
	last        atomic.Pointer[inContainer]
	created     sync.Map // when CreateContainer last succeeded, by the container
	logout      func()   // nil for nothing
}

// New returns a client for the account.
func (a Account) New(o Options) (*Client, error) {
	c := newClient(o)
	var err error
	opts := c.options(o)
	c.service, err = a.client(opts)
	if err != nil {
		return nil, err
	}
	// The login is above azcore's policy of retries, which would replace its error when the context ends.
	opts.PerCallPolicies = a.authorizing(opts.PerCallPolicies)
	c.blobs = direct{a.url, runtime.NewPipeline(application, Version, runtime.PipelineOptions{}, &opts.ClientOptions), a.authorize}
	c.logout = a.logout
	c.host, c.ofContainer = a.url.Host, a.url.Query().Get("sr") != ""
	return c, nil
}

// NewFromConnectionString returns a client for the account of a connection string.
func NewFromConnectionString(connectionString string, o Options) (*Client, error) {
	account, err := ParseConnectionString(connectionString)
	if err != nil {
		return nil, err
	}
	return account.New(o)
}

func newClient(o Options) *Client {
	c := &Client{slots: slots{limiter: newLimiter(o.Concurrency)}, retry: o.Retry, onRetry: o.OnRetry}
	if o.Transport == nil {
		c.own = &http.Client{Transport: newTransport(o.Concurrency), CheckRedirect: stay}
	}
	return c
}

// newTransport returns a transport with an idle connection for each request in flight. The SDK's default
// keeps 10 per host, and we can't close it. The service speaks HTTP/1.1 only, so each request in flight needs
// a connection. A proxy may offer HTTP/2, but then all requests would share one connection and wait for each
// other's lost packets.
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

// stay makes an [http.Client] return redirects. The service never redirects. A request that follows a
// redirect would carry a token or a signature to another host.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// transport returns what sends the requests. A given [http.Client] is used without following redirects; any
// other transport must not follow redirects.
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

func (c *Client) options(o Options) service.ClientOptions {
	opts := service.ClientOptions{ClientOptions: o.ClientOptions}
	version := serviceVersion(cmp.Or(o.APIVersion, Version))
	opts.APIVersion, opts.PerCallPolicies = "", slices.Concat([]policy.Policy{decode{}, version}, o.PerCallPolicies)
	// For a minute after a 429, 500 or 503 the SDK would let writes wait for 100 Continue before they send the body. Most
	// bodies are a few KB: the wait costs a round trip while the service is slow, and a second behind a proxy that does
	// not know 100 Continue, to save less than the headers take.
	opts.ExpectContinueBehavior.Mode = service.ExpectContinueModeOff
	opts.Retry = policy.RetryOptions{MaxRetries: -1} // this package has the only retry layer; the SDK's would turn a lost answer into an error
	opts.Telemetry.ApplicationID = cmp.Or(o.Telemetry.ApplicationID, application)
	opts.Transport = wire{c.transport(o.Transport), o.OnStart, o.OnRequest}
	return opts
}

// serviceVersion is a policy that replaces the version header, which the SDK does not let callers set.
type serviceVersion string

func (v serviceVersion) Do(req *policy.Request) (*http.Response, error) {
	req.Raw().Header["x-ms-version"] = []string{string(v)}
	return req.Next()
}

// Close closes idle connections, and ends requests for tokens, also those of other clients for the account.
func (c *Client) Close() {
	if c.logout != nil {
		c.logout()
	}
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

// Condition is what a request requires of the existing blob.
type Condition struct {
	ifMatch, ifNoneMatch string
}

// The conditions. See also [IfMatch].
var (
	Always  = Condition{}
	IfNew   = Condition{ifNoneMatch: "*"}
	IfThere = Condition{ifMatch: "*"}
)

// IfMatch requires that the blob has an ETag that the client returned. An ETag that does not have the form of
// the service's ETags matches no version. It is not sent, because some servers give other ETags, such as "*",
// a meaning.
func IfMatch(etag string) Condition { return Condition{ifMatch: quoted(etag)} }

// quoted returns an ETag as conditions have it.
func quoted(etag string) string {
	if etag == "" || strings.Trim(etag, "0123456789abcdefABCDEFx") != "" {
		etag = "0x0"
	}
	return `"` + etag + `"`
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

// Properties are the properties of a blob.
type Properties struct {
	ETag         string            // without quotes
	LastModified time.Time         // in whole seconds
	Seen         time.Time         // the service's clock when it sent this, in whole seconds
	Metadata     map[string]string // names in lower case
}

// Put writes a blob with its MD5 and returns the new ETag.
//
// metadata must contain a [WriteID]. If the service says that the condition does not hold, Put reads the
// blob's metadata. If that has the same WriteID, the blob is the result of an attempt whose answer was lost,
// or of an earlier call with the same WriteID, and Put succeeds. Otherwise the error is [Mismatch] if another
// version exists, and [Absent] if none does. [Error.Unknown] is set if an earlier attempt of this call may
// have taken effect.
func (c *Client) Put(ctx context.Context, ref Ref, body []byte, metadata map[string]string, cond Condition) (etag string, err error) {
	etag, _, err = c.PutDated(ctx, ref, body, metadata, cond)
	return etag, err
}

// contentType returns the type of a body: a JSON object or nothing at all, or else binary data.
func contentType(body []byte) string {
	if len(body) > 0 && body[0] != '{' {
		return "application/octet-stream"
	}
	return "application/json"
}

// PutDated is like [Client.Put]. It also returns the service's clock when it answered, in whole seconds, or
// the zero time if the answer has none.
func (c *Client) PutDated(ctx context.Context, ref Ref, body []byte, metadata map[string]string, cond Condition) (etag string, seen time.Time, err error) {
	sum := md5.Sum(body)
	err = c.do(ctx, call{op: "put", ref: ref, write: true}, func(ctx context.Context) error {
		resp, err := c.blobs.put(ctx, ref, body, sum, metadata, cond)
		if err == nil {
			if err = finish(resp); err == nil {
				etag = strings.Trim(resp.Header.Get("ETag"), `"`)
				seen, err = timeIn(resp.Header, "Date")
			}
			return err
		}
		if judge(err).reason != Mismatch {
			return err
		}
		there, headErr := c.head(ctx, ref)
		switch {
		case headErr == nil && there.Metadata[WriteID] == metadata[WriteID]:
			etag, seen = there.ETag, there.Seen
			return nil
		case headErr == nil:
			return err
		case cond == IfNew && judge(headErr).reason == Absent:
			// This answer has been seen while another client's upload was under way, which may still fail.
			return fmt.Errorf("%w: %w", errVanished, explain(err))
		default:
			return &lookError{headErr}
		}
	})
	return etag, seen, err
}

// Get reads a blob and checks its length and MD5.
func (c *Client) Get(ctx context.Context, ref Ref) (body []byte, p Properties, err error) {
	return c.download(ctx, ref, Always, "", checkSum)
}

// checkSum accepts the body of an answer that has the MD5 in its header.
func checkSum(body []byte, h http.Header) ([]byte, error) {
	want, err := base64.StdEncoding.DecodeString(h.Get("Content-MD5"))
	if h.Get("Content-MD5") == "" {
		return nil, errNoMD5
	}
	if sum := md5.Sum(body); err != nil || !bytes.Equal(sum[:], want) {
		return nil, fmt.Errorf("%w: it is %x, want %x", errDamaged, sum, want)
	}
	return body, nil
}

// GetChanged is [Client.Get] for a blob of which the caller has the version with an ETag. If the blob still has that
// version, changed is false and nothing else is returned: the service answers 304, without a body. Only the first
// attempt asks in this way, so that whoever answers it wrongly does not prevent the read.
func (c *Client) GetChanged(ctx context.Context, ref Ref, etag string) (body []byte, p Properties, changed bool, err error) {
	cond := Always
	if etag != "" {
		cond.ifNoneMatch = quoted(etag)
	}
	body, p, err = c.download(ctx, ref, cond, "", checkSum)
	return body, p, body != nil, err
}

// download reads a blob, or the range of it that part names. accept returns the wanted bytes of a body, or why it is not
// believed. The body is nil if the blob has the version that the condition excludes. Of a body that is damaged, it returns
// the properties with the error.
func (c *Client) download(ctx context.Context, ref Ref, cond Condition, part string, accept func([]byte, http.Header) ([]byte, error)) (body []byte, p Properties, err error) {
	err = c.do(ctx, call{op: "get", ref: ref}, func(ctx context.Context) error {
		header := make(http.Header, 6)
		if part != "" {
			header["Range"] = []string{part}
		}
		if this, _ := ctx.Value(callKey{}).(call); cond.ifNoneMatch == "" || this.try == 1 { // see GetChanged
			cond.add(header)
		}
		resp, err := c.blobs.send(ctx, http.MethodGet, ref, header, nil)
		if err != nil {
			return err
		}
		if resp.StatusCode == http.StatusNotModified {
			return finish(resp)
		}
		whole, err := receiveBody(resp)
		if err != nil {
			return err
		}
		if p, err = propertiesOf(resp.Header); err != nil {
			return err
		}
		body, err = accept(whole, resp.Header)
		return err
	})
	if err != nil && !Is(err, Damaged) {
		p = Properties{}
	}
	return body, p, err
}

// receiveBody reads the body of an answer and checks its length.
func receiveBody(resp *http.Response) ([]byte, error) {
	defer resp.Body.Close()
	length := int64(-1)
	if text := resp.Header.Get("Content-Length"); text != "" {
		var err error
		if length, err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, errors.New("the answer's Content-Length is no number")
		}
	}
	var b bytes.Buffer
	b.Grow(int(min(max(length, 0), 1<<20)) + bytes.MinRead) // don't allocate any amount of memory because of a header
	if _, err := b.ReadFrom(resp.Body); err != nil {
		return nil, err
	}
	if int64(b.Len()) < length {
		return nil, fmt.Errorf("got %d of %d bytes: %w", b.Len(), length, io.ErrUnexpectedEOF)
	}
	return b.Bytes(), nil
}

// GetRange reads the bytes of a blob from an offset: size of them, or fewer if the blob ends before. With an
// ETag it reads that version alone; the error is [Mismatch] or [Absent] if the blob has another one, or is gone.
// The service has no checksum of a part of a blob, so the content must have its own.
func (c *Client) GetRange(ctx context.Context, ref Ref, offset, size int, etag string) (body []byte, p Properties, err error) {
	cond := Always
	if etag != "" {
		cond = IfMatch(etag)
	}
	return c.download(ctx, ref, cond, fmt.Sprintf("bytes=%d-%d", offset, offset+size-1), func(body []byte, h http.Header) ([]byte, error) {
		if h.Get("Content-Range") == "" { // the answer to a request without a range
			body = body[min(offset, len(body)):]
		}
		return body[:min(size, len(body))], nil
	})
}

// Head reads the properties of a blob.
func (c *Client) Head(ctx context.Context, ref Ref) (p Properties, err error) {
	err = c.do(ctx, call{op: "head", ref: ref}, func(ctx context.Context) error {
		p, err = c.head(ctx, ref)
		return err
	})
	return p, err
}

func (c *Client) head(ctx context.Context, ref Ref) (Properties, error) {
	resp, err := c.blobs.plain(ctx, http.MethodHead, ref, Always)
	if err != nil {
		return Properties{}, err
	}
	return propertiesOf(resp.Header)
}

// Delete removes a blob. The error is [Absent] or [AbsentContainer] if the blob does not exist: an earlier
// attempt, or another client, may have removed it. It is [Mismatch] if the condition does not hold.
func (c *Client) Delete(ctx context.Context, ref Ref, cond Condition) error {
	return c.do(ctx, call{op: "delete", ref: ref, write: true}, func(ctx context.Context) error {
		err := c.blobs.delete(ctx, ref, cond)
		if err != nil && judge(err).reason == Mismatch {
			// A missing blob does not match either. Azurite then answers 412; the answer of the service is
			// not documented.
			if _, headErr := c.head(ctx, ref); headErr != nil {
				return &lookError{headErr}
			}
		}
		return err
	})
}

// Target is a blob to delete with [Client.DeleteBatch].
type Target struct {
	Name string
	// ETag is the version to delete, or empty for any version. Other versions are not deleted.
	ETag string
}

func (t Target) condition() Condition {
	if t.ETag == "" {
		return Always
	}
	return IfMatch(t.ETag)
}

// CreateContainer creates a container. It succeeds if the container already exists. For [newFor], calls don't believe
// that it is absent.
func (c *Client) CreateContainer(ctx context.Context, name string, metadata map[string]string) error {
	ref := Ref{Container: name}
	err := c.do(ctx, call{op: "create container", ref: ref, write: true}, func(ctx context.Context) error {
		_, err := c.container(ref).Create(ctx, &container.CreateOptions{Metadata: pointers(metadata)})
		if bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
			return nil
		}
		return err
	})
	if err == nil {
		c.created.Store(name, time.Now())
	}
	return err
}

// SetContainerMetadata replaces the metadata of a container. A lease of the container does not forbid it. The error
// is [AbsentContainer] if the container does not exist.
func (c *Client) SetContainerMetadata(ctx context.Context, name string, metadata map[string]string) error {
	ref := Ref{Container: name}
	return c.do(ctx, call{op: "set container metadata", ref: ref, write: true}, func(ctx context.Context) error {
		_, err := c.container(ref).SetMetadata(ctx, &container.SetMetadataOptions{Metadata: pointers(metadata)})
		return err
	})
}

// Item is a blob in a listing.
type Item struct {
	Name string
	Properties
	Size int64 // of the body, in bytes; only List sets it
}

// Page is one page of a listing.
type Page struct {
	Items []Item
	// More reports whether another page follows. A page may be short or empty without being the last.
	More bool
	// Seen is the service's clock when it sent the page, in whole seconds.
	Seen time.Time
}

// ListOptions selects what [Client.List] returns.
type ListOptions struct {
	Prefix string
	// StartFrom is the first name to list.
	StartFrom string
	// Metadata asks for each blob's metadata.
	Metadata bool
	// MetadataOf selects by name the blobs whose metadata is kept, because metadata takes most of the memory
	// of a page. Nil selects all blobs.
	MetadataOf func(name string) bool
	// MaxResults is the largest number of blobs in a page; 0 means MaxPage.
	MaxResults int
}

// format is the format of listings that the client reads. The SDK's default may become another one.
const format = container.StorageResponseFormatXML

// List yields the blobs of a container page by page, in the order of their names. The last pair may have an
// error, which is [AbsentContainer] if the container does not exist.
func (c *Client) List(ctx context.Context, containerName string, o ListOptions) iter.Seq2[Page, error] {
	ref := Ref{containerName, o.Prefix}
	opts := container.ListBlobsFlatOptions{Include: container.ListBlobsInclude{Metadata: o.Metadata}, Prefix: &o.Prefix, ResponseFormat: format}
	if o.StartFrom != "" {
		opts.StartFrom = &o.StartFrom
	}
	if o.MaxResults > 0 {
		opts.MaxResults = new(int32(o.MaxResults)) // at most 5,000
	}
	return pages(func(marker *string) (Page, string, error) {
		opts.Marker = marker
		got, err := c.page(ctx, call{op: "list", ref: ref}, o.MetadataOf, func(ctx context.Context, page *listing) error {
			// After a failure, a pager of the SDK reports that there are no more pages. Each attempt
			// takes a new pager and our own marker.
			_, err := c.container(ref).NewListBlobsFlatPager(&opts).NextPage(ctx)
			if len(page.groups) > 0 { // they hide blobs
				return &foreignError{status: http.StatusOK, text: fmt.Sprintf("a page with a group of names, %q, although the request has no delimiter", page.groups[0])}
			}
			return err
		})
		return Page{Items: got.blobs, More: got.next != "", Seen: got.seen}, got.next, err
	})
}

// ContainerItem is a container in a listing.
type ContainerItem struct {
	Name     string
	Metadata map[string]string // names in lower case
	Lease    Lease
	Seen     time.Time // the service's clock when it sent this, in whole seconds
}

// HeadContainer reads the properties of a container. The error is [AbsentContainer] if the container does not
// exist. With a shared access signature of a container, which does not allow this, it lists a blob instead,
// and the metadata and the lease stay unknown.
func (c *Client) HeadContainer(ctx context.Context, name string) (item ContainerItem, err error) {
	if c.ofContainer {
		for page, err := range c.List(ctx, name, ListOptions{MaxResults: 1}) {
			return ContainerItem{Name: name, Seen: page.Seen}, err
		}
	}
	ref := Ref{Container: name}
	err = c.do(ctx, call{op: "head container", ref: ref}, func(ctx context.Context) error {
		resp, err := c.container(ref).GetProperties(ctx, nil)
		item = ContainerItem{name, lower(resp.Metadata), leaseOf(string(deref(resp.LeaseState)), string(deref(resp.LeaseDuration))), deref(resp.Date)}
		return err
	})
	return item, err
}

// ListContainers yields the containers whose names begin with prefix, page by page, in the order of their
// names.
func (c *Client) ListContainers(ctx context.Context, prefix string) iter.Seq2[[]ContainerItem, error] {
	ref := Ref{Container: prefix}
	opts := service.ListContainersOptions{Prefix: &prefix, Include: service.ListContainersInclude{Metadata: true}}
	return pages(func(marker *string) ([]ContainerItem, string, error) {
		opts.Marker = marker
		got, err := c.page(ctx, call{op: "list containers", ref: ref}, nil, func(ctx context.Context, _ *listing) error {
			_, err := c.service.NewListContainersPager(&opts).NextPage(ctx)
			return err
		})
		return got.containers, got.next, err
	})
}

// pages yields what fetch returns, until a page has no next marker or an error.
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

// inContainer is the SDK's client for a container.
type inContainer struct {
	name   string
	client *container.Client
}

// container returns the SDK's client for the container of a ref. It keeps the last one, because most requests
// in a row are about the same day.
func (c *Client) container(ref Ref) *container.Client {
	last := c.last.Load()
	if last == nil || last.name != ref.Container {
		last = &inContainer{ref.Container, c.service.NewContainerClient(ref.Container)}
		c.last.Store(last)
	}
	return last.client
}

// pointers returns the metadata in the form that the SDK takes.
func pointers(metadata map[string]string) map[string]*string {
	m := make(map[string]*string, len(metadata))
	values := make([]string, 0, len(metadata)) // one allocation for all
	for name, value := range metadata {
		values = append(values, value)
		m[name] = &values[len(values)-1]
	}
	return m
}

// lower returns the metadata with names in lower case. HTTP and Go change the case of headers; listings keep
// it.
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
