package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
			old, _ := w.server.Blob("box", "b")
			etag, err := w.Put(ctx, ref, []byte("new"), map[string]string{WriteID: "other"}, IfMatch(old.ETag))
			b, _ := w.server.Blob("box", "b")
			return wrong(err, etag == b.ETag && string(b.Body) == "new")
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
		"head container": func(ctx context.Context, w *world) error {
			c, err := w.HeadContainer(ctx, "box")
			return wrong(err, c.Metadata["layout"] == "1")
		},
		"list": func(ctx context.Context, w *world) error {
			var names []string
			for page, err := range w.List(ctx, "box", ListOptions{}) {
				if err != nil {
					return err
				}
				for _, item := range page.Items {
					names = append(names, item.Name)
				}
			}
			return wrong(nil, slices.Equal(names, []string{"b", "c"}))
		},
		"list groups": func(ctx context.Context, w *world) error {
			var names []string
			for groups, err := range w.ListGroups(ctx, "box", ListOptions{}, "-") {
				if err != nil {
					return err
				}
				names = append(names, groups...)
			}
			return wrong(nil, slices.Equal(names, []string{"b", "c"}))
		},
		"list containers": func(ctx context.Context, w *world) error {
			n := 0
			for page, err := range w.ListContainers(ctx, "b") {
				if err != nil {
					return err
				}
				n += len(page)
			}
			return wrong(nil, n == 1)
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
	return strings.HasPrefix(op, "put") || strings.HasPrefix(op, "delete") || strings.HasPrefix(op, "create")
}

// sampled returns one lie of n for an operation, or each with PLANVAULT_LONG. The operations have different samples.
func sampled(op string, n int) iter.Seq[emulator.Effect] {
	return func(yield func(emulator.Effect) bool) {
		all := slices.Index(slices.Sorted(maps.Keys(operations())), op)
		for i, lie := range lies() {
			if (i+all)%efforttest.Pick(n, n, 1) == 0 && !yield(lie) {
				return
			}
		}
	}
}

// inFilledWorld is inWorld with the blobs that operations needs.
func inFilledWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	inWorld(t, func(t *testing.T, w *world) {
		w.server.PutContainer("box", map[string]string{"layout": "1"})
		w.server.Put("box", "b", []byte("abc"), mine())
		w.server.Put("box", "c", []byte("abc"), mine())
		test(t, w)
	})
}

// TestAnswersOfOthersAreNotBelieved replaces the first answer to each operation by a lie. The operation must
// be retried and succeed.
func TestAnswersOfOthersAreNotBelieved(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for op, do := range operations() {
		for lie := range sampled(op, 2) {
			inFilledWorld(t, func(t *testing.T, w *world) {
				w.server.Inject(emulator.On().Nth(1).Do(lie))
				if err := do(t.Context(), w); err != nil {
					t.Errorf("%s, %s: %v", op, lie, err)
				}
				if len(w.retries) != 1 {
					t.Errorf("%s, %s: %d retries", op, lie, len(w.retries))
				}
			})
		}
	}
}

// TestAnswersOfOthersThatLast replaces all answers. The error must quote the answer unless this may repeat what
// was sent, and the outcome of a write is unknown.
func TestAnswersOfOthersThatLast(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	hasBody := map[string]bool{"put": true, "put over": true, "delete batch": true}
	for op, do := range operations() {
		for lie := range sampled(op, 4) {
			inFilledWorld(t, func(t *testing.T, w *world) {
				w.retry.MaxElapsed = time.Minute
				w.server.Inject(emulator.On().Do(lie))
				err := do(t.Context(), w)
				wantError(t, op+", "+lie.String(), err, Unreachable, writes(op))
				var foreign *foreignError
				if !errors.As(err, &foreign) {
					t.Fatalf("%s, %s: %v", op, lie, err)
				}
				for _, want := range []string{"blob.emulator.invalid: ", strconv.Itoa(foreign.status)} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%s, %s: %q lacks %q", op, lie, err, want)
					}
				}
				if strings.ContainsAny(err.Error(), "\n\r") || strings.Contains(err.Error(), "secret") {
					t.Errorf("%s, %s: %q", op, lie, err)
				}
				quoted := strings.Contains(err.Error(), `text/html "<html><body>Please\nsign`)
				if strings.Contains(lie.String(), "text/html") && op != "head" && quoted == hasBody[op] {
					t.Errorf("%s, %s: the page is quoted: %t: %q", op, lie, quoted, err)
				}
				last := w.requests[max(0, len(w.requests)-2):] // a single delete may follow a batch
				if !slices.ContainsFunc(last, func(e RequestEvent) bool { return e.Status == foreign.status }) {
					t.Errorf("%s, %s: the observer saw %v", op, lie, last)
				}
			})
		}
	}
}

