package blob

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

// fill stores the blobs 000, 001 and so on. It returns targets for them, with or without their versions.
func (w *world) fill(n int, versions bool) []Target {
	var targets []Target
	for i := range n {
		name := fmt.Sprintf("%03d", i)
		w.server.Put("box", name, []byte(name), mine())
		b, _ := w.server.Blob("box", name)
		if !versions {
			b.ETag = ""
		}
		targets = append(targets, Target{name, b.ETag})
	}
	return targets
}

// TestBatchLeavesOtherVersionsAlone deletes blobs of which one has another version and one is gone: in a batch, or one by
// one where batches are refused. Refused batches are not tried again, and what an earlier one has told counts.
func TestBatchLeavesOtherVersionsAlone(t *testing.T) {
	batch := func() *emulator.Rule { return emulator.On(emulator.BatchDelete) }
	for versions, want := range map[bool]Reason{true: Mismatch, false: Absent} {
		for _, test := range []struct {
			what    string
			rules   []*emulator.Rule
			batches int
		}{
			{"a batch", nil, 2},
			{"as a whole", []*emulator.Rule{batch().Do(emulator.Answer(403, "AuthorizationPermissionMismatch"))}, 1},
			{"not known", []*emulator.Rule{batch().Do(emulator.Answer(400, "UnsupportedQueryParameter"))}, 1},
			{"each item", []*emulator.Rule{emulator.On(emulator.BatchItem).Do(emulator.Answer(403, "AuthorizationFailure"))}, 1},
			{"by Azurite of a shared access signature", []*emulator.Rule{batch().Do(emulator.Foreign(500, "", ""))}, 3},
			{"by a proxy that seems to be busy", []*emulator.Rule{batch().Do(emulator.Foreign(503, "text/html", portalPage))}, 3},
			{"halfway", []*emulator.Rule{batch().Nth(1).Do(emulator.CutBatch(3)), batch().Do(emulator.Foreign(502, "", ""))}, 4},
		} {
			inWorld(t, func(t *testing.T, w *world) {
				w.server.Inject(test.rules...)
				for range 2 {
					targets := w.fill(4, versions)
					w.server.Put("box", "001", []byte("another version"), others())
					w.server.Remove("box", "002")
					wantError(t, test.what, w.DeleteBatch(t.Context(), "box", targets), want, false)
					if left := strings.Join(w.names(), " "); left != map[bool]string{true: "001"}[versions] {
						t.Errorf("%s: %q are left", test.what, left)
					}
				}
				if n := w.count(emulator.BatchDelete); n != test.batches || test.batches < 3 && len(w.retries) > 0 {
					t.Errorf("%s: %d batches were sent with %d retries, want %d", test.what, n, len(w.retries), test.batches)
				}
			})
		}
	}
	inWorld(t, func(t *testing.T, w *world) {
		targets := w.fill(4, true)
		w.server.Inject(emulator.On(emulator.BatchDelete, emulator.DeleteBlob).Times(2).Do(emulator.Answer(403, "AuthorizationPermissionMismatch")))
		wantError(t, "nothing may be deleted", w.DeleteBatch(t.Context(), "box", targets[:1]), Refused, false)
		must(t, w.DeleteBatch(t.Context(), "box", targets))
		if n := w.count(emulator.BatchDelete); n != 2 {
			t.Errorf("%d batches were sent: the first refusal was of deletes", n)
		}
		w.server.ResetRequests()
		err := w.DeleteBatch(t.Context(), "other", targets[:2])
		if n := len(w.server.Requests()); !Is(err, Absent, AbsentContainer) || n != 1 {
			t.Errorf("no container: %v after %d requests", err, n)
		}
	})
}

