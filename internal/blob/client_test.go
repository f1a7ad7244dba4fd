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
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

func TestPutDoesWhatItsConditionSays(t *testing.T) {
	const (
		nothing = iota
		blobThere
		noContainer
	)
	current := func(w *world) Condition {
		b, _ := w.server.Blob("box", "b")
		return IfMatch(b.ETag)
	}
	always := func(c Condition) func(*world) Condition { return func(*world) Condition { return c } }
	stale := always(IfMatch("0x1"))
	const fine = Reason(-1)
	for _, test := range []struct {
		what  string
		cond  func(*world) Condition
		there int
		want  Reason
	}{
		{"always, nothing there", always(Always), nothing, fine},
		{"always, a blob there", always(Always), blobThere, fine},
		{"always, no container", always(Always), noContainer, AbsentContainer},
		{"if new, nothing there", always(IfNew), nothing, fine},
		{"if new, a blob there", always(IfNew), blobThere, Mismatch},
		{"if new, no container", always(IfNew), noContainer, AbsentContainer},
		{"if there, nothing there", always(IfThere), nothing, Absent},
		{"if there, a blob there", always(IfThere), blobThere, fine},
		{"if there, no container", always(IfThere), noContainer, AbsentContainer},
		{"if match, nothing there", stale, nothing, Absent},
		{"if match, the version there", current, blobThere, fine},
		{"if match, another version there", stale, blobThere, Mismatch},
		{"if match, no container", stale, noContainer, AbsentContainer},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			switch test.there {
			case blobThere:
				w.server.Put("box", "b", []byte("old"), others())
			case noContainer:
				w.server.RemoveContainer("box")
			}
			etag, err := w.Put(t.Context(), ref, []byte("new"), mine(), test.cond(w))
			b, ok := w.server.Blob("box", "b")
			if test.want != fine {
				wantError(t, test.what, err, test.want, false)
				if ok && string(b.Body) != "old" {
					t.Errorf("%s: the blob was overwritten", test.what)
				}
				if len(w.retries) > 0 {
					t.Errorf("%s: it was retried", test.what)
				}
				return
			}
			if err != nil || etag != b.ETag || etag == "" {
				t.Errorf("%s: ETag %q, %v; stored is %q", test.what, etag, err, b.ETag)
			}
			sum := md5.Sum([]byte("new"))
			if string(b.Body) != "new" || !maps.Equal(b.Metadata, mine()) || !bytes.Equal(b.MD5, sum[:]) || b.ContentType != "application/octet-stream" {
				t.Errorf("%s: stored is %+v", test.what, b)
			}
			if n := len(w.server.Requests()); n != 1 {
				t.Errorf("%s: it took %d requests", test.what, n)
			}
		})
	}
}

// conditions are the conditions under which a write may succeed on what prepare stores.
func conditions() []struct {
	what    string
	prepare func(w *world) Condition
} {
	there := func(w *world) string {
		w.server.Put("box", "b", []byte("old"), others())
		b, _ := w.server.Blob("box", "b")
		return b.ETag
	}
	return []struct {
		what    string
		prepare func(w *world) Condition
	}{
		{"always", func(*world) Condition { return Always }},
		{"if new", func(*world) Condition { return IfNew }},
		{"if there", func(w *world) Condition { there(w); return IfThere }},
		{"if match", func(w *world) Condition { return IfMatch(there(w)) }},
	}
}

// interruptions are effects that leave a client without a valid answer.
var interruptions = []emulator.Effect{
	emulator.LostRequest(), emulator.Reset(), emulator.Silence(),
	emulator.Answer(500, "InternalError"), emulator.Answer(500, "OperationTimedOut"), emulator.Answer(503, "ServerBusy"),
	emulator.Answer(408, "RequestTimeout"), emulator.Answer(502, "BadGateway"), emulator.Answer(504, "GatewayTimeout"),
}