// TestMarksOfTheService removes a header from an answer. Documented headers are required, other headers are
// not.
func TestMarksOfTheService(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	needed := map[string][]string{
		"put": {"Etag", "Last-Modified"}, "put over": {"Etag", "Last-Modified"}, "get": {"Etag", "Last-Modified"},
		"head": {"Etag", "Last-Modified"}, "create container": {"Etag", "Last-Modified"}, "head container": {"Etag", "Last-Modified"},
	}
	for op, do := range operations() {
		for _, header := range []string{"Etag", "Last-Modified", "X-Ms-Request-Id", "X-Ms-Version", "Server", "X-Ms-Client-Request-Id", "X-Ms-Request-Server-Encrypted", "Accept-Ranges"} {
			inFilledWorld(t, func(t *testing.T, w *world) {
				w.server.Inject(emulator.On().Nth(1).Do(emulator.Strip(header)))
				if err := do(t.Context(), w); err != nil {
					t.Errorf("%s without %s: %v", op, header, err)
				}
				want := 0
				if header == "X-Ms-Request-Id" || header == "X-Ms-Version" || slices.Contains(needed[op], header) {
					want = 1
				}
				if len(w.retries) != want {
					t.Errorf("%s without %s: %d retries, want %d", op, header, len(w.retries), want)
				}
			})
		}
	}
}

// TestRefusalsHaveACode checks which refusals are believed. A refusal without an error code is not. A code in
// the body is enough, and x-ms-version may be missing, because the service omits it in early refusals.
func TestRefusalsHaveACode(t *testing.T) {
	for _, test := range []struct {
		strip   string
		retries int
	}{{"X-Ms-Error-Code", 0}, {"X-Ms-Version", 0}, {"X-Ms-Request-Id", 1}} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(emulator.On().Nth(1).Do(emulator.Strip(test.strip)))
			_, _, err := w.Get(t.Context(), ref)
			wantError(t, "without "+test.strip, err, Absent, false)
			if len(w.retries) != test.retries {
				t.Errorf("without %s: %d retries", test.strip, len(w.retries))
			}
		})
	}
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On().Nth(1).Do(emulator.Strip("X-Ms-Error-Code")))
		_, err := w.Head(t.Context(), ref) // has no body
		wantError(t, "HEAD", err, Absent, false)
		if len(w.retries) != 1 {
			t.Errorf("a HEAD without a code: %d retries", len(w.retries))
		}
	})
}

// TestStatusesThatAreNotDocumented checks that undocumented statuses are not believed. The write may have
// taken effect.
func TestStatusesThatAreNotDocumented(t *testing.T) {
	for _, status := range []int{402, 410, 418, 422, 431, 451, 499, 501, 505, 507, 520, 599} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(emulator.On(emulator.PutBlob).Nth(1).Do(emulator.Answer(status, "Odd").Applied()))
			_, err := w.Put(t.Context(), ref, []byte("new"), mine(), IfNew)
			if err != nil || len(w.retries) != 1 {
				t.Errorf("%d after the effect: %v, %d retries", status, err, len(w.retries))
			}
			w.server.Inject(emulator.On().Do(emulator.Answer(status, "Odd").Applied()))
			_, err = w.Put(t.Context(), ref, []byte("newer"), others(), Always)
			wantError(t, fmt.Sprintf("%d that lasts", status), err, Unreachable, true)
		})
	}
}

// TestListedBlobsHaveVersions removes an ETag or a time from a page, which would make a blob look old or
// without version.
func TestListedBlobsHaveVersions(t *testing.T) {
	for _, tag := range []string{"Etag", "Last-Modified"} {
		inFilledWorld(t, func(t *testing.T, w *world) {
			c, n := w.garbled(t, strings.NewReplacer("<"+tag+">", "<Other>", "</"+tag+">", "</Other>").Replace)
			for page, err := range c.List(t.Context(), "box", ListOptions{}) {
				must(t, err)
				for _, item := range page.Items {
					if item.ETag == "" || item.LastModified.IsZero() {
						t.Errorf("without %s: %+v", tag, item)
					}
				}
			}
			if *n != 2 {
				t.Errorf("without %s: %d requests", tag, *n)
			}
		})
	}
}

