package blob

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

// fill stores the blobs 000, 001 and so on. It returns targets for them, with or without their versions.
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
	efforttest.NotShort(t, efforttest.OneAtATime)
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
			t.Error("it was retried")
		}
	})
}

func TestBatchWithoutContainerHasNothingToDelete(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		err := w.DeleteBatch(t.Context(), "other", []Target{{Name: "a"}, {Name: "b", ETag: "0x1"}})
		if !Is(err, Absent, AbsentContainer) {
			t.Errorf("got %v, want no blob", err)
		}
		if n := len(w.server.Requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestBatchTriesAgainWhatIsLeft fails some items several times.
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
							t.Errorf("%s: %s is requested with If-Match %q", what, item.Blob, item.IfMatch)
						}
					}
					if r.Op == emulator.BatchDelete { // blobs that do not match are looked up, too
						asked = append(asked, names)
					}
				}
				want := [][]string{{"000", "001", "002", "003", "004", "005", "006", "007", "008", "009"}, {"000", "003", "009"}, {"000", "009"}}
				if !slices.EqualFunc(asked, want, slices.Equal) {
					t.Errorf("%s: %q were requested", what, asked)
				}
			})
		}
	}
}

func TestBatchAsAWholeIsTriedAgain(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
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

// TestBatchBelievesNoGarbledAnswer cuts the answer in many places and garbles it. One of its items was not
// deleted. The batch may succeed only if all blobs are gone.
func TestBatchBelievesNoGarbledAnswer(t *testing.T) {
	const items = 3
	size := 0
	inWorld(t, func(t *testing.T, w *world) {
		must(t, w.DeleteBatch(t.Context(), "box", w.fill(items, false)))
		size = int(w.server.Requests()[0].Out)
	})
	for n := 0; n < size; n += efforttest.Pick(60, 5, 1) {
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
			c, _ := w.garbled(t, func(body string) string {
				if garble(body) == body {
					t.Errorf("%s: nothing is garbled in\n%s", what, body)
				}
				return garble(body)
			})
			if err := c.DeleteBatch(t.Context(), "box", targets); err != nil && !Is(err, Absent) || len(w.names()) > 0 {
				t.Errorf("%s: %q are left, %v", what, w.names(), err)
			}
		})
	}
}

// TestBatchAnswersAreReadToTheirEnd adds text behind the last part of an answer, which is valid. It is read, too, because
// a connection with a rest of an answer can't be used again.
func TestBatchAnswersAreReadToTheirEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var rest *strings.Reader
		c := w.batchesOnly(t, true, func(resp *http.Response) error {
			body, err := io.ReadAll(resp.Body)
			rest = strings.NewReader(string(body) + strings.Repeat("epilogue", 10_000))
			resp.Body, resp.ContentLength = io.NopCloser(rest), -1
			return err
		})
		must(t, c.DeleteBatch(t.Context(), "box", w.fill(3, true)))
		if rest.Len() > 0 || len(w.names()) > 0 {
			t.Errorf("%d bytes are not read, %q are left", rest.Len(), w.names())
		}
	})
}

// TestBatchAnswersMayComeInAnyOrder reverses the items of the answer.
func TestBatchAnswersMayComeInAnyOrder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		targets := w.fill(3, false)
		w.server.Inject(emulator.On(emulator.BatchItem).Path("000").Times(1).Do(emulator.Answer(503, "ServerBusy")))
		c, _ := w.garbled(t, func(body string) string {
			boundary, _, _ := strings.Cut(body, "\r\n")
			parts := strings.Split(body, boundary) // nothing, the three answers, the end
			slices.Reverse(parts[1 : len(parts)-1])
			return strings.Join(parts, boundary)
		})
		if err := c.DeleteBatch(t.Context(), "box", targets); err != nil || len(w.names()) > 0 {
			t.Errorf("%q are left, %v", w.names(), err)
		}
		if items := w.server.Requests()[1].Items; len(items) != 1 || items[0].Blob != "000" {
			t.Errorf("%v was requested again", items)
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

// batchesOnly returns a client whose batches a function answers. Unless they are applied, the service does
// not see them, and the function gets an empty answer.
func (w *world) batchesOnly(t *testing.T, applied bool, wrong func(*http.Response) error) *Client {
	return w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
		if req.URL.Query().Get("comp") != "batch" {
			return next(req)
		}
		resp := &http.Response{StatusCode: 202, Header: http.Header{"X-Ms-Request-Id": {"1"}, "X-Ms-Version": {"2026-06-06"}}, Body: http.NoBody, Request: req}
		if applied {
			var err error
			if resp, err = next(req); err != nil {
				return nil, err
			}
		}
		if err := wrong(resp); err != nil {
			return nil, err
		}
		return resp, nil
	})
}