// TestBatchTriesAgainWhatIsLeft fails some items several times, or cuts the answer behind some items.
func TestBatchTriesAgainWhatIsLeft(t *testing.T) {
	names := []string{"000", "001", "002", "003", "004"}
	some := func(effect emulator.Effect) []*emulator.Rule {
		return []*emulator.Rule{
			emulator.On(emulator.BatchItem).Path("003").Times(1).Do(effect),
			emulator.On(emulator.BatchItem).Path("000").Times(2).Do(effect),
			emulator.On(emulator.BatchItem).Path("004").Times(2).Do(effect),
		}
	}
	for _, versions := range []bool{false, true} {
		for _, test := range []struct {
			rules []*emulator.Rule
			asked [][]string
		}{
			{some(emulator.Answer(503, "ServerBusy")), [][]string{names, {"000", "003", "004"}, {"000", "004"}}},
			{some(emulator.Answer(429, "TooManyRequests")), [][]string{names, {"000", "003", "004"}, {"000", "004"}}},
			{some(emulator.Answer(500, "OperationTimedOut").Applied()), [][]string{names, {"000", "003", "004"}, {"000", "004"}}},
			{[]*emulator.Rule{emulator.On(emulator.BatchDelete).Nth(1).Do(emulator.CutBatch(0))}, [][]string{names, names}},
			{[]*emulator.Rule{emulator.On(emulator.BatchDelete).Nth(1).Do(emulator.CutBatch(3))}, [][]string{names, names[3:]}},
		} {
			inWorld(t, func(t *testing.T, w *world) {
				what := fmt.Sprintf("%s, versions %v", test.rules, versions)
				targets := w.fill(5, versions)
				w.server.Inject(test.rules...)
				if err := gone(w.DeleteBatch(t.Context(), "box", targets)); err != nil || len(w.names()) > 0 {
					t.Errorf("%s: %v, %q are left", what, err, w.names())
				}
				var asked [][]string
				for _, r := range w.server.Requests() {
					var names []string
					for _, item := range r.Items {
						if names = append(names, item.Blob); (item.IfMatch != "") != versions {
							t.Errorf("%s: %s is requested with If-Match %q", what, item.Blob, item.IfMatch)
						}
					}
					if r.Op == emulator.BatchDelete { // blobs that do not match are looked up, too
						asked = append(asked, names)
					}
				}
				if !slices.EqualFunc(asked, test.asked, slices.Equal) {
					t.Errorf("%s: %q were requested", what, asked)
				}
			})
		}
	}
}

// TestBatchBelievesNoGarbledAnswer cuts the answer in many places and garbles it. One of its items was not
// deleted. The batch may succeed only if all blobs are gone.
func TestBatchBelievesNoGarbledAnswer(t *testing.T) {
	reverse := func(body string) string { // the answers may come in any order
		boundary, _, _ := strings.Cut(body, "\r\n")
		parts := strings.Split(body, boundary) // nothing, the three answers, the end
		slices.Reverse(parts[1 : len(parts)-1])
		return strings.Join(parts, boundary)
	}
	garbles := map[string]func(string) string{
		"reversed":        reverse,
		"unknown number":  func(s string) string { return strings.ReplaceAll(s, "Content-ID: 1", "Content-ID: 99") },
		"negative number": func(s string) string { return strings.ReplaceAll(s, "Content-ID: 1", "Content-ID: -1") },
		"no numbers":      func(s string) string { return strings.ReplaceAll(s, "Content-ID:", "X-Content-ID:") },
		"no boundaries":   func(s string) string { return strings.ReplaceAll(s, "--batch", "batch") },
	}
	for n := 0; n < 1000; n += efforttest.Pick(60, 5, 1) {
		garbles[fmt.Sprintf("cut after %d bytes", n)] = func(s string) string { return s[:min(n, len(s)-1)] }
	}
	for what, garble := range garbles {
		inWorld(t, func(t *testing.T, w *world) {
			targets := w.fill(3, false)
			w.server.Inject(emulator.On(emulator.BatchItem).Path("001").Times(1).Do(emulator.Answer(503, "ServerBusy")))
			c, _ := w.garbled(t, func(body string) string {
				if garble(body) == body {
					t.Errorf("%s: nothing is garbled in\n%s", what, body)
				}
				return garble(body)
			})
			if err := gone(c.DeleteBatch(t.Context(), "box", targets)); err != nil || len(w.names()) > 0 {
				t.Errorf("%s: %q are left, %v", what, w.names(), err)
			}
			if requests := w.server.Requests(); what == "reversed" && (len(requests[1].Items) != 1 || requests[1].Items[0].Blob != "001") {
				t.Errorf("%v was requested again", requests[1].Items)
			}
		})
	}
}

