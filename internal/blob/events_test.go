package blob

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
)

func TestClasses(t *testing.T) {
	for line, want := range map[string]Class{
		"PUT /a/c/b":                             ClassWrite,
		"PUT /a/c?restype=container":             ClassList,
		"GET /a/c?restype=container&comp=list":   ClassList,
		"GET /a/?comp=list":                      ClassList,
		"GET /a/c/b":                             ClassRead,
		"HEAD /a/c/b":                            ClassOther,
		"PUT /a/c/b?comp=metadata":               ClassOther,
		"POST /a/c?restype=container&comp=batch": ClassOther,
		"GET /a/c?restype=container":             ClassOther,
		"DELETE /a/c/b":                          ClassDelete,
	} {
		method, path, _ := strings.Cut(line, " ")
		if got := ClassOf(httptest.NewRequest(method, path, nil)); got != want {
			t.Errorf("%s: %s, not %s", line, got, want)
		}
	}
}

// TestMeter gives requests begins and ends, and checks the longest chain of them. Upper-case letters begin
// requests, lower-case letters end them.
func TestMeter(t *testing.T) {
	for story, want := range map[string]int{
		"":           0,
		"A":          1,
		"Aa":         1,
		"AaBb":       2,
		"ABab":       1,
		"ABaCbc":     2, // C follows A
		"ABaCcDdb":   3, // A, C, D; B lasts all the time
		"ABabCDcdEe": 3,
		"AaBCbDcd":   3,
	} {
		var m Meter
		chains := map[rune]int{}
		requests := 0
		for _, r := range story {
			if r < 'a' {
				chains[r] = m.begin()
				requests++
			} else {
				m.end(chains[r-'a'+'A'], 2, 3)
			}
		}
		ended := int64(len(story) - requests)
		if got := (Usage{requests, want, 2 * ended, 3 * ended}); m.Usage() != got {
			t.Errorf("%s: %+v, want %+v", story, m.Usage(), got)
		}
	}
}

// TestRequestsAreReported checks what is reported of requests and retries, and that a meter sees the requests of its
// context alone.
func TestRequestsAreReported(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Put("box", "c", []byte("0123456789"), nil)
		w.server.Inject(emulator.On(emulator.PutBlob).Nth(1).Do(emulator.LostAnswer()))
		var meter, none Meter
		_, err := w.Put(Metered(t.Context(), &meter), ref, []byte("new"), mine(), IfNew)
		must(t, err)
		for range w.List(t.Context(), "box", ListOptions{Prefix: "x/"}) {
		}
		_, _, err = w.Get(Metered(t.Context(), &meter), Ref{"box", "c"})
		must(t, err)
		must(t, w.DeleteBatch(t.Context(), "box", []Target{{Name: "b"}}))
		type told struct {
			op             string
			ref            Ref
			method         string
			status         int
			sent, received int64 // of the plans' requests
		}
		want := []told{
			{"put", ref, "PUT", 0, 3, 0},
			{"put", ref, "PUT", 409, 3, w.requests[1].Received},
			{"put", ref, "HEAD", 200, 0, 0},
			{"list", Ref{"box", "x/"}, "GET", 200, 0, w.requests[3].Received},
			{"get", Ref{"box", "c"}, "GET", 200, 0, 10},
			{"delete batch", Ref{Container: "box"}, "POST", 202, w.requests[5].Sent, w.requests[5].Received},
		}
		for i, r := range w.requests {
			if got := (told{r.Op, r.Ref, r.Method, r.Status, r.Sent, r.Received}); got != want[i] {
				t.Errorf("request %d: %+v was reported, want %+v", i, got, want[i])
			}
			if (r.Err != nil) != (i == 0) || (r.RequestID == "") != (i == 0) || r.Start.IsZero() || r.Duration != 3*time.Second {
				t.Errorf("request %d: %+v", i, r)
			}
		}
		if r := w.retries; len(r) != 1 || r[0].Op != "put" || r[0].Ref != ref || r[0].Try != 1 || r[0].Wait <= 0 || !errors.Is(r[0].Err, io.EOF) {
			t.Errorf("retries: %+v", w.retries)
		}
		if want := (Usage{Requests: 4, RoundTrips: 4, Sent: 6, Received: 10 + want[1].received}); meter.Usage() != want || none.Usage() != (Usage{}) {
			t.Errorf("%+v, want %+v", meter.Usage(), want)
		}
	}, emulator.Options{Latency: 3 * time.Second})
}

// TestEventsEndWithTheBody checks that a request is reported when its answer has been read, with the bytes,
// also if the body breaks off.
func TestEventsEndWithTheBody(t *testing.T) {
	for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF} {
		inFilledWorld(t, func(t *testing.T, w *world) {
			c := w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
				resp, err := next(req)
				resp.Body = slowBody{brokenBody{Reader: resp.Body, err: broken}}
				return resp, err
			})
			_, _, err := c.Get(Once(t.Context()), ref)
			if e := w.requests[0]; len(w.requests) != 1 || (err != nil) != (broken != io.EOF) || (e.Err != nil) != (err != nil) || e.Duration < time.Second || e.Status != http.StatusOK || e.Received != 3 {
				t.Errorf("%v: %v; %+v", broken, err, w.requests)
			}
		})
	}
}

// slowBody is a body whose reads take a second each.
type slowBody struct{ io.ReadCloser }

func (b slowBody) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	return b.ReadCloser.Read(p)
}