// TestBatchCutShort checks that answered items count and that the others are sent again.
func TestBatchCutShort(t *testing.T) {
	for k := range 4 {
		inWorld(t, func(t *testing.T, w *world) {
			targets := w.fill(4, true)
			w.server.Inject(emulator.On(emulator.BatchDelete).Nth(1).Do(emulator.CutBatch(k)))
			if err := gone(w.DeleteBatch(t.Context(), "box", targets)); err != nil || len(w.names()) > 0 {
				t.Errorf("cut after %d: %q are left, %v", k, w.names(), err)
			}
			batches := slices.DeleteFunc(w.server.Requests(), func(r emulator.Request) bool { return r.Op != emulator.BatchDelete })
			if len(batches) != 2 || len(batches[1].Items) != 4-k {
				t.Errorf("cut after %d: %v", k, batches)
			}
		})
	}
}

// TestBatchAnswerThatBreaksOff uses a socket, where the early end of the body is noticed.
func TestBatchAnswerThatBreaksOff(t *testing.T) {
	server := emulator.New()
	l, err := server.Listen("127.0.0.1:0")
	must(t, err)
	defer l.Close()
	c, err := NewFromConnectionString(l.ConnectionString(), Options{Concurrency: 4, Retry: Retry{time.Millisecond, time.Millisecond, time.Minute}})
	must(t, err)
	defer c.Close()
	for _, n := range []int{0, 1, 300, 700} {
		for i := range 3 {
			server.Put("box", fmt.Sprint(i), nil, nil)
		}
		l.Inject(emulator.On(emulator.BatchDelete).Times(1).Do(emulator.CutBody(n)))
		if err := gone(c.DeleteBatch(t.Context(), "box", []Target{{Name: "0"}, {Name: "1"}, {Name: "2"}})); err != nil || server.Len("box") > 0 {
			t.Errorf("cut after %d bytes: %d are left, %v", n, server.Len("box"), err)
		}
	}
}

// TestBatchesThatAreRefused checks that a client deletes blobs one by one if batches are refused, and does
// not try batches again.
func TestBatchesThatAreRefused(t *testing.T) {
	for _, test := range []struct {
		what    string
		effect  emulator.Effect
		op      emulator.Op
		batches int
	}{
		{"as a whole", emulator.Answer(403, "AuthorizationPermissionMismatch"), emulator.BatchDelete, 1},
		{"not known", emulator.Answer(400, "UnsupportedQueryParameter"), emulator.BatchDelete, 1},
		{"each item", emulator.Answer(403, "AuthorizationFailure"), emulator.BatchItem, 1},
		{"by Azurite of a shared access signature", emulator.Foreign(500, "", ""), emulator.BatchDelete, 3},
		{"by a proxy that seems to be busy", emulator.Foreign(503, "text/html", portalPage), emulator.BatchDelete, 3},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(emulator.On(test.op).Do(test.effect))
			for range 2 {
				targets := w.fill(4, true)
				w.server.Put("box", "001", []byte("another version"), others())
				w.server.Remove("box", "002")
				wantError(t, test.what, w.DeleteBatch(t.Context(), "box", targets), Mismatch, false)
				if names := w.names(); !slices.Equal(names, []string{"001"}) {
					t.Errorf("%s: %q are left", test.what, names)
				}
			}
			if n := w.count(emulator.BatchDelete); n != test.batches {
				t.Errorf("%s: %d batches were sent, want %d", test.what, n, test.batches)
			}
		})
	}
	inWorld(t, func(t *testing.T, w *world) {
		targets := w.fill(4, true)
		w.server.Inject(emulator.On(emulator.BatchDelete, emulator.DeleteBlob).Times(2).Do(emulator.Answer(403, "AuthorizationPermissionMismatch")))
		wantError(t, "nothing may be deleted", w.DeleteBatch(t.Context(), "box", targets[:1]), Refused, false)
		must(t, w.DeleteBatch(t.Context(), "box", targets))
		if n := w.count(emulator.BatchDelete); n != 2 {
			t.Errorf("%d batches were sent: the first refusal was of deletes", n)
		}
	})
}

