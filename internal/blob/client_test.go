package blob

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/planvault/azblob/emulator"
)

// TestWritesDoWhatTheirConditionsSay puts and deletes where nothing is, where a blob is, and where no container is.
func TestWritesDoWhatTheirConditionsSay(t *testing.T) {
	const fine = Reason(-1)
	always := func(c Condition) func(*world) Condition { return func(*world) Condition { return c } }
	for _, test := range []struct {
		what          string
		cond          func(*world) Condition
		nothing, blob Reason // of a put
	}{
		{"always", always(Always), fine, fine},
		{"if new", always(IfNew), fine, Mismatch},
		{"if there", always(IfThere), Absent, fine},
		{"if match", func(w *world) Condition { return IfMatch(w.etag()) }, Absent, fine},
		{"if match, stale", always(IfMatch("0x1")), Absent, Mismatch},
		{"if match, no ETag", always(IfMatch("*")), Absent, Mismatch},
	} {
		for there, want := range []Reason{test.nothing, test.blob, AbsentContainer} {
			inWorld(t, func(t *testing.T, w *world) {
				what := fmt.Sprintf("%s, case %d", test.what, there)
				switch there {
				case 1:
					w.server.Put("box", "b", []byte("old"), others())
				case 2:
					w.server.RemoveContainer("box")
				}
				cond := test.cond(w)
				etag, err := w.Put(t.Context(), ref, []byte("new"), mine(), cond)
				b, _ := w.server.Blob("box", "b")
				if want != fine {
					wantError(t, what, err, want, false)
					if there == 1 && string(b.Body) != "old" || len(w.retries) > 0 {
						t.Errorf("%s: %q is stored after %d retries", what, b.Body, len(w.retries))
					}
				} else {
					sum := md5.Sum([]byte("new"))
					if err != nil || etag != b.ETag || etag == "" || string(b.Body) != "new" || !maps.Equal(b.Metadata, mine()) || !bytes.Equal(b.MD5, sum[:]) || b.ContentType != "application/octet-stream" {
						t.Errorf("%s: ETag %q, %v; stored is %+v", what, etag, err, b)
					}
					if n := len(w.server.Requests()); n != 1 {
						t.Errorf("%s: it took %d requests", what, n)
					}
				}
				if test.what == "if new" {
					return // no delete has this condition
				}
				if cond != Always && cond != IfThere && want == fine {
					cond = IfMatch(etag)
				}
				if err = w.Delete(t.Context(), ref, cond); want == fine {
					must(t, err)
					want = Absent
					err = w.Delete(t.Context(), ref, cond)
				}
				wantError(t, what+", delete", err, want, false)
				if left := len(w.names()); left > 0 != (want == Mismatch) || len(w.retries) > 0 {
					t.Errorf("%s: %d blobs are left after %d retries", what, left, len(w.retries))
				}
			})
		}
	}
	for code, want := range map[string]Reason{"ConditionNotMet": Absent, "LeaseIdMissing": Refused} { // the blob is gone, and the service answers 412
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(emulator.On(emulator.DeleteBlob).Do(emulator.Answer(412, code)))
			wantError(t, code, w.Delete(t.Context(), ref, IfMatch("0x1")), want, false)
		})
	}
}

// TestPutThatMeetsAnotherWriteHasFailed writes as another client between two attempts, or removes the blob.
func TestPutThatMeetsAnotherWriteHasFailed(t *testing.T) {
	for _, test := range []struct {
		effect  emulator.Effect
		unknown bool
	}{
		{emulator.LostRequest(), true},
		{emulator.Reset(), true},
		{emulator.Silence(), true},
		{emulator.Answer(503, "ServerBusy"), true},
		{emulator.Answer(429, "TooManyRequests"), false},
		{emulator.Answer(409, "ContainerBeingDeleted"), false},
	} {
		written := func(s *emulator.Server) { s.Put("box", "b", []byte("new"), others()) } // equal content is no proof
		for what, meanwhile := range map[string]func(*emulator.Server){
			"new": written, "changed": written, "removed": func(s *emulator.Server) { s.Remove("box", "b") },
		} {
			inWorld(t, func(t *testing.T, w *world) {
				cond, want := IfNew, Mismatch
				if what != "new" {
					w.server.Put("box", "b", []byte("old"), others())
					cond = IfMatch(w.etag())
				}
				if what == "removed" {
					want = Absent
				}
				w.server.Inject(emulator.On(emulator.PutBlob).Nth(1).Do(test.effect))
				w.onRetry = func(context.Context, RetryEvent) { meanwhile(w.server) }
				_, err := w.Put(t.Context(), ref, []byte("new"), mine(), cond)
				wantError(t, fmt.Sprintf("%s after %s", what, test.effect), err, want, test.unknown)
				if _, answered := errors.AsType[*azcore.ResponseError](err); !answered {
					t.Errorf("the service's own error is lost: %v", err)
				}
			})
		}
	}
}