func TestPutWhoseAnswerIsLostHasSucceeded(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, cond := range conditions() {
		for _, interruption := range interruptions {
			for _, effect := range []emulator.Effect{interruption, interruption.Applied(), interruption.Late(0), interruption.Late(1), interruption.Late(2)} {
				for times := 1; times <= 2; times++ {
					inWorld(t, func(t *testing.T, w *world) {
						what := fmt.Sprintf("%s, %s %d times", cond.what, effect, times)
						c := cond.prepare(w)
						w.server.Inject(emulator.On(emulator.PutBlob).Times(times).Do(effect))
						etag, err := w.Put(t.Context(), ref, []byte("new"), mine(), c)
						b, _ := w.server.Blob("box", "b")
						if err != nil || string(b.Body) != "new" || !maps.Equal(b.Metadata, mine()) {
							t.Errorf("%s: %v; stored is %q of %v", what, err, b.Body, b.Metadata)
						}
						// A late request may repeat an unconditional write.
						if etag != b.ETag && (c == IfNew || c.ifMatch != "" && c != IfThere) {
							t.Errorf("%s: ETag %q, stored is %q", what, etag, b.ETag)
						}
						if len(w.retries) != times {
							t.Errorf("%s: it was retried %d times", what, len(w.retries))
						}
					})
				}
			}
		}
	}
}

// TestPutThatMeetsAnotherWriteHasFailed writes as another client between two attempts.
func TestPutThatMeetsAnotherWriteHasFailed(t *testing.T) {
	for _, test := range []struct {
		effect  emulator.Effect
		unknown bool
	}{
		{emulator.LostRequest(), true},
		{emulator.Reset(), true},
		{emulator.Silence(), true},
		{emulator.Answer(500, "InternalError"), true},
		{emulator.Answer(503, "ServerBusy"), true},
		{emulator.Answer(429, "TooManyRequests"), false},
		{emulator.Answer(409, "ContainerBeingDeleted"), false},
	} {
		for _, cond := range conditions() {
			if cond.what != "if new" && cond.what != "if match" {
				continue
			}
			inWorld(t, func(t *testing.T, w *world) {
				c := cond.prepare(w)
				w.server.Inject(emulator.On(emulator.PutBlob).Nth(1).Do(test.effect))
				w.onRetry = func(context.Context, RetryEvent) { w.server.Put("box", "b", []byte("new"), others()) } // equal content is no proof
				_, err := w.Put(t.Context(), ref, []byte("new"), mine(), c)
				wantError(t, fmt.Sprintf("%s after %s", cond.what, test.effect), err, Mismatch, test.unknown)
				var answer *azcore.ResponseError
				if !errors.As(err, &answer) {
					t.Errorf("the service's own error is lost: %v", err)
				}
			})
		}
	}
}

func TestPutThatFindsItsBlobGoneIsAbsent(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Put("box", "b", []byte("old"), others())
		b, _ := w.server.Blob("box", "b")
		w.server.Inject(emulator.On(emulator.PutBlob).Nth(1).Do(emulator.Answer(503, "ServerBusy")))
		w.onRetry = func(context.Context, RetryEvent) { w.server.Remove("box", "b") }
		_, err := w.Put(t.Context(), ref, []byte("new"), mine(), IfMatch(b.ETag))
		wantError(t, "removed between two tries", err, Absent, true)
	})
}

func TestPutRefusedWhereNothingIsThereIsTriedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On(emulator.PutBlob).Range(1, 3).Do(emulator.Answer(409, "BlobAlreadyExists")))
		etag, err := w.Put(t.Context(), ref, []byte("new"), mine(), IfNew)
		b, _ := w.server.Blob("box", "b")
		if err != nil || etag != b.ETag || w.count(emulator.PutBlob) != 4 {
			t.Errorf("%q, %v after %d tries", etag, err, w.count(emulator.PutBlob))
		}
	})
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On(emulator.PutBlob).Do(emulator.Answer(409, "BlobAlreadyExists")))
		_, err := w.Put(t.Context(), ref, []byte("new"), mine(), IfNew)
		wantError(t, "forever", err, Mismatch, false)
	})
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On(emulator.PutBlob).Do(emulator.Answer(412, "ConditionNotMet")))
		_, err := w.Put(t.Context(), ref, []byte("new"), mine(), IfThere)
		wantError(t, "if there", err, Absent, false)
		if n := w.count(emulator.PutBlob); n != 1 {
			t.Errorf("if there: %d tries", n)
		}
	})
}

