package emulator

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// call is a request on its way through the server. The fields that parse sets don't change afterwards, so a
// call can be executed twice (see [Duplicate]).
type call struct {
	client    *client
	http      *http.Request // its body has been read
	body      []byte
	endpoint  string // of the account, for listings
	operation operation
	query     url.Values // names in lower case
	container string
	blob      string
	cond      conditions
	metadata  map[string]string
	list      listing // of listings
	contentID string  // of an item of a batch
	items     []*call // of a batch

	// reject is an error that does not depend on what is stored. Only authorized clients get it, unless the
	// request is stray: for another account.
	reject *answer
	stray  bool

	// badMetadata is an error in the metadata of a put. It is reported after errors about the container and
	// the body.
	badMetadata *answer

	// secondary means that the request was sent to the account's secondary.
	secondary bool

	// createOnly means that the client's signature does not allow a put to overwrite a blob.
	createOnly bool

	// verdict is the outcome of the checks that don't depend on what is stored: authorization, then reject.
	verdict *answer

	// version is the service version that the client uses.
	version string

	// manners are those of the answer.
	manners manners

	// fault is the fault of an item of a batch.
	fault *Effect

	// now is the time at which the request takes effect, and n is its number.
	now time.Time
	n   int

	entry Request
}

// again returns a copy of the call that can be executed while the first one is still being answered.
func (c *call) again() *call {
	d := *c
	d.items = make([]*call, len(c.items))
	for i, item := range c.items {
		d.items[i] = item.again()
	}
	d.fault, d.list.emptyPage = nil, false
	return &d
}

// commonHeaders are the x-ms- headers that every request may have.
func commonHeaders() []string {
	return []string{"x-ms-date", "x-ms-version", "x-ms-client-request-id", "x-ms-return-client-request-id"}
}

// maxBody is the largest body of a request in bytes. The limit of the service is 5,000 MiB.
const maxBody = 256 << 20

// readBody reads the body of a request. An incomplete body is an error: the service does not store half a
// body.
func readBody(r *http.Request) ([]byte, *answer, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil, nil
	}
	if r.ContentLength < 0 {
		return nil, fail("MissingContentLengthHeader"), nil
	}
	if r.ContentLength > maxBody {
		return nil, fail("RequestBodyTooLarge"), nil
	}
	// Don't allocate more than 1 MiB only because a client announces it.
	body := bytes.NewBuffer(make([]byte, 0, min(r.ContentLength, 1<<20)))
	n, err := io.Copy(body, io.LimitReader(r.Body, r.ContentLength+1))
	if err != nil {
		return nil, nil, err
	}
	if n != r.ContentLength {
		return nil, nil, fmt.Errorf("http: ContentLength=%d with Body length %d", r.ContentLength, n)
	}
	return body.Bytes(), nil, nil
}

// parse parses a request. It never fails; errors are in reject.
func (s *Server) parse(cl *client, r *http.Request, body []byte) *call {
	c := &call{client: cl, http: r, body: body, version: r.Header.Get("x-ms-version")}
	if c.version == "" {
		c.version = defaultVersion
	}
	c.operation = operation{op: Unsupported}
	c.reject = s.understand(c)
	c.entry.Client = cl.name
	c.entry.Op = c.operation.op
	c.entry.Method = r.Method
	c.entry.Container = c.container
	c.entry.Blob = c.blob
	c.entry.Lease = r.Header.Get("x-ms-lease-id")
	c.entry.IfMatch = r.Header.Get("If-Match")
	c.entry.IfNoneMatch = r.Header.Get("If-None-Match")
	c.entry.Condition = condition(r.Header)
	c.entry.Range = rangeHeader(r.Header)
	c.entry.Metadata = c.metadata
	c.entry.In = int64(len(body))
	c.entry.Prefix, c.entry.StartFrom, c.entry.Delimiter, c.entry.Include = c.list.prefix, c.list.startFrom, c.list.delimiter, c.list.include
	c.entry.Marker, c.entry.MaxResults = c.list.after, c.list.max
	for _, item := range c.items {
		c.entry.Items = append(c.entry.Items, item.entry)
	}
	return c
}