func TestPutRefusedWhereNothingIsThere(t *testing.T) {
	for _, test := range []struct {
		what   string
		cond   Condition
		times  int // of the refusal; 0 is always
		want   Reason
		atMost int
	}{{"for a while", IfNew, 3, -1, 4}, {"forever", IfNew, 0, Mismatch, 1000}, {"if there", IfThere, 0, Absent, 1}} {
		inWorld(t, func(t *testing.T, w *world) {
			code := map[bool]string{true: "BlobAlreadyExists", false: "ConditionNotMet"}[test.cond == IfNew]
			w.server.Inject(emulator.On(emulator.PutBlob).Range(1, test.times).Do(emulator.Answer(409, code)))
			etag, err := w.Put(t.Context(), ref, []byte("new"), mine(), test.cond)
			if test.want >= 0 {
				wantError(t, test.what, err, test.want, false)
			} else if err != nil || etag != w.etag() {
				t.Errorf("%s: %q, %v", test.what, etag, err)
			}
			if n := w.count(emulator.PutBlob); n > test.atMost || test.times > 0 && n != test.times+1 {
				t.Errorf("%s: %d tries", test.what, n)
			}
		})
	}
}

// TestLooksThatFail fails the read after a refused write. The write is made again. If all its attempts are refused, it
// certainly has no effect.
func TestLooksThatFail(t *testing.T) {
	for _, effect := range interruptions {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(
				emulator.On(emulator.PutBlob).Nth(1).Do(emulator.LostAnswer()),
				emulator.On(emulator.HeadBlob).Range(1, 3).Do(effect),
			)
			etag, err := w.Put(t.Context(), ref, []byte("new"), mine(), IfNew)
			if err != nil || etag != w.etag() {
				t.Errorf("%s: %q, %v", effect, etag, err)
			}
			_, err = w.Put(t.Context(), ref, []byte("new"), others(), IfNew)
			wantError(t, "put, look: "+effect.String(), err, Mismatch, false)
			wantError(t, "delete, look: "+effect.String(), w.Delete(t.Context(), ref, IfMatch("0x1")), Mismatch, false)
		})
	}
}

func TestPutKnowsAnEarlierCallOfItsWriteID(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first, err := w.Put(t.Context(), ref, []byte("new"), mine(), IfNew)
		must(t, err)
		second, err := w.Put(t.Context(), ref, []byte("new"), mine(), IfNew)
		if err != nil || first != second {
			t.Errorf("the ETags are %q and %q, %v", first, second, err)
		}
	})
}

// TestBytesDamagedOnTheirWayAreNotStored damages bodies of puts. Both sums are sent: the service checks the body against
// one and keeps the other for reads.
func TestBytesDamagedOnTheirWayAreNotStored(t *testing.T) {
	sum := md5.Sum([]byte("new"))
	want := base64.StdEncoding.EncodeToString(sum[:])
	for times := range 3 {
		inWorld(t, func(t *testing.T, w *world) {
			n := 0
			c := w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
				for _, name := range []string{"Content-MD5", "x-ms-blob-content-md5"} {
					if got := headerOf(req, name); !slices.Equal(got, []string{want}) {
						t.Errorf("%s is %q, not %q", name, got, want)
					}
				}
				if n++; n <= times {
					req = req.Clone(req.Context())
					req.Body = io.NopCloser(strings.NewReader("nfw"))
				}
				return next(req)
			})
			_, err := c.Put(t.Context(), ref, []byte("new"), mine(), Always)
			if times == 2 {
				wantError(t, "twice", err, Damaged, false)
			} else if err != nil {
				t.Errorf("%d times: %v", times, err)
			}
			if b, ok := w.server.Blob("box", "b"); ok != (times < 2) || ok && string(b.Body) != "new" {
				t.Errorf("%d times: %q is stored", times, b.Body)
			}
		})
	}
}