// TestBodiesBeyondTheLimitAreNotRead announces a body that is larger than any Put writes, or sends a larger
// answer than any batch has.
func TestBodiesBeyondTheLimitAreNotRead(t *testing.T) {
	inFilledWorld(t, func(t *testing.T, w *world) {
		var sent endless
		n := 0
		length := int64(300 << 20)
		c := w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
			resp, err := next(req)
			n++
			sent = endless{}
			resp.Header.Set("Content-Length", strconv.FormatInt(length, 10))
			resp.Body, resp.ContentLength = &sent, length
			return resp, err
		})
		_, _, err := c.Get(t.Context(), ref)
		wantError(t, "a blob", err, Damaged, false)
		if sent.n > 0 || n != 1 || !sent.closed {
			t.Errorf("%d bytes of a blob were read in %d requests, body closed: %v", sent.n, n, sent.closed)
		}
		for _, length = range []int64{300 << 20, -1} {
			n = 0
			err := c.DeleteBatch(t.Context(), "box", []Target{{Name: "b"}})
			if length > 0 {
				wantError(t, "a batch", err, Unreachable, true)
			} else {
				wantError(t, "a batch", err, Absent, false) // as a single delete finds out
			}
			if sent.n > 2<<20 || n < 2 {
				t.Errorf("%d bytes of a batch's answer were read in %d requests", sent.n, n)
			}
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

// endless is a body that counts how much of it is read. It ends, so that a test fails if all of it is read.
type endless struct {
	n      int64
	closed bool
}

func (e *endless) Read(p []byte) (int, error) {
	if e.n > 32<<20 {
		return 0, io.EOF
	}
	e.n += int64(len(p))
	return len(p), nil
}

func (e *endless) Close() error { e.closed = true; return nil }

// TestLengthMayBeUnknown removes the length of a body, as some proxies do. The MD5 shows whether the body is
// complete.
func TestLengthMayBeUnknown(t *testing.T) {
	inFilledWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On(emulator.GetBlob).Do(emulator.Strip("Content-Length")))
		if body, _, err := w.Get(t.Context(), ref); err != nil || string(body) != "abc" {
			t.Errorf("%q, %v", body, err)
		}
	})
}

// TestRedirectsAreNotFollowed uses sockets: neither the client's own transport nor a given http.Client
// follows a redirect.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var followed []*http.Request
	portal := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { followed = append(followed, r) }))
	defer portal.Close()
	asked := 0
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, portal.URL+"/login", http.StatusTemporaryRedirect)
	}))
	defer front.Close()
	given := &http.Client{}
	for what, o := range map[string]Options{"own transport": {}, "given client": {Transport: given}} {
		o.Concurrency, o.Retry = 1, Retry{time.Millisecond, time.Millisecond, 5 * time.Millisecond}
		c, err := NewFromConnectionString("BlobEndpoint="+front.URL+";SharedAccessSignature=sig=secret", o)
		must(t, err)
		_, err = c.Head(t.Context(), ref)
		wantError(t, what, err, Unreachable, false)
		if len(followed) > 0 || asked == 0 {
			t.Errorf("%s: %d requests followed the redirect of %d", what, len(followed), asked)
		}
		if host := strings.TrimPrefix(portal.URL, "http://"); err == nil || !strings.Contains(err.Error(), host) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", what, err)
		}
		c.Close()
	}
	if given.CheckRedirect != nil {
		t.Error("the caller's client was changed")
	}
	inFilledWorld(t, func(t *testing.T, w *world) {
		for location, want := range map[string]string{"/login": "a redirect is not followed", "https://portal.invalid/?secret": "a redirect to portal.invalid is not followed"} {
			w.retries = nil
			w.server.Inject(emulator.On(emulator.HeadBlob).Times(1).Do(emulator.Redirect(302, location)))
			_, err := w.Head(t.Context(), ref)
			if err != nil || len(w.retries) != 1 || !strings.Contains(w.retries[0].Err.Error(), want) {
				t.Errorf("%s: %v, %v", location, w.retries, err)
			}
		}
	})
}

