package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

const portalPage = "<html><body>Please\nsign in.</body></html>"

// lies returns answers that do not come from the service, or are incomplete.
func lies() []emulator.Effect {
	var effects []emulator.Effect
	for _, status := range []int{200, 201, 202, 204, 206, 301, 302, 304, 307, 308, 400, 401, 403, 404, 407, 409, 410, 412, 418, 429, 451, 500, 502, 503, 507, 511, 520} {
		for _, e := range []emulator.Effect{emulator.Foreign(status, "text/html", portalPage), emulator.Foreign(status, "", "")} {
			effects = append(effects, e, e.Applied())
		}
	}
	for _, status := range []int{402, 410, 418, 422, 431, 451, 499, 505, 507, 520, 599} { // none of which is documented
		effects = append(effects, emulator.Answer(status, "Odd").Applied())
	}
	return append(effects,
		emulator.Redirect(302, "http://portal.invalid/login?secret"),
		emulator.Redirect(307, "https://elsewhere.invalid/").Applied(),
		emulator.Strip("X-Ms-Request-Id"),
	)
}

// operations returns one operation of each kind, for a world with the blobs "b" and "c" and without "new".
// Each operation returns an error unless it had its effect.
func operations() map[string]func(ctx context.Context, w *world) error {
	wrong := func(err error, ok bool) error {
		if err == nil && !ok {
			return errors.New("it did not have its effect")
		}
		return err
	}
	return map[string]func(ctx context.Context, w *world) error{
		"put": func(ctx context.Context, w *world) error {
			etag, err := w.Put(ctx, Ref{"box", "new"}, []byte("new"), mine(), IfNew)
			b, there := w.server.Blob("box", "new")
			return wrong(err, there && etag == b.ETag)
		},
		"put over": func(ctx context.Context, w *world) error {
			etag, err := w.Put(ctx, ref, []byte("new"), map[string]string{WriteID: "other"}, IfMatch(w.etag()))
			b, _ := w.server.Blob("box", "b")
			return wrong(err, etag == b.ETag && string(b.Body) == "new")
		},
		"put if there": func(ctx context.Context, w *world) error {
			_, err := w.Put(ctx, ref, []byte("new"), mine(), IfThere)
			b, _ := w.server.Blob("box", "b")
			return wrong(err, string(b.Body) == "new")
		},
		"put always": func(ctx context.Context, w *world) error {
			_, err := w.Put(ctx, Ref{"box", "new"}, []byte("new"), mine(), Always)
			return wrong(err, slices.Contains(w.names(), "new"))
		},
		"get": func(ctx context.Context, w *world) error {
			body, p, err := w.Get(ctx, ref)
			return wrong(err, string(body) == "abc" && p.ETag != "" && !p.LastModified.IsZero() && p.Metadata[WriteID] == "mine")
		},
		"head": func(ctx context.Context, w *world) error {
			p, err := w.Head(ctx, ref)
			return wrong(err, p.ETag != "" && !p.LastModified.IsZero() && p.Metadata[WriteID] == "mine")
		},
		"delete": func(ctx context.Context, w *world) error {
			return wrong(gone(w.Delete(ctx, ref, Always)), !slices.Contains(w.names(), "b"))
		},
		"delete batch": func(ctx context.Context, w *world) error {
			return wrong(gone(w.DeleteBatch(ctx, "box", []Target{{Name: "b"}, {Name: "c"}})), len(w.names()) == 0)
		},
		"create container": func(ctx context.Context, w *world) error {
			return wrong(w.CreateContainer(ctx, "other", nil), len(slices.Collect(w.server.Containers())) == 2)
		},
		"set container metadata": func(ctx context.Context, w *world) error {
			return w.SetContainerMetadata(ctx, "box", map[string]string{"layout": "1"})
		},
		"head container": func(ctx context.Context, w *world) error {
			c, err := w.HeadContainer(ctx, "box")
			return wrong(err, c.Metadata["layout"] == "1")
		},
		"list": func(ctx context.Context, w *world) error {
			names, _, err := all(w.List(ctx, "box", ListOptions{}))
			return wrong(err, slices.Equal(names, []string{"b", "c"}))
		},
		"list groups": func(ctx context.Context, w *world) error {
			names, _, err := all(w.ListGroups(ctx, "box", ListOptions{}, "-"))
			return wrong(err, slices.Equal(names, []string{"b", "c"}))
		},
		"list containers": func(ctx context.Context, w *world) error {
			names, _, err := all(w.ListContainers(ctx, "b"))
			return wrong(err, slices.Equal(names, []string{"box"}))
		},
	}
}