// TestBatchAnswersAreReadToTheirEnd adds text behind the last part of an answer, which is valid. It is read, too, because
// a connection with a rest of an answer can't be used again.
func TestBatchAnswersAreReadToTheirEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var body *watched
		c := w.batchesOnly(t, true, func(resp *http.Response) error {
			body = &watched{Reader: io.MultiReader(resp.Body, strings.NewReader(strings.Repeat("epilogue", 10_000)))}
			resp.Body, resp.ContentLength = body, -1
			return nil
		})
		must(t, c.DeleteBatch(t.Context(), "box", w.fill(3, true)))
		if !body.ended || len(w.names()) > 0 {
			t.Errorf("%d bytes are read, %q are left", body.n, w.names())
		}
	})
}

// TestBatchWithAnItemThatIsRefused checks that the refusal of an item is final, and names the blob.
func TestBatchWithAnItemThatIsRefused(t *testing.T) {
	for _, test := range []struct {
		status int
		code   string
		want   Reason
	}{{403, "AuthorizationPermissionMismatch", Refused}, {412, "LeaseIdMissing", Refused}, {412, "ConditionNotMet", Mismatch}} {
		inWorld(t, func(t *testing.T, w *world) {
			targets := w.fill(4, false)
			w.server.Inject(
				emulator.On(emulator.BatchItem).Path("001").Do(emulator.Answer(503, "ServerBusy")),
				emulator.On(emulator.BatchItem).Path("002").Do(emulator.Answer(test.status, test.code)),
				emulator.On(emulator.BatchItem).Path("003").Do(emulator.Answer(503, "ServerBusy")),
			)
			err := w.DeleteBatch(t.Context(), "box", targets)
			wantError(t, test.code, err, test.want, false)
			if n := len(w.server.Requests()); n != 1 || !strings.Contains(err.Error(), "002") {
				t.Errorf("%s: %d requests: %v", test.code, n, err)
			}
		})
	}
}

// batchesOnly returns a client whose batches a function answers. Unless they are applied, the service does
// not see them, and the function gets an empty answer.
func (w *world) batchesOnly(t *testing.T, applied bool, wrong func(*http.Response) error) *Client {
	return w.over(t, func(req *http.Request, next sender) (resp *http.Response, err error) {
		switch {
		case parameter(req, "comp") != "batch":
			return next(req)
		case applied:
			resp, err = next(req)
		default:
			resp = &http.Response{StatusCode: 202, Header: http.Header{"X-Ms-Request-Id": {"1"}, "X-Ms-Version": {Version}}, Body: http.NoBody, Request: req}
		}
		if err == nil {
			err = wrong(resp)
		}
		if err != nil {
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
		"501":              refusal(501, "NotImplemented"),
		"404":              refusal(404, "ResourceNotFound"),
		"409":              refusal(409, "BlobAlreadyExists"),
		"412":              refusal(412, "ConditionNotMet"),
		"a bad sum":        refusal(400, "Md5Mismatch"),
	} {
		for i := range 4 {
			applied, versions := i%2 > 0, i/2 > 0
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
					batches, deletes := w.count(emulator.BatchDelete), w.count(emulator.DeleteBlob)
					if batches > 3*(1-i) || deletes != 4 || len(w.names()) > 0 {
						t.Errorf("%s, call %d: %d batches and %d deletes were sent, %q are left", what, i, batches, deletes, w.names())
					}
				}
			})
		}
	}
}

// TestBatchesInAnOutage checks that an outage of the service does not make the client give up batches, and that a busy
// service gets no more requests.
func TestBatchesInAnOutage(t *testing.T) {
	batches := emulator.On(emulator.BatchDelete).Times(6).Do(emulator.Answer(503, "ServerBusy"))
	for rule, most := range map[*emulator.Rule]int{
		batches: 0,
		emulator.On().Times(20).Do(emulator.Foreign(502, "text/html", portalPage)): 10,
		emulator.On().Times(20).Do(emulator.Foreign(503, "text/html", portalPage)): 10,
		emulator.On().Times(20).Do(emulator.Answer(500, "InternalError")):          10,
		emulator.On().Times(20).Do(emulator.Reset()):                               10,
	} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(rule)
			if err := gone(w.DeleteBatch(t.Context(), "box", w.fill(8, true))); err != nil || len(w.names()) > 0 {
				t.Errorf("%s: %q are left, %v", rule, w.names(), err)
			}
			if n := w.count(emulator.DeleteBlob); n > most {
				t.Errorf("%s: %d deletes were sent", rule, n)
			}
			w.server.ResetRequests()
			must(t, w.DeleteBatch(t.Context(), "box", w.fill(8, true)))
			if n := len(w.server.Requests()); n != 1 {
				t.Errorf("%s: %d requests after it, want 1 batch", rule, n)
			}
		})
	}
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

