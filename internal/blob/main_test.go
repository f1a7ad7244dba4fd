package blob

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/merge"
)

// retry is the vault's default.
var retry = Retry{InitialInterval: 200 * time.Millisecond, MaxInterval: 20 * time.Second, MaxElapsed: 15 * time.Minute}

// world is a client of an emulator, with the events that the client reported.
type world struct {
	*Client
	server    *emulator.Server
	transport *emulator.Transport

	mu       sync.Mutex
	requests []RequestEvent
	retries  []RetryEvent
}

// inWorld runs a test in virtual time with a client of a new emulator that has an empty container "box".
func inWorld(t *testing.T, test func(t *testing.T, w *world), opts ...emulator.Options) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, emulator.New(merge.Fields(opts...)))
		w.server.PutContainer("box", nil)
		test(t, w)
	})
}

func newWorld(t *testing.T, server *emulator.Server) *world {
	t.Helper()
	w := &world{server: server, transport: server.Transport()}
	w.Client = w.over(t, func(req *http.Request, next sender) (*http.Response, error) { return next(req) })
	return w
}

// over returns a client whose requests pass through a function before they reach the emulator.
func (w *world) over(t *testing.T, through func(req *http.Request, next sender) (*http.Response, error)) *Client {
	t.Helper()
	c, err := NewFromConnectionString(w.server.ConnectionString(), Options{
		Concurrency:   4,
		Retry:         retry,
		ClientOptions: policy.ClientOptions{Transport: sender(func(req *http.Request) (*http.Response, error) { return through(req, w.transport.Do) })},
		OnRequest: func(_ context.Context, e RequestEvent) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.requests = append(w.requests, e)
		},
		OnRetry: func(_ context.Context, e RetryEvent) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.retries = append(w.retries, e)
		},
	})
	must(t, err)
	return c
}

// inFilledWorld is inWorld with the blobs b and c.
func inFilledWorld(t *testing.T, test func(t *testing.T, w *world), opts ...emulator.Options) {
	t.Helper()
	inWorld(t, func(t *testing.T, w *world) {
		w.server.PutContainer("box", map[string]string{"layout": "1"})
		w.server.Put("box", "b", []byte("abc"), mine())
		w.server.Put("box", "c", []byte("abc"), mine())
		test(t, w)
	}, opts...)
}

// etag returns the ETag of the blob b.
func (w *world) etag() string {
	b, _ := w.server.Blob("box", "b")
	return b.ETag
}

// count returns the number of requests of an operation at the server.
func (w *world) count(op emulator.Op) int {
	n := 0
	for _, r := range w.server.Requests() {
		if r.Op == op {
			n++
		}
	}
	return n
}

// names returns the names of the blobs in the container "box".
func (w *world) names() []string {
	var names []string
	for b := range w.server.Blobs("box") {
		names = append(names, b.Name)
	}
	return names
}

// all returns the names that a listing yields, the number of its pages, and its error, which comes last.
func all[P any](listing iter.Seq2[P, error]) (names []string, pages int, err error) {
	for page, e := range listing {
		if err != nil {
			return nil, 0, errors.New("the listing goes on after an error")
		}
		if pages > 100 {
			return nil, 0, errors.New("the listing has no end")
		}
		pages, err = pages+1, e
		switch page := any(page).(type) {
		case Page:
			for _, item := range page.Items {
				names = append(names, item.Name)
			}
		case []ContainerItem:
			for _, item := range page {
				names = append(names, item.Name)
			}
		case []string:
			names = append(names, page...)
		}
	}
	return names, pages, err
}

var ref = Ref{Container: "box", Name: "b"}

// mine returns the metadata of the client's writes.
func mine() map[string]string { return map[string]string{WriteID: "mine", "state": "{}"} }

// others returns the metadata of another client's write.
func others() map[string]string { return map[string]string{WriteID: "theirs"} }

// wantError checks the reason of an error and whether it is unknown.
func wantError(t *testing.T, what string, err error, reason Reason, unknown bool) {
	t.Helper()
	var e *Error
	switch {
	case !errors.As(err, &e):
		t.Fatalf("%s: the error is %v", what, err)
	case e.Reason != reason:
		t.Errorf("%s: the reason is %d, not %d: %v", what, e.Reason, reason, err)
	case e.Unknown != unknown:
		t.Errorf("%s: unknown is %v: %v", what, e.Unknown, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sender is a function as a transport.
type sender func(*http.Request) (*http.Response, error)

func (f sender) Do(req *http.Request) (*http.Response, error) { return f(req) }

// garbled returns a client whose first answer has the body that a function makes of it, and its number of requests.
func (w *world) garbled(t *testing.T, garble func(body string) string) (c *Client, requests *int) {
	t.Helper()
	n := 0
	return w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
		resp, err := next(req)
		if n++; n == 1 && err == nil {
			err = editBody(resp, garble)
		}
		return resp, err
	}), &n
}

// editBody replaces the body of an answer by what a function makes of it.
func editBody(resp *http.Response, edit func(body string) string) error {
	body, err := io.ReadAll(resp.Body)
	edited := edit(string(body))
	resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(edited)), int64(len(edited))
	return err
}