// gone accepts a missing blob as removed, because an earlier attempt with a disbelieved answer may have
// removed it.
func gone(err error) error {
	if Is(err, Absent) {
		return nil
	}
	return err
}

func writes(op string) bool {
	verb, _, _ := strings.Cut(op, " ")
	return slices.Contains([]string{"put", "delete", "create", "set"}, verb)
}

// interruptions are effects that leave a client without a valid answer.
var interruptions = []emulator.Effect{
	emulator.LostRequest(), emulator.Reset(), emulator.Silence(),
	emulator.Answer(500, "InternalError"), emulator.Answer(500, "OperationTimedOut"), emulator.Answer(503, "ServerBusy"),
	emulator.Answer(408, "RequestTimeout"), emulator.Answer(502, "BadGateway"), emulator.Answer(504, "GatewayTimeout"),
}

// TestOperationsThatAreInterrupted interrupts each operation in each way, before or after its effect, or with an effect
// that comes later. The operation is retried and succeeds.
func TestOperationsThatAreInterrupted(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for op, do := range operations() {
		for _, interruption := range interruptions {
			for _, effect := range []emulator.Effect{interruption, interruption.Applied(), interruption.Late(0), interruption.Late(1), interruption.Late(2)} {
				for times := 1; times <= 2; times++ {
					inFilledWorld(t, func(t *testing.T, w *world) {
						w.server.Inject(emulator.On().Times(times).Do(effect))
						if err := do(t.Context(), w); err != nil || len(w.retries) != times {
							t.Errorf("%s, %s %d times: %v, %d retries", op, effect, times, err, len(w.retries))
						}
					})
				}
			}
		}
	}
}

// TestAnswersOfOthersAreNotBelieved replaces the first answer to each operation, or all, by a lie. The operation must
// be retried. If the lie lasts, the error quotes the answer unless this may repeat what was sent, and the outcome of a
// write is unknown.
func TestAnswersOfOthersAreNotBelieved(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for i, op := range slices.Sorted(maps.Keys(operations())) {
		do := operations()[op]
		for j, lie := range lies() {
			if (i+j)%efforttest.Pick(3, 3, 1) != 0 { // operations have different samples
				continue
			}
			what := op + ", " + lie.String()
			inFilledWorld(t, func(t *testing.T, w *world) {
				w.server.Inject(emulator.On().Nth(1).Do(lie))
				if err := do(t.Context(), w); err != nil || len(w.retries) != 1 {
					t.Errorf("%s: %v, %d retries", what, err, len(w.retries))
				}
			})
			inFilledWorld(t, func(t *testing.T, w *world) {
				w.retry.MaxElapsed = time.Minute
				w.server.Inject(emulator.On().Do(lie))
				err := do(t.Context(), w)
				wantError(t, what, err, Unreachable, writes(op))
				var foreign *foreignError
				if !errors.As(err, &foreign) {
					t.Fatalf("%s: %v", what, err)
				}
				text := detail(t, err)
				if !strings.Contains(text, "blob.emulator.invalid: ") || !strings.Contains(text, strconv.Itoa(foreign.status)) ||
					strings.ContainsAny(text, "\n\r") || strings.Contains(text, "secret") {
					t.Errorf("%s: %q", what, text)
				}
				quoted := strings.Contains(text, `text/html "<html><body>Please\nsign`)
				if strings.Contains(lie.String(), "text/html") && op != "head" && quoted == (strings.HasPrefix(op, "put") || op == "delete batch") {
					t.Errorf("%s: the page is quoted: %t: %q", what, quoted, text)
				}
				last := w.requests[max(0, len(w.requests)-2):] // a single delete may follow a batch
				if !slices.ContainsFunc(last, func(e RequestEvent) bool { return e.Status == foreign.status }) {
					t.Errorf("%s: the observer saw %v", what, last)
				}
			})
		}
	}
}