func TestPutLooksAgainWhenTheLookFails(t *testing.T) {
	for _, effect := range interruptions {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(
				emulator.On(emulator.PutBlob).Nth(1).Do(emulator.LostAnswer()),
				emulator.On(emulator.HeadBlob).Nth(1).Do(effect),
			)
			etag, err := w.Put(t.Context(), ref, []byte("new"), mine(), IfNew)
			if b, _ := w.server.Blob("box", "b"); err != nil || etag != b.ETag {
				t.Errorf("%s: %q, %v", effect, etag, err)
			}
		})
	}
}

// TestLookThatFailsWritesNothing refuses each attempt of a write. The write certainly has no effect, whatever
// the reads after the refusals return.
func TestLookThatFailsWritesNothing(t *testing.T) {
	for _, effect := range []emulator.Effect{emulator.Answer(503, "ServerBusy"), emulator.LostAnswer()} {
		for what, write := range map[string]func(t *testing.T, w *world) error{
			"put": func(t *testing.T, w *world) error {
				_, err := w.Put(t.Context(), ref, []byte("new"), mine(), IfNew)
				return err
			},
			"delete": func(t *testing.T, w *world) error { return w.Delete(t.Context(), ref, IfMatch("0x1")) },
		} {
			t.Run(what+", look: "+effect.String(), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					w.server.Put("box", "b", []byte("old"), others())
					w.server.Inject(emulator.On(emulator.HeadBlob).Nth(1).Do(effect))
					wantError(t, what, write(t, w), Mismatch, false)
				})
			})
		}
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

func TestBytesDamagedOnTheirWayAreNotStored(t *testing.T) {
	for times, want := range []Reason{1: -1, 2: Damaged} {
		if times == 0 {
			continue
		}
		inWorld(t, func(t *testing.T, w *world) {
			damaged := 0
			c := w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
				if damaged < times {
					damaged++
					req = req.Clone(req.Context())
					req.Body = io.NopCloser(strings.NewReader("nfw"))
				}
				return next(req)
			})
			_, err := c.Put(t.Context(), ref, []byte("new"), mine(), Always)
			if want == Damaged {
				wantError(t, "twice", err, Damaged, false)
			} else if err != nil {
				t.Errorf("once: %v", err)
			}
			if b, ok := w.server.Blob("box", "b"); ok && string(b.Body) != "new" {
				t.Errorf("%q is stored", b.Body)
			}
			if damaged != times {
				t.Errorf("%d of %d requests were damaged", damaged, times)
			}
		})
	}
}

// TestSumsAreSent checks both headers: the service checks the body against one and keeps the other for reads.
func TestSumsAreSent(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sum := md5.Sum([]byte("new"))
		want := base64.StdEncoding.EncodeToString(sum[:])
		c := w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
			for _, name := range []string{"Content-MD5", "x-ms-blob-content-md5"} {
				if got := headerOf(req, name); !slices.Equal(got, []string{want}) {
					t.Errorf("%s is %q, not %q", name, got, want)
				}
			}
			return next(req)
		})
		_, err := c.Put(t.Context(), ref, []byte("new"), mine(), IfNew)
		must(t, err)
	})
}

