package emulator_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/planvault/azblob/emulator"
)

// TestBrokenRequests tries each effect that hides the outcome of a put.
func TestBrokenRequests(t *testing.T) {
	ended := func(t *testing.T, err error) {
		t.Helper()
		var wrapped *url.Error
		if !errors.As(err, &wrapped) || wrapped.Op != "Put" || !strings.HasSuffix(wrapped.URL, "/plans/a") {
			t.Errorf("got %#v, want an error as of net/http", err)
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %v, want the end of the connection", err)
		}
	}
	reset := func(t *testing.T, err error) {
		t.Helper()
		var network *net.OpError
		if !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &network) {
			t.Errorf("got %v, want a reset", err)
		}
	}
	answered := func(status int, code string) func(*testing.T, error) {
		return func(t *testing.T, err error) {
			t.Helper()
			want(t, err, status, code)
		}
	}
	for _, tc := range []struct {
		effect  emulator.Effect
		applied bool
		check   func(*testing.T, error)
	}{
		{emulator.LostRequest(), false, ended},
		{emulator.LostAnswer(), true, ended},
		{emulator.Reset(), false, reset},
		{emulator.Reset().Applied(), true, reset},
		{emulator.Answer(503, "ServerBusy").RetryAfter(1500 * time.Millisecond), false, func(t *testing.T, err error) {
			want(t, err, 503, "ServerBusy")
			var resp *azcore.ResponseError
			if !errors.As(err, &resp) || resp.RawResponse.Header.Get("Retry-After") != "2" {
				t.Errorf("got %v", err)
			}
		}},
		{emulator.Answer(500, "InternalError").Applied(), true, answered(500, "InternalError")},
		{emulator.Answer(429, "TooMany"), false, answered(429, "TooMany")},
		{emulator.Answer(409, "ContainerBeingDeleted"), false, answered(409, "ContainerBeingDeleted")},
	} {
		t.Run(tc.effect.String(), func(t *testing.T) {
			onBothWires(t, func(t *testing.T, s *emulator.Server, c *container.Client) {
				rule := emulator.On(emulator.PutBlob).Do(tc.effect)
				s.Inject(rule)
				_, err := upload(t.Context(), c, "a", "body", nil)
				tc.check(t, err)
				if applied := s.Len("plans") == 1; applied != tc.applied {
					t.Errorf("applied: %t", applied)
				}
				if rule.Fired() != 1 {
					t.Errorf("%s fired %d times", rule, rule.Fired())
				}
				s.ClearFaults()
				if _, err := upload(t.Context(), c, "a", "body", nil); err != nil {
					t.Errorf("after the fault: %v", err)
				}
			})
		})
	}
}

func TestSilence(t *testing.T) {
	for effect, applied := range map[emulator.Effect]bool{emulator.Silence(): false, emulator.Silence().Applied(): true} {
		synctest.Test(t, func(t *testing.T) {
			s := emulator.New(emulator.Options{})
			c := plans(t, s.Transport())
			s.Inject(emulator.On(emulator.PutBlob).Do(effect))
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			begin := time.Now()
			_, err := upload(ctx, c, "a", "body", nil)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Hour {
				t.Errorf("got %v after %s", err, time.Since(begin))
			}
			if (s.Len("plans") == 1) != applied {
				t.Errorf("%s: %d blobs", effect, s.Len("plans"))
			}
		})
	}
}

func TestCutBody(t *testing.T) {
	const body = "0123456789"
	for cut := range len(body) + 2 {
		onBothWires(t, func(t *testing.T, s *emulator.Server, c *container.Client) {
			mustUpload(t, c, "a", body, nil)
			s.Inject(emulator.On(emulator.GetBlob).Do(emulator.CutBody(cut)))
			got, resp, err := download(t.Context(), c, "a", nil)
			if wanted := body[:min(cut, len(body))]; got != wanted {
				t.Errorf("got %q, want %q", got, wanted)
			}
			if *resp.ContentLength != int64(len(body)) {
				t.Errorf("Content-Length is %d", *resp.ContentLength)
			}
			// In process, the body ends cleanly, as behind some proxies. Over a socket, net/http notices that
			// the connection ended.
			socket := strings.Contains(t.Name(), "/socket")
			if wanted := socket && cut < len(body); errors.Is(err, io.ErrUnexpectedEOF) != wanted {
				t.Errorf("cut at %d: %v", cut, err)
			}
		})
	}
}