// TestReplacedDefaultTransport replaces http.DefaultTransport, as programs do.
func TestReplacedDefaultTransport(t *testing.T) {
	old := http.DefaultTransport
	defer func() { http.DefaultTransport = old }()
	http.DefaultTransport = http.NewFileTransport(http.Dir("."))
	c, err := NewFromConnectionString(emulator.New().ConnectionString(), Options{Concurrency: 1, Retry: retry})
	must(t, err)
	c.Close()
}

// TestHostsThatAreNotThere checks that the observer learns the cause of the first failure before the client
// waits.
func TestHostsThatAreNotThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	nobody := l.Addr().String()
	must(t, l.Close())
	ctx, cancel := context.WithCancel(t.Context())
	var told []RetryEvent
	c, err := NewFromConnectionString("AccountName=a;AccountKey=a2V5;BlobEndpoint=http://"+nobody+"/a", Options{
		Concurrency: 1, Retry: Retry{time.Hour, time.Hour, 24 * time.Hour},
		OnRetry: func(_ context.Context, e RetryEvent) { told = append(told, e); cancel() },
	})
	must(t, err)
	_, err = c.Head(ctx, ref)
	wantError(t, "refused", err, Ended, false)
	if len(told) != 1 || told[0].Try != 1 || !strings.Contains(told[0].Err.Error(), "refused") || !strings.Contains(told[0].Err.Error(), nobody) {
		t.Errorf("%+v", told)
	}
}

// TestOnlyFailedConditionsAreMismatches tries all codes with the statuses of refusals.
func TestOnlyFailedConditionsAreMismatches(t *testing.T) {
	mismatches := []bloberror.Code{"BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet", "ResourceAlreadyExists", "ContainerAlreadyExists"}
	absences := []bloberror.Code{"BlobNotFound", "ContainerNotFound", "ResourceNotFound"}
	for code := range meanings {
		for _, status := range []int{400, 403, 404, 409, 412} {
			v := judge(answer(status, string(code)))
			if (v.reason == Mismatch) != slices.Contains(mismatches, code) {
				t.Errorf("%d %s: %+v", status, code, v)
			}
			if (v.reason == Absent || v.reason == AbsentContainer) != slices.Contains(absences, code) {
				t.Errorf("%d %s: %+v", status, code, v)
			}
			if v.applied != slices.Contains([]bloberror.Code{"ServerBusy", "OperationTimedOut", "InternalError"}, code) {
				t.Errorf("%d %s: applied is %v", status, code, v.applied)
			}
		}
	}
}

// TestRefusalsNameTheRemedy checks the texts of refusals that operators meet.
func TestRefusalsNameTheRemedy(t *testing.T) {
	for _, test := range []struct {
		status int
		code   string
		want   string
	}{
		{403, "AuthenticationFailed", "key"},
		{403, "AuthorizationPermissionMismatch", "Storage Blob Data Contributor"},
		{403, "AuthorizationFailure", "firewall"},
		{403, "AuthorizationSourceIPMismatch", "address"},
		{403, "InsufficientAccountPermissions", "account"},
		{403, "AccountIsDisabled", "account is disabled"},
		{409, "ContainerDisabled", "container is disabled"},
		{409, "SnapshotsPresent", "snapshots"},
		{409, "BlobArchived", "archive"},
		{409, "BlobBeingRehydrated", "archive"},
		{409, "BlobUsesCustomerSpecifiedEncryption", "key"},
		{409, "BlobImmutableDueToPolicy", "immutability"},
		{409, "BlobImmutableDueToLegalHold", "legal hold"},
		{412, "LeaseIdMissing", "lease"},
		{412, "LeaseIdMismatchWithBlobOperation", "lease"},
		{400, "InvalidHeaderValue", "WithServiceVersion"},
		{403, "KeyBasedAuthenticationNotPermitted", "log in with an identity"},
		{400, "AccountRequiresHttps", "https://"},
		{400, "TlsVersionNotPermitted", "minimum TLS version"},
		{409, "PublicAccessNotPermitted", "without a login"},
		{409, "ContainerImmutableStorageWithVersioningEnabled", "az storage container-rm delete"},
		{409, "ContainerImmutabilityPolicyLocked", "az storage container-rm delete"},
		{409, "ContainerHasLegalHold", "legal hold"},
		{409, "NobodyKnowsThis", "409 NobodyKnowsThis"},
	} {
		for op, do := range operations() {
			reason := meanings[bloberror.Code(test.code)].reason
			if reason == Damaged && op == "delete batch" {
				continue // it is about one blob
			}
			if reason != Damaged {
				reason = Refused
			}
			inFilledWorld(t, func(t *testing.T, w *world) {
				w.server.Inject(emulator.On().Do(emulator.Answer(test.status, test.code)))
				err := do(t.Context(), w)
				wantError(t, op+", "+test.code, err, reason, false)
				if text := err.Error(); !strings.Contains(text, test.want) || !strings.Contains(text, "blob.emulator.invalid: ") || strings.Contains(text, "\n") {
					t.Errorf("%s: %q lacks %q", op, text, test.want)
				}
				if strings.Contains(err.Error(), "list containers") {
					t.Errorf("%s: %v", op, err)
				}
				if most := requestsOf(op); len(w.requests) > most {
					t.Errorf("%s, %s: %d requests, want %d", op, test.code, len(w.requests), most)
				}
			})
		}
	}
}