func TestGetReadsWhatPutWrote(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, body := range [][]byte{nil, []byte("{}"), {0}, bytes.Repeat([]byte("0123456789"), 300_000)} {
		inWorld(t, func(t *testing.T, w *world) {
			etag, err := w.Put(t.Context(), ref, body, mine(), IfNew)
			must(t, err)
			time.Sleep(time.Hour)
			got, p, err := w.Get(t.Context(), ref)
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("%d bytes became %d, %v", len(body), len(got), err)
			}
			head, err := w.Head(t.Context(), ref)
			must(t, err)
			for what, p := range map[string]Properties{"get": p, "head": head} {
				if p.ETag != etag || !maps.Equal(p.Metadata, mine()) {
					t.Errorf("%s: ETag %q, not %q, metadata %v", what, p.ETag, etag, p.Metadata)
				}
				if !p.Seen.Equal(time.Now()) || !p.LastModified.Equal(time.Now().Add(-time.Hour)) {
					t.Errorf("%s: last modified %v, seen %v", what, p.LastModified, p.Seen)
				}
			}
		})
	}
}

func TestGetOfNothing(t *testing.T) {
	for what, test := range map[string]struct {
		ref  Ref
		want Reason
	}{
		"blob":      {Ref{"box", "other"}, Absent},
		"container": {Ref{"other", "b"}, AbsentContainer},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			_, _, err := w.Get(t.Context(), test.ref)
			wantError(t, "get, no "+what, err, test.want, false)
			_, err = w.Head(t.Context(), test.ref)
			wantError(t, "head, no "+what, err, test.want, false)
			if n := len(w.server.Requests()); n != 2 {
				t.Errorf("no %s: %d requests", what, n)
			}
		})
	}
}

func TestBodiesCutShortAreReadAgain(t *testing.T) {
	const body = "0123456789"
	for n := range len(body) {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Put("box", "b", []byte(body), mine())
			w.server.Inject(emulator.On(emulator.GetBlob).Times(4).Do(emulator.CutBody(n)))
			got, _, err := w.Get(t.Context(), ref)
			if err != nil || string(got) != body || w.count(emulator.GetBlob) != 5 {
				t.Errorf("cut after %d: %q, %v after %d tries", n, got, err, w.count(emulator.GetBlob))
			}
		})
	}
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Put("box", "b", []byte(body), mine())
		w.server.Inject(emulator.On(emulator.GetBlob).Do(emulator.CutBody(9)))
		got, p, err := w.Get(t.Context(), ref)
		wantError(t, "always cut", err, Unreachable, false)
		if got != nil || p.ETag != "" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("always cut: %q, %+v, %v", got, p, err)
		}
	})
}

// brokenBody is a body that ends with an error, as bodies of net/http do. Without an error it ends with its
// request.
type brokenBody struct {
	io.Reader
	err  error
	done <-chan struct{}
}

func (b brokenBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	switch {
	case err == nil:
		return n, nil
	case b.err != nil:
		return n, b.err
	}
	<-b.done
	return n, context.DeadlineExceeded
}

func (brokenBody) Close() error { return nil }

func TestBodiesThatBreakAreReadAgain(t *testing.T) {
	for what, broken := range map[string]error{"broken connection": io.ErrUnexpectedEOF, "silence": nil} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Put("box", "b", []byte("abc"), mine())
			n := 0
			c := w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
				resp, err := next(req)
				if n++; n <= 2 && err == nil {
					resp.Body = brokenBody{strings.NewReader("a"), broken, req.Context().Done()}
				}
				return resp, err
			})
			body, _, err := c.Get(t.Context(), ref)
			if err != nil || string(body) != "abc" || n != 3 {
				t.Errorf("%s: %q, %v after %d tries", what, body, err, n)
			}
		})
	}
}