func (s *Server) understand(c *call) *answer {
	r := c.http
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fail("InvalidQueryParameterValue")
	}
	c.query = make(url.Values, len(values))
	for name, v := range values {
		name = strings.ToLower(name)
		c.query[name] = append(c.query[name], v...)
	}

	rest, ok := s.locate(c)
	if !ok {
		c.stray = true
		return failWith("ResourceNotFound", "There is no such account.")
	}
	c.container, c.blob, _ = strings.Cut(rest, "/")
	c.blob = strings.ReplaceAll(c.blob, `\`, "/") // as the service does
	at := blobLevel
	switch {
	case c.container == "":
		at = accountLevel
	case c.blob == "":
		at = containerLevel
	}
	if bad := c.findOperation(s.table, at); bad != nil {
		return bad
	}
	if at != accountLevel {
		if bad := checkContainerName(c.container); bad != nil {
			return bad
		}
	}
	if at == blobLevel {
		if bad := checkBlobName(c.blob); bad != nil {
			return bad
		}
	}
	if bad := c.checkQuery(); bad != nil {
		return bad
	}
	if bad := c.checkHeaders(at); bad != nil {
		return bad
	}
	if c.futuristic() {
		return failWith("InvalidHeaderValue", "Header: x-ms-version.")
	}
	switch c.operation.op {
	case ListBlobs, ListContainers:
		return c.parseListing(s.pageLimit)
	case BatchDelete:
		return s.parseBatch(c)
	default:
		return nil
	}
}

// locate finds the account in the host or in the path. It returns the rest of the path: container, slash,
// blob.
func (s *Server) locate(c *call) (rest string, ok bool) {
	r := c.http
	if s.upstream != nil {
		return locateElsewhere(r), true
	}
	scheme := "http"
	if r.TLS != nil || r.URL.Scheme == "https" {
		scheme = "https"
	}
	path := strings.TrimPrefix(r.URL.Path, "/")
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	domain, atSecondary := strings.CutPrefix(strings.ToLower(host), s.account+secondarySuffix+".")
	if atSecondary && domain != "" {
		c.secondary = true
		c.endpoint = scheme + "://" + r.Host + "/"
		return path, true
	}
	if strings.HasPrefix(strings.ToLower(host), s.account+".") {
		c.endpoint = scheme + "://" + r.Host + "/"
		return path, true
	}
	account, rest, _ := strings.Cut(path, "/")
	c.endpoint = scheme + "://" + r.Host + "/" + account + "/"
	c.secondary = account == s.account+secondarySuffix
	return rest, c.secondary || account == s.account
}

func (c *call) findOperation(table []operation, at level) *answer {
	restype, comp := c.query.Get("restype"), c.query.Get("comp")
	known := false
	for _, o := range table {
		if o.level != at || o.restype != restype || o.comp != comp {
			continue
		}
		if slices.Contains(o.methods, c.http.Method) {
			c.operation = o
			return nil
		}
		known = true
	}
	if known {
		return fail("UnsupportedHttpVerb")
	}
	if at == containerLevel && restype == "" {
		return failWith("NotImplemented", "There is no $root container.")
	}
	return failWith("NotImplemented", fmt.Sprintf("Method: %s, restype: %q, comp: %q.", c.http.Method, restype, comp))
}

func (c *call) checkQuery() *answer {
	for name, values := range c.query {
		if len(values) != 1 {
			return failWith("InvalidQueryParameterValue", "Parameter: "+name+".")
		}
		switch {
		case c.query.Has("sig") && isSASParameter(name):
		case name == "restype", name == "comp", slices.Contains(c.operation.query, name):
		case name == "timeout":
			if n, err := strconv.Atoi(values[0]); err != nil || n < 0 {
				return failWith("InvalidQueryParameterValue", "Parameter: timeout.")
			}
		default:
			return failWith("UnsupportedQueryParameter", "Parameter: "+name+".")
		}
	}
	return nil
}

func (c *call) checkHeaders(at level) *answer {
	h := c.http.Header
	if v := h.Get("x-ms-version"); v != "" {
		if _, err := time.Parse(time.DateOnly, v); err != nil {
			return failWith("InvalidHeaderValue", "Header: x-ms-version.")
		}
	}
	common := commonHeaders()
	for key := range h {
		name := strings.ToLower(key)
		switch {
		case !strings.HasPrefix(name, "x-ms-"):
		case strings.HasPrefix(name, metadataPrefix):
			if !c.operation.metadata {
				return failWith("UnsupportedHeader", "Header: "+name+".")
			}
		case !slices.Contains(common, name) && !slices.Contains(c.operation.headers, name):
			return failWith("UnsupportedHeader", "Header: "+name+".")
		}
	}
	if c.operation.metadata {
		c.metadata, c.badMetadata = parseMetadata(h)
		if c.badMetadata != nil && c.operation.op != PutBlob {
			return c.badMetadata
		}
	}
	if h.Get("x-ms-lease-id") != "" && at == blobLevel {
		return fail("LeaseNotPresentWithBlobOperation") // only containers have leases
	}
	var bad *answer
	c.cond, bad = parseConditions(h)
	return bad
}

// answer is an answer of the service.
type answer struct {
	status int
	code   string // error code
	header http.Header
	body   []byte

	// render renders the body after the server's lock has been released.
	render func() []byte

	// items are the outcomes of the items of a batch.
	items []*answer

	// failure is the refusal of a batch as a whole.
	failure *answer

	// foreign means that the answer does not come from the service.
	foreign bool

	// complete means that a proxy passes the answer on as it is, and err is why it has none.
	complete bool
	err      error

	// chunked means that the answer does not announce the length of its body.
	chunked bool
}

func newAnswer(status int) *answer {
	return &answer{status: status, header: make(http.Header)}
}

// copy returns an answer that can be finished on its own.
func (a *answer) copy() *answer {
	c := *a
	c.header = a.header.Clone()
	return &c
}

// finish completes the answer. It must be called once.
func (a *answer) finish(c *call) {
	if a.complete {
		return
	}
	if a.foreign {
		a.header.Set("Date", c.date())
	} else {
		stampAnswer(a.header, c)
	}
	a.behave(c)
	if a.failure != nil {
		a.wrapFailure(c)
	}
	switch {
	case a.status == http.StatusNotModified:
	case c.http.Method == http.MethodHead:
		// The handler announces the length that a GET would have. An error announces none.
		a.body = nil
		if a.status >= http.StatusBadRequest {
			a.header.Del("Content-Type")
		}
	case a.chunked:
	default:
		a.header.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
}

// date returns the time of the answer.
func (c *call) date() string { return stamp(c.now.Add(-c.manners.lag)) }

// stampAnswer sets the headers that every answer has.
func stampAnswer(h http.Header, c *call) {
	h.Set("Server", "Windows-Azure-Blob/1.0 Emulator")
	h.Set("X-Ms-Version", c.version)
	h.Set("X-Ms-Request-Id", requestID(c.n))
	if c.contentID == "" || h.Get("X-Ms-Error-Code") == "" {
		// Failed items of a batch have no Date.
		h.Set("Date", c.date())
	}
	if id := c.http.Header.Get("x-ms-client-request-id"); id != "" {
		h.Set("X-Ms-Client-Request-Id", id)
	}
}

// defaultVersion is the service version for clients that don't send one.
const defaultVersion = "2026-02-06"

// requestID returns an identifier in the form of the service's request IDs.
func requestID(n int) string {
	return fmt.Sprintf("%08x-001e-0000-0000-%012x", n&0xffffffff, n)
}