// TestBatchDeletesWhatItNames deletes blobs with one request, and blobs that are gone, and those of no container.
func TestBatchDeletesWhatItNames(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, n := range []int{1, 2, 7, MaxBatch} {
		for _, versions := range []bool{false, true} {
			inWorld(t, func(t *testing.T, w *world) {
				what := fmt.Sprintf("%d blobs, versions %v", n, versions)
				targets := w.fill(n, versions)
				w.server.Put("box", "other", nil, nil)
				if err := w.DeleteBatch(t.Context(), "box", targets); err != nil || !slices.Equal(w.names(), []string{"other"}) {
					t.Fatalf("%s: %v, %q are left", what, err, w.names())
				}
				requests := w.server.Requests()
				if len(requests) != 1 || len(requests[0].Items) != n {
					t.Fatalf("%s: requests %v", what, requests)
				}
				for i, item := range requests[0].Items {
					if item.Blob != targets[i].Name || strings.Trim(item.IfMatch, `"`) != targets[i].ETag {
						t.Errorf("%s: item %d is %s with If-Match %q", what, i, item, item.IfMatch)
					}
				}
				wantError(t, what+", once more", w.DeleteBatch(t.Context(), "box", targets), Absent, false)
			})
		}
	}
}

// TestBatchIsThatOfTheSDK compares the address, the headers and the items of a batch with those of the SDK, with a key and
// with a signature.
func TestBatchIsThatOfTheSDK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 64))
		for _, login := range []string{
			"BlobEndpoint=https://plans.blob.core.windows.net;AccountName=plans;AccountKey=" + key,
			"BlobEndpoint=http://127.0.0.1:10000/plans;AccountName=plans;AccountKey=" + key,
			"BlobEndpoint=https://plans.blob.core.windows.net;SharedAccessSignature=sv=2020-02-10&sp=d&sig=a%2Bb",
		} {
			var sent []string
			record := sender(func(r *http.Request) (*http.Response, error) {
				sent = append(sent, strings.Join(batchOf(t, r), "\n"))
				return nil, context.Canceled
			})
			targets := []Target{{"plans/a b+c%d.json", "0x1"}, {"open/none", ""}}
			o := service.ClientOptions{ClientOptions: policy.ClientOptions{Transport: record, Retry: policy.RetryOptions{MaxRetries: -1}}}
			sdk, err := service.NewClientFromConnectionString(login, &o)
			must(t, err)
			batch, err := sdk.NewContainerClient("box").NewBatchBuilder()
			must(t, err)
			for _, b := range targets {
				must(t, batch.Delete(b.Name, &container.BatchDeleteOptions{DeleteOptions: blob.DeleteOptions{AccessConditions: b.condition().sdk()}}))
			}
			_, _ = sdk.NewContainerClient("box").SubmitBatch(Once(t.Context()), batch, nil)
			c, err := NewFromConnectionString(login, Options{ClientOptions: policy.ClientOptions{Transport: record}, Concurrency: 1})
			must(t, err)
			_, _ = c.blobs.submit(Once(t.Context()), "box", targets)
			if len(sent) != 2 || sent[0] != sent[1] {
				t.Errorf("%s\nthe SDK's and ours differ", strings.Join(sent, "\n\n"))
			}
		}
	})
}

// batchOf returns what a batch says, without what may differ.
func batchOf(t *testing.T, r *http.Request) (lines []string) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	must(t, err)
	lines = append(lines, r.Method+" "+r.URL.Path+" "+r.URL.Query().Encode(), kind)
	for parts := multipart.NewReader(r.Body, params["boundary"]); ; {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return lines
		}
		must(t, err)
		item, err := http.ReadRequest(bufio.NewReader(part))
		must(t, err)
		if r.URL.Query().Get("sig") != "" {
			item.Header.Del("X-Ms-Date")
		}
		item.Header.Del("Accept")
		lines = append(lines, fmt.Sprint(part.Header, item.Method, " ", item.URL.EscapedPath(), item.URL.Query(), item.Header))
	}
}