func TestFlippedBitsAreReadOnceMore(t *testing.T) {
	for bit := range 8 * 3 {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Put("box", "b", []byte("abc"), mine())
			w.server.Inject(emulator.On(emulator.GetBlob).Nth(1).Do(emulator.FlipBit(bit)))
			got, _, err := w.Get(t.Context(), ref)
			if err != nil || string(got) != "abc" || w.count(emulator.GetBlob) != 2 {
				t.Errorf("bit %d: %q, %v after %d tries", bit, got, err, w.count(emulator.GetBlob))
			}
		})
	}
	for what, damage := range map[string]func(w *world){
		"on the way": func(w *world) { w.server.Inject(emulator.On(emulator.GetBlob).Do(emulator.FlipBit(0))) },
		"on the disk": func(w *world) {
			w.server.Corrupt("box", "b", func(b []byte) []byte { return append(b, '!') })
		},
		"cut on the disk": func(w *world) { w.server.Corrupt("box", "b", func(b []byte) []byte { return b[1:] }) },
		"emptied":         func(w *world) { w.server.Corrupt("box", "b", func([]byte) []byte { return nil }) },
		"with a cut between": func(w *world) {
			w.server.Inject(emulator.On(emulator.GetBlob).Nth(2).Do(emulator.CutBody(1)), emulator.On(emulator.GetBlob).Do(emulator.FlipBit(0)))
		},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Put("box", "b", []byte("abc"), mine())
			damage(w)
			got, _, err := w.Get(t.Context(), ref)
			wantError(t, what, err, Damaged, false)
			want := 2
			if what == "with a cut between" {
				want = 3
			}
			if n := w.count(emulator.GetBlob); n != want || got != nil {
				t.Errorf("%s: %q after %d tries", what, got, n)
			}
		})
	}
}

func TestBlobWithoutMD5IsDamaged(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Put("box", "b", []byte("abc"), mine())
		c := w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
			resp, err := next(req)
			if err == nil {
				resp.Header.Del("Content-MD5")
			}
			return resp, err
		})
		_, _, err := c.Get(t.Context(), ref)
		wantError(t, "no MD5", err, Damaged, false)
	})
}

func TestDelete(t *testing.T) {
	for _, test := range []struct {
		what    string
		prepare func(w *world) Condition
		want    Reason // -1 for none
		gone    bool
	}{
		{"there", func(w *world) Condition { return Always }, -1, true},
		{"this version", func(w *world) Condition { b, _ := w.server.Blob("box", "b"); return IfMatch(b.ETag) }, -1, true},
		{"another version", func(*world) Condition { return IfMatch("0x1") }, Mismatch, false},
		{"nothing there", func(w *world) Condition { w.server.Remove("box", "b"); return Always }, Absent, true},
		{"nothing there of a version", func(w *world) Condition { w.server.Remove("box", "b"); return IfMatch("0x1") }, Absent, true},
		{"no container", func(w *world) Condition { w.server.RemoveContainer("box"); return Always }, AbsentContainer, true},
		{"no container of a version", func(w *world) Condition { w.server.RemoveContainer("box"); return IfMatch("0x1") }, AbsentContainer, true},
		{"nothing there, and 412 for it", func(w *world) Condition {
			w.server.Remove("box", "b")
			w.server.Inject(emulator.On(emulator.DeleteBlob).Do(emulator.Answer(412, "ConditionNotMet")))
			return IfMatch("0x1")
		}, Absent, true},
		{"leased", func(w *world) Condition {
			w.server.Inject(emulator.On(emulator.DeleteBlob).Do(emulator.Answer(412, "LeaseIdMissing")))
			return Always
		}, Refused, false},
		{"immutable", func(w *world) Condition {
			w.server.Inject(emulator.On(emulator.DeleteBlob).Do(emulator.Answer(409, "BlobImmutableDueToPolicy")))
			return Always
		}, Refused, false},
		{"with snapshots", func(w *world) Condition {
			w.server.Inject(emulator.On(emulator.DeleteBlob).Do(emulator.Answer(409, "SnapshotsPresent")))
			return Always
		}, Refused, false},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Put("box", "b", []byte("abc"), mine())
			cond := test.prepare(w)
			err := w.Delete(t.Context(), ref, cond)
			if test.want < 0 && err != nil {
				t.Errorf("%s: %v", test.what, err)
			} else if test.want >= 0 {
				wantError(t, test.what, err, test.want, false)
			}
			if _, there := w.server.Blob("box", "b"); there == test.gone {
				t.Errorf("%s: the blob exists: %v", test.what, there)
			}
			if len(w.retries) > 0 {
				t.Errorf("%s: it was retried", test.what)
			}
			if test.want < 0 {
				wantError(t, test.what+", once more", w.Delete(t.Context(), ref, cond), Absent, false)
			}
		})
	}
}