// requestsOf returns how many requests an operation may send that is always refused. A refused batch is followed by a
// delete of each of its two blobs, and refused groups by a listing of all names.
func requestsOf(op string) int {
	switch op {
	case "delete batch":
		return 3
	case "list groups":
		return 2
	}
	return 1
}

// TestRefusalsOfVersions refuses all requests as the service refuses those of a version that it does not know: with
// 400 and x-ms-request-id, and nothing else of its marks. That is final, and the error says what to do.
func TestRefusalsOfVersions(t *testing.T) {
	for op, do := range operations() {
		for _, lost := range []bool{false, true} {
			inFilledWorld(t, func(t *testing.T, w *world) {
				var n int
				w.Client = w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
					if n++; lost && n == 1 {
						if _, err := next(req); err != nil {
							return nil, err
						}
						return nil, io.EOF
					}
					return &http.Response{
						StatusCode: 400, Header: http.Header{"X-Ms-Request-Id": {"1"}, "Content-Type": {"text/html"}}, ContentLength: -1,
						Body: io.NopCloser(strings.NewReader("<html><body>Bad Request - Invalid Header</body></html>")), // a HEAD has none
					}, nil
				})
				what := fmt.Sprintf("%s, an answer was lost: %t", op, lost)
				err := do(t.Context(), w)
				wantError(t, what, err, Refused, lost && writes(op))
				for _, want := range []string{"400 to version " + Version + " (request 1)", "WithServiceVersion", "--service-version"} {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("%s: %v, want %q", what, err, want)
					}
				}
				if lost {
					n--
				}
				if n != 1 && (op != "list groups" || n != 2) {
					t.Errorf("%s: %d requests were refused", what, n)
				}
			})
		}
	}
}

// TestHeadersOfRequests looks at what the SDK adds to requests of its own accord. In the minute after a 503, it would
// make writes wait for 100 Continue; and it may choose the format of listings.
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
				return next(req)
			})
			if err := do(t.Context(), w); err != nil {
				t.Errorf("%s: %v", op, err)
			}
		})
	}
}

// TestWithin checks that a deadline of the vault leaves MaxElapsed in force, and that a deadline of the
// caller lifts it.
func TestWithin(t *testing.T) {
	errOwn := errors.New("the vault's own limit")
	for _, test := range []struct {
		what     string
		caller   time.Duration // 0 is none
		own      time.Duration
		want     time.Duration
		is       error
		deadline bool
	}{
		{"no caller's, MaxElapsed is sooner", 0, time.Hour, 15 * time.Minute, nil, false},
		{"no caller's, the own is sooner", 0, time.Minute, time.Minute, errOwn, true},
		{"the caller's is sooner", time.Minute, time.Hour, time.Minute, nil, true},
		{"the caller's is later than MaxElapsed", 2 * time.Hour, time.Hour, time.Hour, errOwn, true},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(emulator.On().Do(emulator.Answer(503, "ServerBusy")))
			ctx := t.Context()
			if test.caller > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, test.caller)
				defer cancel()
			}
			started := time.Now()
			ctx, cancel := Within(ctx, started.Add(test.own), errOwn)
			defer cancel()
			ctx, cancel = Within(ctx, started.Add(2*test.own), nil) // they may be nested
			defer cancel()
			_, err := w.Head(ctx, ref)
			wantError(t, test.what, err, Unreachable, false)
			if took := time.Since(started); took > test.want || took < test.want-2*retry.MaxInterval {
				t.Errorf("%s: it took %v", test.what, took)
			}
			if test.is != nil && !errors.Is(err, test.is) || errors.Is(err, context.DeadlineExceeded) != test.deadline {
				t.Errorf("%s: %v", test.what, err)
			}
		})
	}
}