// TestDamagedBodies damages the bodies of a blob "abc" on their way or at the service. A body that is cut is read again, and
// one that does not match its MD5 is read again once.
func TestDamagedBodies(t *testing.T) {
	type fault struct {
		what   string
		inject func(w *world)
		want   Reason // -1 for none
		gets   int
	}
	rules := func(rules ...*emulator.Rule) func(*world) {
		return func(w *world) { w.server.Inject(rules...) }
	}
	get := func() *emulator.Rule { return emulator.On(emulator.GetBlob) }
	faults := []fault{
		{"none", rules(), -1, 1},
		{"no length", rules(get().Do(emulator.Strip("Content-Length"))), -1, 1},
		{"no MD5", rules(get().Do(emulator.Strip("Content-Md5"))), Damaged, 2},
		{"cut always", rules(get().Do(emulator.CutBody(2))), Unreachable, 0},
		{"on the way", rules(get().Do(emulator.FlipBit(0))), Damaged, 2},
		{"with a cut between", rules(get().Nth(2).Do(emulator.CutBody(1)), get().Do(emulator.FlipBit(0))), Damaged, 3},
		{"on the disk", func(w *world) { w.server.Corrupt("box", "b", func(b []byte) []byte { return append(b, '!') }) }, Damaged, 2},
		{"cut on the disk", func(w *world) { w.server.Corrupt("box", "b", func(b []byte) []byte { return b[1:] }) }, Damaged, 2},
		{"emptied", func(w *world) { w.server.Corrupt("box", "b", func([]byte) []byte { return nil }) }, Damaged, 2},
	}
	for n := range 3 {
		faults = append(faults, fault{fmt.Sprint("cut after ", n), rules(get().Times(4).Do(emulator.CutBody(n))), -1, 5})
	}
	for bit := range 8 * 3 {
		faults = append(faults, fault{fmt.Sprint("bit ", bit), rules(get().Nth(1).Do(emulator.FlipBit(bit))), -1, 2})
	}
	for _, test := range faults {
		inFilledWorld(t, func(t *testing.T, w *world) {
			test.inject(w)
			body, p, err := w.Get(t.Context(), ref)
			if test.want < 0 {
				if err != nil || string(body) != "abc" {
					t.Errorf("%s: %q, %v", test.what, body, err)
				}
			} else if wantError(t, test.what, err, test.want, false); body != nil || (p.ETag != "") != (test.want == Damaged) {
				t.Errorf("%s: %q, %+v", test.what, body, p)
			}
			if test.want == Unreachable && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: %v", test.what, err)
			}
			if n := w.count(emulator.GetBlob); n != test.gets && test.gets > 0 {
				t.Errorf("%s: %d tries", test.what, n)
			}
		})
	}
}

// TestGetRange reads parts of a blob, of one version of it, and what is no part of it.
func TestGetRange(t *testing.T) {
	inFilledWorld(t, func(t *testing.T, w *world) {
		body := strings.Repeat("0123456789", 1000)
		w.server.Put("box", "b", []byte(body), mine())
		w.server.Inject(emulator.On(emulator.GetBlob).Nth(1).Do(emulator.CutBody(0)), emulator.On(emulator.GetBlob).Nth(3).Do(emulator.Answer(503, "ServerBusy")))
		for _, r := range []struct{ offset, size int }{{0, 1}, {0, 10_000}, {0, 20_000}, {9_999, 5}, {17, 4_000}} {
			got, p, err := w.GetRange(t.Context(), ref, r.offset, r.size, w.etag())
			if want := body[r.offset:min(r.offset+r.size, len(body))]; err != nil || string(got) != want || p.ETag != w.etag() || !maps.Equal(p.Metadata, mine()) {
				t.Errorf("%+v: %d bytes, %+v, %v", r, len(got), p, err)
			}
		}
		_, _, err := w.GetRange(t.Context(), ref, 0, 10, "0x1234")
		wantError(t, "another version", err, Mismatch, false)
		_, _, err = w.GetRange(t.Context(), ref, 10_000, 10, w.etag())
		wantError(t, "after the end", err, Refused, false)
		_, _, err = w.GetRange(t.Context(), Ref{"box", "other"}, 0, 10, "")
		wantError(t, "no blob", err, Absent, false)
	})
}

// brokenBody is a body that ends with an error, as bodies of net/http do.
type brokenBody struct {
	io.Reader
	err error
}

func (b brokenBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil {
		err = b.err
	}
	return n, err
}

func (brokenBody) Close() error { return nil }