func TestDeleteWhoseAnswerIsLost(t *testing.T) {
	for _, effect := range interruptions {
		for _, effect := range []emulator.Effect{effect, effect.Applied(), effect.Late(1)} {
			inWorld(t, func(t *testing.T, w *world) {
				w.server.Put("box", "b", []byte("abc"), mine())
				b, _ := w.server.Blob("box", "b")
				w.server.Inject(emulator.On(emulator.DeleteBlob).Nth(1).Do(effect))
				if err := w.Delete(t.Context(), ref, IfMatch(b.ETag)); err != nil && !Is(err, Absent) {
					t.Errorf("%s: %v", effect, err)
				}
				if len(w.names()) > 0 {
					t.Errorf("%s: it is still there", effect)
				}
			})
		}
	}
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Put("box", "b", []byte("abc"), mine())
		b, _ := w.server.Blob("box", "b")
		w.server.Inject(emulator.On(emulator.DeleteBlob).Nth(1).Do(emulator.LostAnswer()))
		w.onRetry = func(context.Context, RetryEvent) { w.server.Put("box", "b", []byte("another"), others()) }
		err := w.Delete(t.Context(), ref, IfMatch(b.ETag))
		wantError(t, "deleted, and then written by another", err, Mismatch, true)
		if len(w.names()) == 0 {
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

func TestCreateContainer(t *testing.T) {
	for what, prepare := range map[string]func(w *world){
		"new":   func(w *world) {},
		"there": func(w *world) { w.server.PutContainer("day", map[string]string{"planvaultlayout": "1"}) },
		"lost answer": func(w *world) {
			w.server.Inject(emulator.On(emulator.CreateContainer).Nth(1).Do(emulator.LostAnswer()))
		},
		"busy": func(w *world) {
			w.server.Inject(emulator.On(emulator.CreateContainer).Nth(1).Do(emulator.Answer(503, "ServerBusy")))
		},
		"being deleted": func(w *world) {
			w.server.Inject(emulator.On(emulator.CreateContainer).Range(1, 5).Do(emulator.Answer(409, "ContainerBeingDeleted")))
		},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			prepare(w)
			if err := w.CreateContainer(t.Context(), "day", map[string]string{"planvaultlayout": "1"}); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			for items, err := range w.ListContainers(t.Context(), "day") {
				if err != nil || len(items) != 1 || items[0].Name != "day" || items[0].Metadata["planvaultlayout"] != "1" {
					t.Errorf("%s: %+v, %v", what, items, err)
				}
			}
		})
	}
	inWorld(t, func(t *testing.T, w *world) {
		w.server.PutContainer("day", map[string]string{"planvaultlayout": "1"})
		w.server.Inject(emulator.On(emulator.SetContainerMetadata).Nth(1).Do(emulator.LostAnswer()))
		if err := w.SetContainerMetadata(t.Context(), "day", map[string]string{"another": "2"}); err != nil {
			t.Error(err)
		}
		if c, err := w.HeadContainer(t.Context(), "day"); err != nil || !maps.Equal(c.Metadata, map[string]string{"another": "2"}) {
			t.Errorf("%+v, %v", c, err)
		}
		wantError(t, "metadata of no container", w.SetContainerMetadata(t.Context(), "none", nil), AbsentContainer, false)
	})
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On(emulator.CreateContainer).Do(emulator.Answer(409, "ContainerDisabled")))
		if err := w.CreateContainer(t.Context(), "day", nil); err == nil {
			t.Error("a container that is disabled counts as created")
		}
	})
}