// TestBatchesThatAreNotAnswered answers batches as a proxy that does not support them: once for all items.
// Such an answer decides nothing.
func TestBatchesThatAreNotAnswered(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	refusal := func(status int, code string) func(*http.Response) error {
		return func(r *http.Response) error {
			r.StatusCode, r.Body, r.ContentLength = status, http.NoBody, 0
			r.Header.Set("x-ms-error-code", code)
			return nil
		}
	}
	body := func(edit func(string) string) func(*http.Response) error {
		return func(r *http.Response) error { return editBody(r, edit) }
	}
	for what, wrong := range map[string]func(*http.Response) error{
		"no parts":         body(func(string) string { return "" }),
		"other items":      body(func(s string) string { return strings.ReplaceAll(s, "Content-ID: ", "Content-ID: 9") }),
		"no marks":         body(func(s string) string { return strings.ReplaceAll(s, "X-Ms-Request-Id", "X-Request-Id") }),
		"another type":     func(r *http.Response) error { r.Header.Set("Content-Type", "application/octet-stream"); return nil },
		"a connection cut": func(*http.Response) error { return io.ErrUnexpectedEOF },
		"500":              refusal(500, "InternalError"),
		"501":              refusal(501, "NotImplemented"),
		"404":              refusal(404, "ResourceNotFound"),
		"404, no code":     refusal(404, "WhatEver"),
		"409":              refusal(409, "BlobAlreadyExists"),
		"412":              refusal(412, "ConditionNotMet"),
		"a bad sum":        refusal(400, "Md5Mismatch"),
	} {
		for _, applied := range []bool{false, true} {
			for _, versions := range []bool{false, true} {
				inWorld(t, func(t *testing.T, w *world) {
					what := fmt.Sprintf("%s, applied %v, versions %v", what, applied, versions)
					c := w.batchesOnly(t, applied, wrong)
					for i := range 2 {
						targets := w.fill(4, versions)
						w.server.ResetRequests()
						err := c.DeleteBatch(t.Context(), "box", targets)
						if applied && i == 0 {
							wantError(t, what, err, Absent, false)
						} else if err != nil {
							t.Errorf("%s, call %d: %v", what, i, err)
						}
						if len(w.names()) > 0 {
							t.Errorf("%s, call %d: %q are left", what, i, w.names())
						}
						batches, deletes := w.count(emulator.BatchDelete), w.count(emulator.DeleteBlob)
						if most := 3 * (1 - i); batches > most || deletes != 4 {
							t.Errorf("%s, call %d: %d batches and %d deletes were sent, want %d at most and 4", what, i, batches, deletes, most)
						}
					}
				})
			}
		}
	}
}

// TestBatchesThatAreNotAnsweredAnyMore checks that the outcomes before giving up batches count.
func TestBatchesThatAreNotAnsweredAnyMore(t *testing.T) {
	for _, test := range []struct {
		versions bool
		want     Reason
	}{{true, Mismatch}, {false, Absent}} {
		inWorld(t, func(t *testing.T, w *world) {
			targets := w.fill(5, test.versions)
			if test.versions {
				w.server.Put("box", "001", []byte("another version"), others())
			}
			w.server.Remove("box", "002")
			w.server.Inject(
				emulator.On(emulator.BatchDelete).Nth(1).Do(emulator.CutBatch(3)),
				emulator.On(emulator.BatchDelete).Do(emulator.Foreign(502, "", "")),
			)
			wantError(t, "given up halfway", w.DeleteBatch(t.Context(), "box", targets), test.want, false)
			if names := w.names(); len(names) > 1 || len(names) == 1 && names[0] != "001" {
				t.Errorf("%q are left", names)
			}
		})
	}
}

// TestBatchesInAnOutage checks that an outage of the service does not make the client give up batches.
func TestBatchesInAnOutage(t *testing.T) {
	for what, effect := range map[string]emulator.Effect{
		"a proxy's":     emulator.Foreign(502, "text/html", portalPage),
		"a front end's": emulator.Foreign(503, "text/html", portalPage),
		"the service's": emulator.Answer(500, "InternalError"),
		"the network's": emulator.Reset(),
	} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(emulator.On().Times(20).Do(effect))
			if err := gone(w.DeleteBatch(t.Context(), "box", w.fill(8, true))); err != nil || len(w.names()) > 0 {
				t.Errorf("%s: %q are left, %v", what, w.names(), err)
			}
			if n := w.count(emulator.DeleteBlob); n > 10 {
				t.Errorf("%s: %d deletes were sent", what, n)
			}
			w.server.ResetRequests()
			must(t, w.DeleteBatch(t.Context(), "box", w.fill(8, true)))
			if n := len(w.server.Requests()); n != 1 {
				t.Errorf("%s: %d requests after it, want 1 batch", what, n)
			}
		})
	}
	inWorld(t, func(t *testing.T, w *world) { // a busy service gets no more requests
		w.server.Inject(emulator.On(emulator.BatchDelete).Times(6).Do(emulator.Answer(503, "ServerBusy")))
		must(t, w.DeleteBatch(t.Context(), "box", w.fill(8, true)))
		if n := w.count(emulator.DeleteBlob); n > 0 {
			t.Errorf("%d deletes were sent to a busy service", n)
		}
	})
}

// TestBatchesAreTriedAgain checks that the client tries batches again later: a proxy may be replaced, or
// permissions granted.
func TestBatchesAreTriedAgain(t *testing.T) {
	for times, effect := range map[int]emulator.Effect{3: emulator.Foreign(500, "", ""), 1: emulator.Answer(403, "AuthorizationPermissionMismatch")} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(emulator.On(emulator.BatchDelete).Times(times).Do(effect))
			must(t, w.DeleteBatch(t.Context(), "box", w.fill(4, true)))
			for _, test := range []struct {
				wait    time.Duration
				batches int
			}{{restOfBatches - time.Second, 0}, {time.Second, 1}, {0, 1}} {
				time.Sleep(test.wait)
				w.server.ResetRequests()
				must(t, w.DeleteBatch(t.Context(), "box", w.fill(4, true)))
				if n := w.count(emulator.BatchDelete); n != test.batches {
					t.Errorf("%s: %d batches were sent, want %d", effect, n, test.batches)
				}
			}
		})
	}
}