func TestFlipBit(t *testing.T) {
	const body = "0123"
	for bit := range len(body)*8 + 1 {
		s := emulator.New(emulator.Options{})
		c := plans(t, s.Transport())
		mustUpload(t, c, "a", body, nil)
		s.Inject(emulator.On(emulator.GetBlob).Nth(1).Do(emulator.FlipBit(bit)))
		wanted := []byte(body)
		if bit < len(body)*8 {
			wanted[bit/8] ^= 1 << (bit % 8)
		}
		if got, _, err := download(t.Context(), c, "a", nil); err != nil || !bytes.Equal([]byte(got), wanted) {
			t.Errorf("bit %d: got %q, %v", bit, got, err)
		}
		if got, _, err := download(t.Context(), c, "a", nil); err != nil || got != body {
			t.Errorf("bit %d: the stored blob is %q now, %v", bit, got, err)
		}
	}
}

func TestDuplicate(t *testing.T) {
	for k := range 3 {
		s := emulator.New(emulator.Options{})
		c := plans(t, s.Transport())
		s.Inject(emulator.On(emulator.PutBlob).Nth(1).Do(emulator.Duplicate(k)))
		mustUpload(t, c, "a", "old", nil)
		for i := range k {
			if i == 0 {
				mustUpload(t, c, "a", "new", nil)
				continue
			}
			mustUpload(t, c, "other", "x", nil)
		}
		// The late copy of the first put has overwritten the second one.
		if b, _ := s.Blob("plans", "a"); string(b.Body) != "old" {
			t.Errorf("after %d: %q\n%s", k, b.Body, strings.Join(trace(s), "\n"))
		}
		if n := s.DeliverLate(); n != 0 {
			t.Errorf("after %d: %d were still under way", k, n)
		}
	}
	s := emulator.New(emulator.Options{})
	c := plans(t, s.Transport())
	s.Inject(emulator.On(emulator.PutBlob).Do(emulator.Duplicate(5)))
	mustUpload(t, c, "a", "body", &blockblob.UploadOptions{AccessConditions: conditions("", "*")})
	before, _ := s.Blob("plans", "a")
	n := s.DeliverLate()
	after, _ := s.Blob("plans", "a")
	last := s.Requests()[len(s.Requests())-1]
	if n != 1 || after.ETag != before.ETag || last.Fault != "duplicate" || last.Status != http.StatusConflict {
		t.Errorf("%d copies of a conditional request were late; the log has %s", n, last)
	}
}

func TestLate(t *testing.T) {
	s := emulator.New(emulator.Options{})
	c := plans(t, s.Transport())
	s.Inject(emulator.On(emulator.PutBlob).Nth(1).Do(emulator.Reset().Late(2)))
	if _, err := upload(t.Context(), c, "a", "body", nil); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	for i := range 2 {
		if s.Len("plans") != 0 {
			t.Errorf("it took effect after %d", i)
		}
		_, _, err := download(t.Context(), c, "a", nil)
		want(t, err, http.StatusNotFound, "BlobNotFound")
	}
	if s.Len("plans") != 1 {
		t.Error("it did not take effect")
	}
}