func TestRequestsAreReported(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On(emulator.PutBlob).Nth(1).Do(emulator.LostAnswer()))
		_, err := w.Put(t.Context(), ref, []byte("new"), mine(), IfNew)
		must(t, err)
		for range w.List(t.Context(), "box", ListOptions{Prefix: "x/"}) {
		}
		must(t, w.DeleteBatch(t.Context(), "box", []Target{{Name: "b"}}))
		type told struct {
			op     string
			ref    Ref
			method string
			status int
			failed bool
		}
		want := []told{
			{"put", ref, "PUT", 0, true},
			{"put", ref, "PUT", 409, false},
			{"put", ref, "HEAD", 200, false},
			{"list", Ref{"box", "x/"}, "GET", 200, false},
			{"delete batch", Ref{Container: "box"}, "POST", 202, false},
		}
		if len(w.requests) != len(want) {
			t.Fatalf("%d requests were reported: %+v", len(w.requests), w.requests)
		}
		for i, r := range w.requests {
			got := told{r.Op, r.Ref, r.Method, r.Status, r.Err != nil}
			if got.status == 412 {
				got.status = 409 // both mean that the blob exists
			}
			if got != want[i] {
				t.Errorf("request %d: %+v was reported, want %+v", i, got, want[i])
			}
			if (r.RequestID == "") != got.failed || r.Start.IsZero() || r.Duration < 0 {
				t.Errorf("request %d: %+v", i, r)
			}
		}
		if len(w.retries) != 1 || w.retries[0].Op != "put" || w.retries[0].Ref != ref || w.retries[0].Try != 1 || w.retries[0].Wait <= 0 || !errors.Is(w.retries[0].Err, io.EOF) {
			t.Errorf("retries: %+v", w.retries)
		}
	})
}

func TestRequestsAreTimed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, err := w.Put(t.Context(), ref, nil, mine(), IfNew)
		must(t, err)
		if len(w.requests) != 1 || w.requests[0].Duration != 3*time.Second {
			t.Errorf("%+v", w.requests)
		}
	}, emulator.WithLatency(3*time.Second))
}

func TestServiceVersionIsSent(t *testing.T) {
	for version, want := range map[string]string{"": "2026-02-06", "2021-12-02": "2021-12-02"} {
		synctest.Test(t, func(t *testing.T) {
			server := emulator.New()
			server.Put("box", "b", nil, nil)
			var versions []string
			c, err := NewFromConnectionString(server.ConnectionString(), Options{
				Concurrency: 1, Retry: retry, ServiceVersion: version,
				Transport: sender(func(req *http.Request) (*http.Response, error) {
					versions = append(versions, headerOf(req, "x-ms-version")...)
					return server.Transport().Do(req)
				}),
			})
			must(t, err)
			_, err = c.Head(t.Context(), ref) // signed, so the header was replaced before signing
			must(t, err)
			must(t, c.DeleteBatch(t.Context(), "box", []Target{{Name: "b"}}))
			if !slices.Equal(versions, []string{want, want}) {
				t.Errorf("version %q: %q were sent, want %s", version, versions, want)
			}
		})
	}
}

func TestConnectionStringsThatCantBeUsed(t *testing.T) {
	const key = "c2VjcmV0LWtleQ=="
	for _, s := range []string{
		"", ";", "=", "nonsense", "AccountKey=" + key, "AccountName=a", "AccountName=a;AccountKey=" + key + "!", "AccountName=a;AccountKey",
		"AccountName=;AccountKey=" + key + ";BlobEndpoint=",
		"AccountName=a;AccountKey=" + key + ";BlobEndpoint=http://[",
		"AccountName=a;AccountKey=" + key + ";BlobEndpoint=/path",
		"BlobEndpoint=http://ho st;SharedAccessSignature=sig=" + key,
		"BlobEndpoint=http://%zz;SharedAccessSignature=sig=" + key,
		"BlobEndpoint=://;SharedAccessSignature=sig=" + key,
	} {
		c, err := NewFromConnectionString(s, Options{Concurrency: 1, Retry: retry})
		if err == nil {
			t.Errorf("%q was accepted, for %s", s, c.service.URL())
			continue
		}
		if strings.Contains(err.Error(), "c2Vj") {
			t.Errorf("the error of %q contains the secret: %v", s, err)
		}
	}
}

