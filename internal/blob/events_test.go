package blob

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
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

// TestMetered checks that a meter sees the requests of its context alone, with all tries and bytes.
func TestMetered(t *testing.T) {
	inFilledWorld(t, func(t *testing.T, w *world) {
		var meter, none Meter
		w.server.Inject(emulator.On(emulator.GetBlob).Nth(1).Do(emulator.Answer(503, "ServerBusy")))
		body, _, err := w.Get(Metered(t.Context(), &meter), ref)
		must(t, err)
		_, err = w.Head(t.Context(), ref)
		must(t, err)
		refusal := w.requests[0].Received
		if want := (Usage{Requests: 2, RoundTrips: 2, Received: refusal + int64(len(body))}); meter.Usage() != want || refusal == 0 || none.Usage() != (Usage{}) {
			t.Errorf("%+v, want %+v", meter.Usage(), want)
		}
	})
}

// TestEventsEndWithTheBody checks that a request is reported when its answer has been read, with the bytes,
// also if the body breaks off.
func TestEventsEndWithTheBody(t *testing.T) {
	for _, cut := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := emulator.New()
			server.Put("box", "b", []byte("0123456789"), nil)
			var events []RequestEvent
			c, err := NewFromConnectionString(server.ConnectionString(), Options{
				Concurrency: 1, Retry: Retry{time.Hour, time.Hour, time.Minute}, OnRequest: func(_ context.Context, e RequestEvent) { events = append(events, e) },
				Transport: sender(func(req *http.Request) (*http.Response, error) {
					resp, err := server.Transport().Do(req)
					if err == nil {
						resp.Body = &slowBody{resp.Body, cut}
					}
					return resp, err
				}),
			})
			must(t, err)
			_, _, err = c.Get(t.Context(), ref)
			if len(events) != 1 {
				t.Fatalf("%d events", len(events))
			}
			e := events[0]
			if (err != nil) != cut || (e.Err != nil) != cut || e.Duration < time.Second || e.Status != http.StatusOK || cut != (e.Received == 4) || !cut && e.Received != 10 {
				t.Errorf("cut %t: %v; %+v", cut, err, e)
			}
		})
	}
}

// slowBody is a body whose first read takes a second, and which breaks off after four bytes if cut is set.
type slowBody struct {
	io.ReadCloser
	cut bool
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.cut {
		p = p[:4]
	}
	time.Sleep(time.Second)
	n, err := b.ReadCloser.Read(p)
	if b.cut {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