func TestCrash(t *testing.T) {
	for effect, applied := range map[emulator.Effect]bool{emulator.Crash(): false, emulator.Crash().Applied(): true} {
		s := emulator.New(emulator.Options{})
		victim, witness := s.Transport(), s.Transport()
		c, w := plans(t, victim), plans(t, witness)
		victim.Inject(emulator.On(emulator.PutBlob).Nth(2).Do(effect))
		mustUpload(t, c, "1", "body", nil)
		_, err := upload(t.Context(), c, "2", "body", nil)
		if !errors.Is(err, emulator.ErrCrashed) || !victim.Crashed() {
			t.Fatalf("got %v", err)
		}
		if _, _, err := download(t.Context(), c, "1", nil); !errors.Is(err, emulator.ErrCrashed) {
			t.Errorf("later: %v", err)
		}
		list, _ := names(t, w, nil)
		if wanted := map[bool]int{false: 1, true: 2}[applied]; len(list) != wanted {
			t.Errorf("%s: stored are %v", effect, list)
		}
		if witness.Crashed() {
			t.Error("the other client has crashed, too")
		}
	}
}

// TestCalls looks at a blob, or ends the context of its put, before and after the put takes effect.
func TestCalls(t *testing.T) {
	for _, after := range []bool{false, true} {
		effect := map[bool]func(func()) emulator.Effect{false: emulator.Before, true: emulator.After}[after]
		for _, ends := range []bool{false, true} {
			s := emulator.New(emulator.Options{})
			ctx, cancel := context.WithCancel(t.Context())
			stored := 0
			s.Inject(emulator.On(emulator.PutBlob).Do(effect(func() {
				if stored = s.Len("plans"); ends {
					cancel()
				}
			})))
			_, err := upload(ctx, plans(t, s.Transport()), "a", "body", nil)
			if (stored == 1) != after || (s.Len("plans") == 1) != (after || !ends) || errors.Is(err, context.Canceled) != ends || (err != nil) != ends {
				t.Errorf("after: %t, context ends: %t: %v, %d blobs then and %d now", after, ends, err, stored, s.Len("plans"))
			}
			cancel()
		}
	}
}

func TestEmptyPage(t *testing.T) {
	s := emulator.New(emulator.Options{PageLimit: 20})
	c := plans(t, s.Transport())
	all := alphabet(s)
	s.Inject(emulator.On(emulator.ListBlobs).Range(1, 3).Do(emulator.EmptyPage()))
	got, pages := names(t, c, &container.ListBlobsFlatOptions{MaxResults: to.Ptr(int32(5000))})
	if len(got) != len(all) || pages != 3+3 {
		t.Errorf("got %d names in %d pages", len(got), pages)
	}
}

func TestFaultOnBatchItem(t *testing.T) {
	s := emulator.New(emulator.Options{})
	c := plans(t, s.Transport())
	alphabet(s)
	rule := emulator.On(emulator.BatchItem).Path("a/*").Do(emulator.Answer(503, "ServerBusy"))
	both := emulator.On(emulator.BatchItem).Path("b/01").Do(emulator.Answer(500, "InternalError").Applied())
	s.Inject(rule, both)
	resp, err := deleteBatch(t, c, "a/00", "b/00", "b/01")
	must(t, err)
	if got := strings.Join(codes(t, resp.Responses), ","); got != "503 ServerBusy,,500 InternalError" {
		t.Errorf("got %s", got)
	}
	if _, refused := s.Blob("plans", "a/00"); !refused || s.Len("plans") != 48 || rule.Fired() != 1 || both.Fired() != 1 {
		t.Errorf("%d blobs are left", s.Len("plans"))
	}
}

func TestEffectsThatMakeNoSense(t *testing.T) {
	for name, build := range map[string]func(){
		"cut, applied":    func() { emulator.CutBody(1).Applied() },
		"duplicate, late": func() { emulator.Duplicate(1).Late(2) },
		"lost item":       func() { emulator.On(emulator.BatchItem).Do(emulator.LostRequest()) },
		"bad pattern":     func() { emulator.On().Path("[") },
		"no effect":       func() { emulator.New(emulator.Options{}).Inject(emulator.On()) },
	} {
		if !panics(build) {
			t.Errorf("%s: no panic", name)
		}
	}
}