// TestGetChanged asks for a blob in a version that it has, has not, or can't have, and changes a header of each 304. Whatever
// the answer is, the blob is read, or is said to have the version that it has.
func TestGetChanged(t *testing.T) {
	for _, test := range []struct {
		etag, header, value string // "own" is the blob's
		changed             bool
		requests            int
	}{
		{"own", "", "", false, 1},
		{"0x1", "", "", true, 1},
		{"*", "", "", true, 1},
		{"own", "ETag", `"own"`, false, 1},
		{"own", "ETag", `"0x1"`, true, 2},
		{"own", "Content-Length", "3", false, 1},
		{"own", "X-Ms-Error-Code", "", true, 2}, // a cache's
		{"own", "X-Ms-Error-Code", "BlobNotFound", true, 2},
		{"own", "X-Ms-Version", "", true, 2},
	} {
		inFilledWorld(t, func(t *testing.T, w *world) {
			w.server.Put("box", "b", nil, mine()) // an empty body is a body
			own := strings.NewReplacer("own", w.etag()).Replace
			c := w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
				resp, err := next(req)
				if test.header != "" && resp.StatusCode == http.StatusNotModified {
					resp.Header.Set(test.header, own(test.value))
					err = editBody(resp, func(string) string { return "old" })
				}
				return resp, err
			})
			body, p, changed, err := c.GetChanged(t.Context(), ref, own(test.etag))
			last := w.requests[len(w.requests)-1]
			if err != nil || len(body) > 0 || changed != test.changed || changed && p.ETag != w.etag() || len(w.requests) != test.requests ||
				!changed && (last.Status != http.StatusNotModified || last.Err != nil || last.Class != ClassRead) {
				t.Errorf("%+v: %q, %v, changed %v, %v; %+v", test, body, p, changed, err, w.requests)
			}
		})
	}
	inFilledWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On().Do(emulator.Answer(http.StatusNotModified, "ConditionNotMet")))
		_, _, err := w.Get(t.Context(), ref)
		wantError(t, "304 to everything", err, Unreachable, false)
		_, err = w.Put(t.Context(), Ref{"box", "new"}, nil, mine(), IfNew)
		wantError(t, "304 to a PUT that excludes all versions", err, Unreachable, true)
	})
}

func TestDeleteThatMeetsAnotherWriteHasFailed(t *testing.T) {
	inFilledWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On(emulator.DeleteBlob).Nth(1).Do(emulator.LostAnswer()))
		w.onRetry = func(context.Context, RetryEvent) { w.server.Put("box", "b", []byte("another"), others()) }
		wantError(t, "deleted, and then written by another", w.Delete(t.Context(), ref, IfMatch(w.etag())), Mismatch, true)
		if w.etag() == "" {
			t.Error("what another wrote is deleted")
		}
	})
}

func TestContentTypes(t *testing.T) {
	for body, want := range map[string]string{"": "application/json", `{"schema":1}`: "application/json", "planvcat\x00": "application/octet-stream"} {
		if got := contentType([]byte(body)); got != want {
			t.Errorf("%q: %s, want %s", body, got, want)
		}
	}
}

func TestContainers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first, second := map[string]string{"Layout": "1"}, map[string]string{"another": "2"}
		w.server.Inject(emulator.On(emulator.CreateContainer).Range(1, 5).Do(emulator.Answer(409, "ContainerBeingDeleted")))
		for _, metadata := range []map[string]string{first, second} { // a container that exists is left as it is
			must(t, w.CreateContainer(t.Context(), "day", metadata))
			if c, err := w.HeadContainer(t.Context(), "day"); err != nil || c.Name != "day" || c.Metadata["layout"] != "1" {
				t.Errorf("%+v, %v", c, err)
			}
		}
		must(t, w.SetContainerMetadata(t.Context(), "day", second))
		if c, err := w.HeadContainer(t.Context(), "day"); err != nil || !maps.Equal(c.Metadata, second) {
			t.Errorf("%+v, %v", c, err)
		}
		wantError(t, "metadata of no container", w.SetContainerMetadata(t.Context(), "none", nil), AbsentContainer, false)
		_, err := w.HeadContainer(t.Context(), "none")
		wantError(t, "no container", err, AbsentContainer, false)
		w.server.Inject(emulator.On(emulator.CreateContainer).Do(emulator.Answer(409, "ContainerDisabled")))
		wantError(t, "disabled", w.CreateContainer(t.Context(), "day", nil), Refused, false)
	})
}

// TestOwnTransport offers HTTP/2 to a client without a given transport. It uses HTTP/1.1, keeps as many connections as may
// be in flight, and Close closes them.
func TestOwnTransport(t *testing.T) {
	const parallel = 24 // more than any default keeps
	var opened atomic.Int32
	closed := make(chan bool, 2*parallel)
	var barrier sync.WaitGroup
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Proto != "HTTP/1.1" {
			t.Errorf("it speaks %v", r.Proto)
		}
		barrier.Done()
		barrier.Wait() // concurrent, so each request has its own connection
	}))
	server.EnableHTTP2 = true
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			opened.Add(1)
		case http.StateClosed:
			closed <- true
		}
	}
	server.StartTLS()
	defer server.Close()
	c := newClient(Options{Concurrency: parallel})
	c.own.Transport.(*http.Transport).TLSClientConfig.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	for round := range 3 {
		barrier.Add(parallel)
		var done sync.WaitGroup
		for range parallel {
			done.Go(func() {
				resp, err := c.own.Get(server.URL)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			})
		}
		done.Wait()
		if n := opened.Load(); n != parallel {
			t.Errorf("after round %d %d connections were opened", round+1, n)
		}
	}
	c.Close()
	for range parallel {
		<-closed
	}
}
