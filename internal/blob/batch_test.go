package blob

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/planvault/azblob/emulator"
)

// fill stores blobs 000, 001 and so on, and returns targets for them: of their versions, or of any.
func (w *world) fill(n int, versions bool) []Target {
	var targets []Target
	for i := range n {
		name := fmt.Sprintf("%03d", i)
		w.server.Put("box", name, []byte(name), mine())
		target := Target{Name: name}
		if versions {
			b, _ := w.server.Blob("box", name)
			target.ETag = b.ETag
		}
		targets = append(targets, target)
	}
	return targets
}

func TestBatchDeletesWhatItNames(t *testing.T) {
	for _, n := range []int{1, 2, 7, MaxBatch} {
		for _, versions := range []bool{false, true} {
			inWorld(t, func(t *testing.T, w *world) {
				what := fmt.Sprintf("%d blobs, versions %v", n, versions)
				targets := w.fill(n, versions)
				w.server.Put("box", "other", nil, nil)
				if err := w.DeleteBatch(t.Context(), "box", targets); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if names := w.names(); !slices.Equal(names, []string{"other"}) {
					t.Errorf("%s: %q are left", what, names)
				}
				requests := w.server.Requests()
				if len(requests) != 1 || len(requests[0].Items) != n {
					t.Fatalf("%s: requests %v", what, requests)
				}
				for i, item := range requests[0].Items {
					want := ""
					if versions {
						want = `"` + targets[i].ETag + `"`
					}
					if item.IfMatch != want || item.Blob != targets[i].Name {
						t.Errorf("%s: item %d is %s with If-Match %q", what, i, item, item.IfMatch)
					}
				}
				wantError(t, what+", once more", w.DeleteBatch(t.Context(), "box", targets), Absent, false)
			})
		}
	}
}

func TestBatchLeavesOtherVersionsAlone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		targets := w.fill(4, true)
		w.server.Put("box", "001", []byte("another version"), others())
		w.server.Remove("box", "002")
		wantError(t, "another version", w.DeleteBatch(t.Context(), "box", targets), Mismatch, false)
		if names := w.names(); !slices.Equal(names, []string{"001"}) {
			t.Errorf("%q are left", names)
		}
		if len(w.retries) > 0 {
			t.Error("it was tried again")
		}
	})
}

