package blob

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
)

// wire is the client's transport. It sends a request and returns the answer of the service. Proxies, captive
// portals and load balancers may answer, too. An answer without the marks of the service is a *foreignError
// and says nothing about what is stored.
type wire struct {
	next      policy.Transporter
	onStart   func(context.Context, RequestEvent) // may be nil
	onRequest func(context.Context, RequestEvent) // may be nil
}

// Limits of bodies. The limit for a blob and for a page of a listing is MaxBody.
const (
	maxRefusal = 64 << 10
	maxAnswer  = 1 << 20 // the answer to a full batch is about a tenth of this
)

// Do implements [policy.Transporter]. Neither its errors nor those of the body contain what authorizes the
// request.
func (w wire) Do(req *http.Request) (*http.Response, error) {
	x := w.begin(req)
	resp, err := w.do(req, x)
	if err != nil {
		err = redactError(req, explain(whyEnded(req.Context(), err)))
	}
	if err != nil || resp.StatusCode >= http.StatusBadRequest || req.Method == http.MethodHead { // no body is left to read
		x.failed(err)
		x.end()
	}
	return resp, err
}

func (w wire) do(req *http.Request, x *exchange) (*http.Response, error) {
	call, _ := req.Context().Value(callKey{}).(call)
	call.watch(req)
	resp, err := w.next.Do(req)
	if err == nil && resp == nil {
		err = errors.New("the transport returned neither an answer nor an error")
	}
	if err != nil {
		return nil, err
	}
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	call.watchAnswer(resp)
	if resp.Request == nil { // remedies look at it
		resp.Request = req
	}
	x.answered(resp)
	code := resp.Header.Get("X-Ms-Error-Code")
	if resp.StatusCode >= http.StatusBadRequest {
		// Read the body here, so that a refusal with an incomplete body is a failure of the connection.
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
		resp.Body.Close()
		if err != nil {
			return nil, err
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
		if code == "" {
			code = CodeOf(body)
		}
	}
	if why := stranger(req, resp, code); why != "" {
		return nil, newForeignError(req, resp, why)
	}
	if err := limit(req, resp, x); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// CodeOf returns the error code in the service's XML, or "" if the body is something else.
func CodeOf(body []byte) string {
	var e struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
	}
	if xml.Unmarshal(body, &e) != nil {
		return ""
	}
	return e.Code
}

// isCode matches the form of an error code, and the empty string. Other texts must not be quoted.
var isCode = regexp.MustCompile(`^[A-Za-z0-9]{0,100}$`)

// stranger returns why an answer does not come from the service, or "" if it does. code is the error code of
// a refusal.
//
// An answer of the service has x-ms-request-id and a documented status. A success has x-ms-version and the
// headers that are documented for it. A refusal has an error code. It may lack x-ms-version, because the
// service omits that if it refuses a request before it parses it, and Azurite always does. A 400 may lack the code, too:
// that is how the service refuses a version that it does not know. A 304 is the answer to a GET that excludes a version.
func stranger(req *http.Request, resp *http.Response, code string) string {
	status := resp.StatusCode
	needed := append(make([]string, 0, 4), "X-Ms-Request-Id") // in the canonical form, which needs no conversion
	switch {
	case resp.Request != nil && resp.Request.Response != nil: // a transport may well send to another host than the URL's
		return "it comes from " + resp.Request.URL.Host + " after a redirect"
	case status < http.StatusBadRequest && alteredETag(resp.Header) != "":
		return alteredETag(resp.Header)
	case status == http.StatusNotModified:
		// A cache in between may answer so, too, but not with an error code.
		excluded, etag := req.Header.Get("If-None-Match"), strings.Trim(resp.Header.Get("ETag"), `"`)
		if req.Method != http.MethodGet || excluded == "" {
			return "the request excludes no version"
		}
		if code != string(bloberror.ConditionNotMet) {
			return "it has no error code of an excluded version"
		}
		if etag != "" && etag != strings.Trim(excluded, `"`) {
			return "it is about another version"
		}
		needed = append(needed, "X-Ms-Version")
	case status >= http.StatusMultipleChoices && status < http.StatusBadRequest:
		return "a redirect" + target(resp) + " is not followed"
	case status >= http.StatusBadRequest:
		if !documented(status) {
			return "the service has no such status"
		}
		if code == "" && status < http.StatusInternalServerError && status != http.StatusBadRequest {
			return "it has no error code"
		}
		if !isCode.MatchString(code) {
			return "the service has no such error code"
		}
	case status == http.StatusPartialContent && req.Method == http.MethodGet && ranged(req):
		needed = append(needed, "X-Ms-Version", "ETag", "Last-Modified", "Content-Range")
	case status != success(req):
		return fmt.Sprintf("the service answers %s with %d", req.Method, success(req))
	default:
		if !setsContainerMetadata(req) {
			needed = append(needed, "X-Ms-Version")
		}
		if (req.Method == http.MethodPut || req.Method == http.MethodGet || req.Method == http.MethodHead) && !lists(req) && !ofService(req) {
			needed = append(needed, "ETag", "Last-Modified")
		}
	}
	for _, name := range needed {
		if resp.Header.Get(name) == "" {
			return "it has no " + name
		}
	}
	return ""
}

// alteredETag returns why an answer's ETag is not as the service has sent it, or "" if it may be, or if there is none. No
// condition would match such a version.
func alteredETag(h http.Header) string {
	why := "its ETag does not have the service's form"
	switch tags := h.Values("ETag"); {
	case len(tags) == 0, len(tags) == 1 && tags[0] == quoted(strings.Trim(tags[0], `"`)):
		return ""
	case len(tags) > 1:
		why = "it has several ETags"
	case strings.HasPrefix(tags[0], "W/"):
		why = "its ETag is weak"
	}
	return why + ", most likely because of a proxy: make it pass answers unchanged, or go around it"
}

// ofService reports whether a request asks for properties of the service or of the account.
func ofService(req *http.Request) bool {
	restype := parameter(req, "restype")
	return restype == "service" || restype == "account"
}

// setsContainerMetadata reports whether a request sets the metadata of a container. Azurite omits x-ms-version from its
// answer. Nothing depends on who answers, because the vault keeps no more than hints there.
func setsContainerMetadata(req *http.Request) bool {
	return parameter(req, "restype") == "container" && parameter(req, "comp") == "metadata"
}

// ranged reports whether a request asks for a part of a blob.
func ranged(req *http.Request) bool {
	return headerOf(req, "x-ms-range") != nil || headerOf(req, "range") != nil
}

// headerOf returns the values of a header. The SDK writes most names in lower case, and not in the canonical form.
func headerOf(req *http.Request, name string) []string {
	for is, values := range req.Header {
		if strings.EqualFold(is, name) {
			return values
		}
	}
	return nil
}

// lists reports whether a request asks for a page of a listing.
func lists(req *http.Request) bool { return parameter(req, "comp") == "list" }

// parameter returns a parameter of the URL of a request, as the SDK has written it. Those that the client asks
// for need no escapes, and a map of all parameters for each answer costs too much.
func parameter(req *http.Request, name string) string {
	for p := range strings.SplitSeq(req.URL.RawQuery, "&") {
		if is, value, _ := strings.Cut(p, "="); is == name {
			return value
		}
	}
	return ""
}

// target returns where a redirect leads, without parts that may be secret.
func target(resp *http.Response) string {
	u, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || u.Host == "" {
		return ""
	}
	return " to " + u.Host
}

// success returns the status of a successful request. Each method that the client uses has one, apart from two
// PUTs that create nothing: the release of a lease, and metadata.
func success(req *http.Request) int {
	switch req.Method {
	case http.MethodPut:
		if releases(req) || parameter(req, "comp") == "metadata" {
			return http.StatusOK
		}
		return http.StatusCreated
	case http.MethodDelete, http.MethodPost:
		return http.StatusAccepted
	}
	return http.StatusOK
}

// documented reports whether the service documents a status for refusals.
func documented(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusNotAcceptable, http.StatusRequestTimeout, http.StatusConflict, http.StatusLengthRequired, http.StatusPreconditionFailed,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusRequestedRangeNotSatisfiable, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusNotImplemented, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// errTooLarge is the error for a blob that is too large to come from a Put of this client.
var errTooLarge = errors.New("the blob is larger than the vault writes")

// limit refuses an answer by its announced length, and bounds the reading of a body without one. The exchange
// ends when the body is closed.
func limit(req *http.Request, resp *http.Response, x *exchange) error {
	if req.Method == http.MethodHead { // announces the length for a GET
		return nil
	}
	most := int64(maxAnswer)
	if req.Method == http.MethodGet && !ofService(req) {
		most = MaxBody
	}
	if resp.ContentLength > most {
		return fmt.Errorf("%w: %d bytes, the limit is %d", tooLarge(req, resp.StatusCode), resp.ContentLength, most)
	}
	resp.Body = &limitedBody{ReadCloser: resp.Body, req: req, exchange: x, left: most, status: resp.StatusCode}
	return nil
}

// tooLarge returns the error for an answer whose body exceeds its limit.
func tooLarge(req *http.Request, status int) error {
	if req.Method == http.MethodGet && !lists(req) && !ofService(req) {
		return errTooLarge
	}
	return &foreignError{status: status, text: fmt.Sprintf("%d with a larger body than the service sends", status)}
}

type limitedBody struct {
	io.ReadCloser
	req      *http.Request
	exchange *exchange
	left     int64
	status   int
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		err := tooLarge(b.req, b.status)
		b.exchange.failed(err)
		return 0, err
	}
	if err != nil && err != io.EOF { // readers return io.EOF unwrapped
		err = redactError(b.req, whyEnded(b.req.Context(), err))
		b.exchange.failed(err)
	}
	return n, err
}

func (b *limitedBody) Close() error {
	defer b.exchange.end()
	return b.ReadCloser.Close()
}

// foreignError is an answer that does not come from the service.
type foreignError struct {
	status int
	text   string
	after  time.Duration // the requested wait
}

// newForeignError describes an answer and closes its body.
func newForeignError(req *http.Request, resp *http.Response, why string) *foreignError {
	defer resp.Body.Close()
	text := fmt.Sprintf("%d, which is not the service's: %s", resp.StatusCode, why)
	page, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // only a connection that was read to the end is reused
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err == nil {
		text += ": " + kind
		if len(page) > 0 && strings.HasPrefix(kind, "text/") && req.ContentLength == 0 { // others may echo a plan
			const words = 60
			start := redact(req, string(page)) // before cutting, because a part of a secret would not be recognized
			text += fmt.Sprintf(" %q", start[:min(words, len(start))])
		}
	}
	return &foreignError{resp.StatusCode, text, retryAfter(resp.Header)}
}

func (e *foreignError) Error() string { return "the answer is " + e.text }

// decoder reads the body of a successful answer in place of the SDK.
type decoder func(*http.Response) error

// decoderKey is the context key of the decoder of a request.
type decoderKey struct{}

// decode is a policy that passes the body to the decoder of the request, and leaves an empty body to the SDK.
type decode struct{}

func (decode) Do(req *policy.Request) (*http.Response, error) {
	d, wanted := req.Raw().Context().Value(decoderKey{}).(decoder)
	if !wanted {
		return req.Next()
	}
	runtime.SkipBodyDownload(req)
	resp, err := req.Next()
	if err != nil || resp.StatusCode >= http.StatusBadRequest {
		return resp, err
	}
	defer resp.Body.Close()
	err = d(resp)
	resp.Body = http.NoBody
	return resp, err
}