// TestMarksOfTheService removes a header from an answer. Documented headers are required, other headers are
// not.
func TestMarksOfTheService(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for op, do := range operations() {
		for _, header := range []string{"Etag", "Last-Modified", "X-Ms-Request-Id", "X-Ms-Version", "Server", "X-Ms-Client-Request-Id"} {
			inFilledWorld(t, func(t *testing.T, w *world) {
				w.server.Inject(emulator.On().Nth(1).Do(emulator.Strip(header)))
				err := do(t.Context(), w)
				want := 0
				if header == "X-Ms-Request-Id" || header == "X-Ms-Version" ||
					(header == "Etag" || header == "Last-Modified") && !strings.HasPrefix(op, "delete") && !strings.HasPrefix(op, "list") {
					want = 1
				}
				if op == "set container metadata" && header == "X-Ms-Version" {
					want = 0 // Azurite omits it
				}
				if err != nil || len(w.retries) != want {
					t.Errorf("%s without %s: %v, %d retries, want %d", op, header, err, len(w.retries), want)
				}
			})
		}
	}
}

// TestAnswersChangedByProxies changes the ETag or the MD5 of answers. The error names a proxy as the likely cause, and no
// version is taken from such an answer.
func TestAnswersChangedByProxies(t *testing.T) {
	for what, change := range map[string]func(http.Header){
		"weak":      func(h http.Header) { h.Set("ETag", "W/"+h.Get("ETag")) },
		"doubled":   func(h http.Header) { h.Set("ETag", `"`+h.Get("ETag")+`"`) },
		"unquoted":  func(h http.Header) { h.Set("ETag", strings.Trim(h.Get("ETag"), `"`)) },
		"its own":   func(h http.Header) { h.Set("ETag", `"5d8c72a5edda8d6a:3239"`) },
		"two ETags": func(h http.Header) { h.Add("ETag", `"0x1"`) },
		"no MD5":    func(h http.Header) { h.Del("Content-MD5") },
	} {
		for op, do := range operations() {
			if !strings.HasPrefix(op, "put") && op != "get" && op != "head" || what == "no MD5" && op != "get" {
				continue
			}
			inFilledWorld(t, func(t *testing.T, w *world) {
				w.Client = w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
					resp, err := next(req)
					if err == nil && resp.StatusCode < http.StatusBadRequest {
						change(resp.Header)
					}
					return resp, err
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := do(ctx, w); err == nil || !strings.Contains(err.Error(), "most likely because of a proxy") || Is(err, Mismatch) {
					t.Errorf("%s, %s: %v", what, op, err)
				}
			})
		}
	}
}

// TestRefusalsHaveACode checks which refusals are believed. A refusal without an error code is not. A code in
// the body is enough, and x-ms-version may be missing, because the service omits it in early refusals.
func TestRefusalsHaveACode(t *testing.T) {
	get := func(ctx context.Context, w *world) error { _, _, err := w.Get(ctx, ref); return err }
	head := func(ctx context.Context, w *world) error { _, err := w.Head(ctx, ref); return err } // its answer has no body
	for _, test := range []struct {
		strip   string
		ask     func(context.Context, *world) error
		retries int
	}{{"X-Ms-Error-Code", get, 0}, {"X-Ms-Error-Code", head, 1}, {"X-Ms-Version", get, 0}, {"X-Ms-Request-Id", get, 1}} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(emulator.On().Nth(1).Do(emulator.Strip(test.strip)))
			wantError(t, "without "+test.strip, test.ask(t.Context(), w), Absent, false)
			if len(w.retries) != test.retries {
				t.Errorf("without %s: %d retries", test.strip, len(w.retries))
			}
		})
	}
}