// listen serves an emulator on a socket and returns a connection string for it. changed is called with the
// state of each connection.
func listen(t *testing.T, handler http.Handler, changed func(http.ConnState)) string {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) { changed(state) }
	s.Start()
	t.Cleanup(s.Close)
	return fmt.Sprintf("AccountName=%s;AccountKey=%s;BlobEndpoint=%s/%s", emulator.DefaultAccount, emulator.DefaultKey, s.URL, emulator.DefaultAccount)
}

// TestOwnTransport checks that a client without a given transport keeps as many connections as may be in
// flight, and that Close closes them.
func TestOwnTransport(t *testing.T) {
	const parallel = 24 // more than any default keeps
	server := emulator.New()
	server.Put("box", "b", nil, nil)
	var opened atomic.Int32
	closed := make(chan bool, 2*parallel)
	var barrier sync.WaitGroup
	cs := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		barrier.Done()
		barrier.Wait() // concurrent, so each request has its own connection
		server.ServeHTTP(w, r)
	}), func(state http.ConnState) {
		switch state {
		case http.StateNew:
			opened.Add(1)
		case http.StateClosed:
			closed <- true
		}
	})
	c, err := NewFromConnectionString(cs, Options{Concurrency: parallel, Retry: retry})
	must(t, err)
	for round := range 3 {
		barrier.Add(parallel)
		var done sync.WaitGroup
		for range parallel {
			done.Go(func() {
				if _, err := c.Head(t.Context(), ref); err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
		if n := opened.Load(); n != parallel {
			t.Errorf("after round %d %d connections were opened", round+1, n)
		}
	}
	c.Close()
	for i := range parallel {
		select {
		case <-closed:
		case <-time.After(30 * time.Second):
			t.Fatalf("%d of %d connections were closed", i, parallel)
		}
	}
}

func TestCloseLeavesAGivenTransportAlone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Close()
		if w.own != nil {
			t.Error("the client has a transport of its own")
		}
	})
}

// TestOwnTransportSpeaksHTTP1 offers HTTP/2 to a client, which uses HTTP/1.1.
func TestOwnTransportSpeaksHTTP1(t *testing.T) {
	var proto atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { proto.Store(r.Proto) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	c := newClient(Options{Concurrency: 1})
	defer c.Close()
	c.own.Transport.(*http.Transport).TLSClientConfig.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	resp, err := c.own.Get(server.URL)
	must(t, err)
	resp.Body.Close()
	if proto.Load() != "HTTP/1.1" {
		t.Errorf("it speaks %v", proto.Load())
	}
}

func TestHeadContainer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.PutContainer("box", map[string]string{"Layout": "1"})
		if c, err := w.HeadContainer(t.Context(), "box"); err != nil || c.Name != "box" || c.Metadata["layout"] != "1" {
			t.Errorf("%+v, %v", c, err)
		}
		_, err := w.HeadContainer(t.Context(), "none")
		wantError(t, "no container", err, AbsentContainer, false)
		for code, forbidden := range map[string]bool{"AuthorizationPermissionMismatch": true, "AuthorizationFailure": true, "AuthenticationFailed": false} {
			w.server.Inject(emulator.On().Times(1).Do(emulator.Answer(403, code)))
			_, err = w.HeadContainer(t.Context(), "box")
			wantError(t, code, err, Refused, false)
			if IsForbidden(err) != forbidden {
				t.Errorf("%s: IsForbidden says %v", code, !forbidden)
			}
		}
	})
}