// TestDeadlinesInAnOutage checks that the error wraps those of the service and of the deadline. A cancelled
// call is no outage.
func TestDeadlinesInAnOutage(t *testing.T) {
	for _, effect := range []emulator.Effect{
		emulator.Answer(503, "ServerBusy"), emulator.LostRequest(), emulator.Silence(), emulator.Foreign(502, "text/html", portalPage),
		emulator.Answer(429, "TooManyRequests").RetryAfter(10 * time.Minute),
	} {
		for op, do := range operations() {
			inFilledWorld(t, func(t *testing.T, w *world) {
				w.server.Inject(emulator.On().Do(effect))
				ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
				defer cancel()
				err := do(ctx, w)
				if !Is(err, Unreachable) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s, %s: %v", op, effect, err)
				}
				ctx, cancelNow := context.WithCancel(t.Context())
				time.AfterFunc(40*time.Second, cancelNow)
				err = do(ctx, w)
				if !Is(err, Ended) || !errors.Is(err, context.Canceled) {
					t.Errorf("%s, %s, cancelled: %v", op, effect, err)
				}
			})
		}
	}
}

// TestAnswersAfterARedirect uses a transport that follows redirects, which net/http records in the response.
// A transport that only sends requests to another host than the URL's, such as a private endpoint, does not
// follow redirects.
func TestAnswersAfterARedirect(t *testing.T) {
	inFilledWorld(t, func(t *testing.T, w *world) {
		for _, redirected := range []bool{false, true} {
			c := w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
				resp, err := next(req)
				resp.Request = req.Clone(req.Context())
				resp.Request.URL.Host = "other.invalid"
				if redirected {
					resp.Request.Response = &http.Response{StatusCode: http.StatusFound}
				}
				return resp, err
			})
			_, err := c.Head(t.Context(), ref)
			if !redirected {
				must(t, err)
				continue
			}
			wantError(t, "redirected", err, Unreachable, false)
			if err == nil || !strings.Contains(err.Error(), "other.invalid") {
				t.Errorf("%v", err)
			}
		}
	})
}

// TestRoutedElsewhere uses sockets and transports that send requests to another host. One of them follows
// redirects.
func TestRoutedElsewhere(t *testing.T) {
	server := emulator.New()
	server.PutContainer("box", nil)
	server.Put("box", ref.Name, nil, nil)
	l, err := server.Listen("127.0.0.1:0")
	must(t, err)
	defer l.Close()
	account, err := url.Parse(l.URL())
	must(t, err)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := *r.URL
		u.Scheme, u.Host = account.Scheme, account.Host
		http.Redirect(w, r, u.String(), http.StatusTemporaryRedirect)
	}))
	defer front.Close()
	inner := &http.Client{}
	for _, test := range []struct {
		what, host string
		send       sender
		ok         bool
	}{
		{"a private endpoint", account.Host, http.DefaultTransport.RoundTrip, true},
		{"a client that follows redirects", strings.TrimPrefix(front.URL, "http://"), inner.Do, false},
	} {
		c, err := NewFromConnectionString(strings.ReplaceAll(l.ConnectionString(), account.Host, "storage.example"), Options{
			Concurrency: 1, Retry: Retry{time.Millisecond, time.Millisecond, 5 * time.Millisecond},
			Transport: sender(func(req *http.Request) (*http.Response, error) {
				routed := req.Clone(req.Context())
				routed.URL.Host = test.host
				return test.send(routed)
			}),
		})
		must(t, err)
		_, err = c.Head(t.Context(), ref)
		if test.ok {
			must(t, err)
			continue
		}
		wantError(t, test.what, err, Unreachable, false)
		if err == nil || !strings.Contains(err.Error(), "after a redirect") {
			t.Errorf("%s: %v", test.what, err)
		}
	}
}