// TestBodiesBeyondTheLimitAreNotRead announces a body that is larger than any Put writes, or sends a larger
// answer than any batch has.
func TestBodiesBeyondTheLimitAreNotRead(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	inFilledWorld(t, func(t *testing.T, w *world) {
		var sent *watched
		n, length := 0, int64(300<<20)
		c := w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
			resp, err := next(req)
			n++
			sent = &watched{Reader: strings.NewReader(strings.Repeat(" ", 4<<20))}
			resp.Body, resp.ContentLength = sent, length
			return resp, err
		})
		_, _, err := c.Get(t.Context(), ref)
		wantError(t, "a blob", err, Damaged, false)
		if sent.n > 0 || n != 1 || !sent.closed {
			t.Errorf("%d bytes of a blob were read in %d requests, body closed: %v", sent.n, n, sent.closed)
		}
		wantError(t, "a batch", c.DeleteBatch(t.Context(), "box", []Target{{Name: "b"}}), Unreachable, true)
		length = -1
		wantError(t, "a batch of no length", c.DeleteBatch(t.Context(), "box", []Target{{Name: "b"}}), Absent, false) // as a single delete finds out
		if sent.n > 2<<20 {
			t.Errorf("%d bytes of a batch's answer were read", sent.n)
		}
	})
	get := &http.Request{Method: http.MethodGet, URL: &url.URL{}}
	for size, want := range map[int]error{9: nil, 10: nil, 11: errTooLarge, 100: errTooLarge} {
		r := strings.NewReader(strings.Repeat("x", size))
		got, err := io.ReadAll(&limitedBody{ReadCloser: io.NopCloser(r), left: 10, req: get})
		if !errors.Is(err, want) || len(got) > 10 || size-r.Len() > 11 {
			t.Errorf("of %d bytes %d were read: %v", size, size-r.Len(), err)
		}
	}
}

// watched is a body that records its use.
type watched struct {
	io.Reader
	n             int
	ended, closed bool
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.n, w.ended = w.n+n, w.ended || err == io.EOF
	return n, err
}

func (w *watched) Close() error {
	w.closed = true
	return nil
}

// TestRedirectsAreNotFollowed uses sockets: neither the client's own transport nor a given http.Client
// follows a redirect.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var portal *httptest.Server
	asked, followed := 0, 0
	portal = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; r.URL.Path == "/login" {
			followed++
		}
		http.Redirect(w, r, portal.URL+"/login", http.StatusTemporaryRedirect)
	}))
	defer portal.Close()
	given := &http.Client{}
	for what, o := range map[string]Options{"own transport": {}, "given client": {ClientOptions: policy.ClientOptions{Transport: given}}} {
		o.Concurrency, o.Retry = 1, Retry{time.Millisecond, time.Millisecond, 5 * time.Millisecond}
		c, err := NewFromConnectionString("BlobEndpoint="+portal.URL+";SharedAccessSignature=sig=secret", o)
		must(t, err)
		_, err = c.Head(t.Context(), ref)
		wantError(t, what, err, Unreachable, false)
		if followed > 0 || asked == 0 || !strings.Contains(detail(t, err), "a redirect to "+strings.TrimPrefix(portal.URL, "http://")+" is not followed") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %d of %d requests followed the redirect: %v", what, followed, asked, err)
		}
		c.Close()
	}
	if given.CheckRedirect != nil {
		t.Error("the caller's client was changed")
	}
}