func TestBatchWithoutContainerHasNothingToDelete(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		err := w.DeleteBatch(t.Context(), "other", []Target{{Name: "a"}, {Name: "b", ETag: "0x1"}})
		if !Is(err, Absent, AbsentContainer) {
			t.Errorf("got %v, want that nothing is there", err)
		}
		if n := len(w.server.Requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestBatchTriesAgainWhatIsLeft fails some items some times.
func TestBatchTriesAgainWhatIsLeft(t *testing.T) {
	for _, versions := range []bool{false, true} {
		for _, effect := range []emulator.Effect{
			emulator.Answer(503, "ServerBusy"), emulator.Answer(500, "InternalError"), emulator.Answer(429, "TooManyRequests"),
			emulator.Answer(503, "ServerBusy").Applied(), emulator.Answer(500, "OperationTimedOut").Applied(),
		} {
			inWorld(t, func(t *testing.T, w *world) {
				what := fmt.Sprintf("%s, versions %v", effect, versions)
				targets := w.fill(10, versions)
				w.server.Inject(
					emulator.On(emulator.BatchItem).Path("003").Times(1).Do(effect),
					emulator.On(emulator.BatchItem).Path("000").Times(2).Do(effect),
					emulator.On(emulator.BatchItem).Path("009").Times(2).Do(effect),
				)
				if err := w.DeleteBatch(t.Context(), "box", targets); err != nil && !Is(err, Absent) {
					t.Errorf("%s: %v", what, err)
				}
				if names := w.names(); len(names) > 0 {
					t.Errorf("%s: %q are left", what, names)
				}
				var asked [][]string
				for _, r := range w.server.Requests() {
					var names []string
					for _, item := range r.Items {
						names = append(names, item.Blob)
						if (item.IfMatch != "") != versions {
							t.Errorf("%s: %s is asked for with If-Match %q", what, item.Blob, item.IfMatch)
						}
					}
					if r.Op == emulator.BatchDelete { // those that do not match are looked for, too
						asked = append(asked, names)
					}
				}
				want := [][]string{{"000", "001", "002", "003", "004", "005", "006", "007", "008", "009"}, {"000", "003", "009"}, {"000", "009"}}
				if !slices.EqualFunc(asked, want, slices.Equal) {
					t.Errorf("%s: %q were asked for", what, asked)
				}
			})
		}
	}
}

func TestBatchAsAWholeIsTriedAgain(t *testing.T) {
	for _, effect := range interruptions {
		for _, effect := range []emulator.Effect{effect, effect.Applied(), effect.Late(1)} {
			inWorld(t, func(t *testing.T, w *world) {
				targets := w.fill(3, true)
				w.server.Inject(emulator.On(emulator.BatchDelete).Nth(1).Do(effect))
				if err := w.DeleteBatch(t.Context(), "box", targets); err != nil && !Is(err, Absent) || len(w.names()) > 0 {
					t.Errorf("%s: %q are left, %v", effect, w.names(), err)
				}
			})
		}
	}
}

// TestBatchBelievesNoGarbledAnswer cuts and garbles the answer everywhere, with an item in it that was not deleted: only
// when all is gone may the batch have succeeded.
func TestBatchBelievesNoGarbledAnswer(t *testing.T) {
	const items = 3
	size := 0
	inWorld(t, func(t *testing.T, w *world) {
		must(t, w.DeleteBatch(t.Context(), "box", w.fill(items, false)))
		size = int(w.server.Requests()[0].Out)
	})
	for n := 0; n < size; n += 3 {
		inWorld(t, func(t *testing.T, w *world) {
			targets := w.fill(items, false)
			w.server.Inject(
				emulator.On(emulator.BatchDelete).Nth(1).Do(emulator.CutBody(n)),
				emulator.On(emulator.BatchItem).Path("001").Times(1).Do(emulator.Answer(503, "ServerBusy")),
			)
			if err := w.DeleteBatch(t.Context(), "box", targets); err != nil && !Is(err, Absent) || len(w.names()) > 0 {
				t.Errorf("cut after %d bytes: %q are left, %v", n, w.names(), err)
			}
		})
	}
	for what, garble := range map[string]func(string) string{
		"unknown number":  func(s string) string { return strings.ReplaceAll(s, "Content-ID: 1", "Content-ID: 99") },
		"negative number": func(s string) string { return strings.ReplaceAll(s, "Content-ID: 1", "Content-ID: -1") },
		"no numbers":      func(s string) string { return strings.ReplaceAll(s, "Content-ID:", "X-Content-ID:") },
		"no boundaries":   func(s string) string { return strings.ReplaceAll(s, "--batch", "batch") },
		"empty":           func(string) string { return "" },
	} {
		inWorld(t, func(t *testing.T, w *world) {
			targets := w.fill(items, false)
			w.server.Inject(emulator.On(emulator.BatchItem).Path("001").Times(1).Do(emulator.Answer(503, "ServerBusy")))
			n := 0
			c := w.over(t, func(req *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
				resp, err := next(req)
				if n++; n > 1 || err != nil {
					return resp, err
				}
				body, err := io.ReadAll(resp.Body)
				garbled := garble(string(body))
				if garbled == string(body) {
					t.Errorf("%s: nothing is garbled in\n%s", what, body)
				}
				resp.Body = io.NopCloser(strings.NewReader(garbled))
				resp.ContentLength = int64(len(garbled))
				return resp, err
			})
			if err := c.DeleteBatch(t.Context(), "box", targets); err != nil && !Is(err, Absent) || len(w.names()) > 0 {
				t.Errorf("%s: %q are left, %v", what, w.names(), err)
			}
		})
	}
}

// TestBatchAnswersMayComeInAnyOrder turns the answers round: their numbers say which is whose.
func TestBatchAnswersMayComeInAnyOrder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		targets := w.fill(3, false)
		w.server.Inject(emulator.On(emulator.BatchItem).Path("000").Times(1).Do(emulator.Answer(503, "ServerBusy")))
		n := 0
		c := w.over(t, func(req *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
			resp, err := next(req)
			if n++; n > 1 || err != nil {
				return resp, err
			}
			body, err := io.ReadAll(resp.Body)
			boundary, _, _ := strings.Cut(string(body), "\r\n")
			parts := strings.Split(string(body), boundary) // nothing, the three answers, the end
			slices.Reverse(parts[1 : len(parts)-1])
			resp.Body = io.NopCloser(strings.NewReader(strings.Join(parts, boundary)))
			return resp, err
		})
		if err := c.DeleteBatch(t.Context(), "box", targets); err != nil || len(w.names()) > 0 {
			t.Errorf("%q are left, %v", w.names(), err)
		}
		if items := w.server.Requests()[1].Items; len(items) != 1 || items[0].Blob != "000" {
			t.Errorf("%v was asked for again", items)
		}
	})
}

func TestBatchWithAnItemThatIsRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		targets := w.fill(4, false)
		w.server.Inject(
			emulator.On(emulator.BatchItem).Path("001").Do(emulator.Answer(503, "ServerBusy")),
			emulator.On(emulator.BatchItem).Path("002").Do(emulator.Answer(403, "AuthorizationPermissionMismatch")),
			emulator.On(emulator.BatchItem).Path("003").Do(emulator.Answer(503, "ServerBusy")),
		)
		err := w.DeleteBatch(t.Context(), "box", targets)
		wantError(t, "one refused", err, Refused, false)
		if err == nil || !strings.Contains(err.Error(), "002") {
			t.Errorf("the error does not name the blob: %v", err)
		}
		if n := len(w.server.Requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
	inWorld(t, func(t *testing.T, w *world) {
		targets := w.fill(2, false)
		w.server.Inject(emulator.On(emulator.BatchItem).Path("001").Do(emulator.Answer(412, "LeaseIdMissing")))
		wantError(t, "leased", w.DeleteBatch(t.Context(), "box", targets), Refused, false)
	})
	inWorld(t, func(t *testing.T, w *world) {
		targets := w.fill(2, false)
		w.server.Inject(emulator.On(emulator.BatchItem).Path("001").Do(emulator.Answer(412, "ConditionNotMet")))
		wantError(t, "mismatch without a version", w.DeleteBatch(t.Context(), "box", targets), Mismatch, false)
	})
}