// TestErrorsTellNoSecret uses a transport and pages that quote the URL or the headers of the request.
func TestErrorsTellNoSecret(t *testing.T) {
	const sig = "Zm9v+YmFy/cXV4SECRET=="
	escaped := url.QueryEscape(sig)
	quote := func(req *http.Request) error {
		return &url.Error{Op: "Put", URL: req.URL.String(), Err: io.ErrClosedPipe}
	}
	page := func(text func(*http.Request) string) func(*http.Request) (*http.Response, error) {
		return func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 403, Header: http.Header{"Content-Type": {"text/html"}}, Body: io.NopCloser(strings.NewReader(text(req)))}, nil
		}
	}
	fails := func(err func(*http.Request) error) func(*http.Request) (*http.Response, error) {
		return func(req *http.Request) (*http.Response, error) { return nil, err(req) }
	}
	for what, send := range map[string]func(req *http.Request) (*http.Response, error){
		"plain":   fails(quote),
		"wrapped": fails(func(req *http.Request) error { return fmt.Errorf("my transport: %w", quote(req)) }),
		"joined":  fails(func(req *http.Request) error { return errors.Join(quote(req), errors.New("second")) }),
		"escaped twice": fails(func(req *http.Request) error {
			return fmt.Errorf("%w: at /?to=%s", io.ErrClosedPipe, url.QueryEscape(req.URL.String()))
		}),
		"the value": fails(func(*http.Request) error { return fmt.Errorf("%w: %s and %s", io.ErrClosedPipe, sig, escaped) }),
		"upper case": fails(func(*http.Request) error {
			return fmt.Errorf("%w: &SIG=%s", io.ErrClosedPipe, strings.ToLower(escaped))
		}),
		"a body that breaks off": func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 403, Header: http.Header{}, Body: brokenBody{Reader: http.NoBody, err: quote(req)}}, nil
		},
		"a page":            page(func(req *http.Request) string { return req.URL.RawQuery }),
		"a page, unescaped": page(func(req *http.Request) string { return "sig=" + req.URL.Query().Get("sig") }),
		"a page, cut":       page(func(*http.Request) string { return strings.Repeat(".", 48) + sig }),
		"a page in HTML":    page(func(req *http.Request) string { return "sig=" + strings.ReplaceAll(sig, "+", "&#43;") }),
		"a page with an error code": func(req *http.Request) (*http.Response, error) {
			h := http.Header{"X-Ms-Request-Id": {"1"}, "X-Ms-Error-Code": {"at " + req.URL.RawQuery}}
			return &http.Response{StatusCode: 403, Header: h, Body: http.NoBody}, nil
		},
	} {
		var events []error
		c, err := NewFromConnectionString("BlobEndpoint=https://a.invalid;SharedAccessSignature=sv=2024-01-01&sig="+escaped+"&sp=rwdlc", Options{
			Concurrency: 1, Retry: Retry{time.Millisecond, time.Millisecond, 3 * time.Millisecond}, Transport: sender(send),
			OnRequest: func(_ context.Context, e RequestEvent) { events = append(events, e.Err) },
			OnRetry:   func(_ context.Context, e RetryEvent) { events = append(events, e.Err) },
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

	inFilledWorld(t, func(t *testing.T, w *world) { // an account key signs each request
		var signed string
		c := w.over(t, func(req *http.Request, _ sender) (*http.Response, error) {
			_, signed, _ = strings.Cut(req.Header.Get("Authorization"), " ")
			return nil, fmt.Errorf("%w: headers %v", io.ErrClosedPipe, req.Header)
		})
		_, err := c.Head(t.Context(), ref)
		if !errors.Is(err, io.ErrClosedPipe) || signed == "" || strings.Contains(err.Error(), signed) {
			t.Errorf("signed %q: %v", signed, err)
		}
		var quoted *redactedError
		if !errors.As(err, &quoted) {
			t.Errorf("%v was not redacted", err)
		}
		c = w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
			_, signed, _ = strings.Cut(req.Header.Get("Authorization"), " ")
			resp, err := next(req)
			resp.Body = brokenBody{Reader: resp.Body, err: fmt.Errorf("%w: headers %v", io.ErrClosedPipe, req.Header)}
			return resp, err
		})
		_, _, err = c.Get(t.Context(), ref)
		if !errors.Is(err, io.ErrClosedPipe) || strings.Contains(err.Error(), signed) {
			t.Errorf("a body that breaks off, signed %q: %v", signed, err)
		}
	})
}