// TestAnswersAfterARedirect uses a transport that follows redirects, which net/http records in the response.
// A transport that only sends requests to another host than the URL's, such as a private endpoint, does not
// follow redirects.
func TestAnswersAfterARedirect(t *testing.T) {
	inFilledWorld(t, func(t *testing.T, w *world) {
		var before *http.Response
		c := w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
			resp, err := next(req)
			resp.Request = req.Clone(req.Context())
			resp.Request.URL.Host, resp.Request.Response = "other.invalid", before
			return resp, err
		})
		_, err := c.Head(t.Context(), ref)
		must(t, err)
		before = &http.Response{StatusCode: http.StatusFound}
		_, err = c.Head(t.Context(), ref)
		wantError(t, "redirected", err, Unreachable, false)
		if !strings.Contains(detail(t, err), "other.invalid after a redirect") {
			t.Error(err)
		}
	})
}

// TestOnlyFailedConditionsAreMismatches tries all codes with the statuses of refusals.
func TestOnlyFailedConditionsAreMismatches(t *testing.T) {
	mismatches := []bloberror.Code{"BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet", "ResourceAlreadyExists", "ContainerAlreadyExists"}
	absences := []bloberror.Code{"BlobNotFound", "ContainerNotFound", "ResourceNotFound"}
	open := []bloberror.Code{"ServerBusy", "OperationTimedOut", "InternalError"}
	for code, m := range meanings {
		for _, status := range []int{400, 403, 404, 409, 412} {
			v := judge(answer(status, string(code)))
			if (v.reason == Mismatch) != slices.Contains(mismatches, code) || v.applied != slices.Contains(open, code) ||
				(v.reason == Absent || v.reason == AbsentContainer) != slices.Contains(absences, code) {
				t.Errorf("%d %s: %+v", status, code, v)
			}
		}
		if m.reason == Refused && m.remedy == "" {
			t.Errorf("%s has no remedy", code)
		}
	}
}

// TestRefusalsNameTheRemedy refuses each operation by some codes, and checks the texts of refusals that operators meet.
func TestRefusalsNameTheRemedy(t *testing.T) {
	for op, do := range operations() {
		for code, reason := range map[string]Reason{"AuthorizationFailure": Refused, "NobodyKnowsThis": Refused, "BlobArchived": Damaged} {
			if reason == Damaged && op == "delete batch" {
				continue // it is about one blob
			}
			inFilledWorld(t, func(t *testing.T, w *world) {
				w.server.Inject(emulator.On().Do(emulator.Answer(403, code)))
				err := do(t.Context(), w)
				wantError(t, op+", "+code, err, reason, false)
				if text := detail(t, err); !strings.Contains(text, "blob.emulator.invalid: ") || !strings.Contains(text, "403 "+code) || strings.Contains(text, "\n") {
					t.Errorf("%s: %q", op, text)
				}
				// A refused batch is followed by a delete of each of its two blobs, and refused groups by a listing of all names.
				most := map[string]int{"delete batch": 3, "list groups": 2}[op]
				if len(w.requests) > max(most, 1) {
					t.Errorf("%s, %s: %d requests", op, code, len(w.requests))
				}
			})
		}
	}
	for code, want := range map[string]string{
		"AuthenticationFailed": "key", "AuthorizationPermissionMismatch": "Storage Blob Data Contributor", "AuthorizationFailure": "firewall",
		"AuthorizationSourceIPMismatch": "address", "SnapshotsPresent": "snapshots", "BlobArchived": "archive", "BlobImmutableDueToLegalHold": "legal hold",
		"LeaseIdMissing": "lease", "KeyBasedAuthenticationNotPermitted": "log in with an identity", "TlsVersionNotPermitted": "minimum TLS version",
		"ContainerImmutabilityPolicyLocked": "az storage container-rm delete", "ContainerHasLegalHold": "legal hold", "InvalidHeaderValue": "APIVersion",
		"InvalidInput": "does not send such requests", "AccountIsDisabled": "subscription", "InsufficientAccountPermissions": "read-only",
		"ContainerDisabled": "state of the account",
	} {
		if text := explain(answer(400, code)).Error(); !strings.Contains(text, want) || !strings.Contains(text, code) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
	if text := explain(answer(409, "NobodyKnowsThis")).Error(); text != "the service answers 409 NobodyKnowsThis" {
		t.Error(text)
	}
}

// TestRefusalsOfVersions refuses all requests as the service refuses those of a version that it does not know: with
// 400 and x-ms-request-id, and nothing else of its marks. That is final, and the error says what to do.
func TestRefusalsOfVersions(t *testing.T) {
	for op, do := range operations() {
		inFilledWorld(t, func(t *testing.T, w *world) {
			w.Client = w.over(t, func(*http.Request, sender) (*http.Response, error) {
				return &http.Response{
					StatusCode: 400, Header: http.Header{"X-Ms-Request-Id": {"1"}, "Content-Type": {"text/html"}}, ContentLength: -1,
					Body: io.NopCloser(strings.NewReader("<html><body>Bad Request - Invalid Header</body></html>")), // a HEAD has none
				}, nil
			})
			err := do(t.Context(), w)
			wantError(t, op, err, Refused, false)
			for _, want := range []string{"400 to version " + Version + " (request 1)", "APIVersion", "--service-version"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", op, err, want)
				}
			}
			if n := len(w.requests); n != 1 && (op != "list groups" || n != 2) {
				t.Errorf("%s: %d requests", op, n)
			}
		})
	}
}

// TestHeadersOfRequests looks at headers that the SDK adds of its own accord, or that it can't set. In the minute after
// a 503, it would make writes wait for 100 Continue; and it may choose the format of listings.
func TestHeadersOfRequests(t *testing.T) {
	for op, do := range operations() {
		inFilledWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(emulator.On().Nth(1).Do(emulator.Answer(503, "ServerBusy")))
			w.Client = w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
				if got := headerOf(req, "Expect"); got != nil {
					t.Errorf("%s: Expect: %q", op, got)
				}
				if got := headerOf(req, "Accept"); lists(req) && !slices.Equal(got, []string{"application/xml"}) {
					t.Errorf("%s: Accept: %q", op, got)
				}
				if got := headerOf(req, "x-ms-version"); !slices.Equal(got, []string{"2026-02-06"}) {
					t.Errorf("%s: version %q", op, got)
				}
				return next(req)
			})
			if err := do(t.Context(), w); err != nil {
				t.Errorf("%s: %v", op, err)
			}
		})
	}
	account, err := ParseConnectionString(emulator.New(emulator.Options{}).ConnectionString())
	must(t, err)
	c, err := account.New(Options{Concurrency: 1, ClientOptions: policy.ClientOptions{APIVersion: "2021-12-02", Transport: sender(func(req *http.Request) (*http.Response, error) {
		if got := headerOf(req, "x-ms-version"); !slices.Equal(got, []string{"2021-12-02"}) {
			t.Errorf("version %q", got)
		}
		return nil, context.Canceled
	})}})
	must(t, err)
	_, _ = c.Head(Once(t.Context()), ref)
}

// TestErrorsTellNoSecret uses transports that quote the URL or the headers of the request, in errors and in pages.
func TestErrorsTellNoSecret(t *testing.T) {
	const sig = "Zm9v+YmFy/cXV4SECRET=="
	escaped := url.QueryEscape(sig)
	query := "sv=2024-01-01&sig=" + escaped + "&sp=rwdlc"
	refusal := func(header http.Header, body string) (*http.Response, error) {
		return &http.Response{StatusCode: 403, Header: header, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
	for what, send := range map[string]func(text string) (*http.Response, error){
		"an error":      func(text string) (*http.Response, error) { return nil, fmt.Errorf("%w: %s", io.ErrClosedPipe, text) },
		"joined errors": func(text string) (*http.Response, error) { return nil, errors.Join(io.ErrClosedPipe, errors.New(text)) },
		"an error of net/http": func(text string) (*http.Response, error) {
			return nil, fmt.Errorf("my transport: %w", &url.Error{Op: "Put", URL: text, Err: io.ErrClosedPipe})
		},
		"a body that breaks off": func(text string) (*http.Response, error) {
			return &http.Response{StatusCode: 403, Header: http.Header{}, Body: brokenBody{http.NoBody, fmt.Errorf("%w: %s", io.ErrClosedPipe, text)}}, nil
		},
		"a page": func(text string) (*http.Response, error) {
			return refusal(http.Header{"Content-Type": {"text/html"}}, text)
		},
		"a page with an error code": func(text string) (*http.Response, error) {
			return refusal(http.Header{"X-Ms-Request-Id": {"1"}, "X-Ms-Error-Code": {text}}, "")
		},
	} {
		for _, text := range []string{
			"https://a.invalid/box?" + query, "/?to=" + url.QueryEscape("https://a.invalid/box?"+query), sig + " and " + escaped, "&SIG=" + strings.ToLower(escaped),
			"sig=" + sig, strings.Repeat(".", 48) + sig, "sig=" + strings.ReplaceAll(sig, "+", "&#43;"),
		} {
			var events []error
			c, err := NewFromConnectionString("BlobEndpoint=https://a.invalid;SharedAccessSignature="+query, Options{
				Concurrency: 1, Retry: Retry{time.Millisecond, time.Millisecond, 3 * time.Millisecond},
				ClientOptions: policy.ClientOptions{Transport: sender(func(*http.Request) (*http.Response, error) { return send(text) })},
				OnRequest:     func(_ context.Context, e RequestEvent) { events = append(events, e.Err) },
				OnRetry:       func(_ context.Context, e RetryEvent) { events = append(events, e.Err) },
			})
			must(t, err)
			_, err = c.Head(t.Context(), ref)
			wantError(t, what, err, Unreachable, false)
			for _, err := range append(events, err) {
				for ; err != nil; err = errors.Unwrap(err) {
					if text := strings.ToLower(err.Error()); strings.Contains(text, "zm9v") || strings.Contains(text, "secret") || strings.Contains(text, "ymfy") {
						t.Errorf("%s: %v", what, err)
					}
				}
			}
			if !strings.Contains(what, "page") && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%s: %v is not the transport's error", what, err)
			}
		}
	}
	inFilledWorld(t, func(t *testing.T, w *world) { // an account key signs each request
		var signed string
		broken := false
		c := w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
			_, signed, _ = strings.Cut(req.Header.Get("Authorization"), " ")
			err := fmt.Errorf("%w: headers %v", io.ErrClosedPipe, req.Header)
			if !broken {
				return nil, err
			}
			resp, _ := next(req)
			resp.Body = brokenBody{Reader: resp.Body, err: err}
			return resp, nil
		})
		for _, broken = range []bool{false, true} {
			_, _, err := c.Get(t.Context(), ref)
			var quoted *redactedError
			if !errors.Is(err, io.ErrClosedPipe) || !errors.As(err, &quoted) || signed == "" || strings.Contains(err.Error(), signed) {
				t.Errorf("a body that breaks off: %t, signed %q: %v", broken, signed, err)
			}
		}
	})
}

// TestRedactedMAC quotes the signature of a request that is signed with the account's key, alone, as the
// service and proxies do.
func TestRedactedMAC(t *testing.T) {
	const mac = "bWFj+c2ln/bmF0dXJl="
	req := &http.Request{URL: &url.URL{}, Header: http.Header{"Authorization": {"SharedKey account:" + mac}}}
	for _, text := range []string{"SharedKey account:" + mac, "the MAC signature found in the HTTP request '" + mac + "' is not the same"} {
		if got := redact(req, text); strings.Contains(got, mac) || !strings.Contains(got, redacted) {
			t.Errorf("got %q", got)
		}
	}
}
