package blob

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// The SDK takes the answer to a batch all or nothing, and indexes what it sent by numbers that it was answered. Answers are
// decoded here, so that the outcomes which came count when the rest of an answer is lost.

// A batch may be answered without a word on any of its items: by proxies that do not know batches, and by Azurite, which does not
// know those of a shared access signature. maxUndecided such answers in a row make a client give up batches, if at the same time
// the service answers a single delete: else it is an outage of all. restOfBatches later it tries them again.
const (
	maxUndecided  = 3
	restOfBatches = 10 * time.Minute
)

// errNoBatches is a batch that was given up.
var errNoBatches = errors.New("batches are not served here")

// errUndecided is an answer to a batch that decides none of its items.
var errUndecided = errors.New("the answer to a batch tells of no item")

// errUnanswered is an item of a batch that the answer does not tell of.
var errUnanswered = errors.New("the answer to a batch lacks an item")

// batchAnswer is what the service says of a batch.
type batchAnswer struct {
	decoded bool
	whole   error         // the refusal of the batch as a whole
	items   map[int]error // the outcomes of those that were answered
}

// of returns the outcome of an item.
func (b *batchAnswer) of(i int) error {
	err, answered := b.items[i]
	if !answered {
		return errUnanswered
	}
	return err
}

// tells says whether there is an outcome of any of the first n items.
func (b *batchAnswer) tells(n int) bool {
	for i := range b.items {
		if i >= 0 && i < n {
			return true
		}
	}
	return false
}

// submit sends a batch of deletes.
func submit(ctx context.Context, client *container.Client, targets []Target) (*batchAnswer, error) {
	batch, err := client.NewBatchBuilder()
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		if err := batch.Delete(t.Name, &container.BatchDeleteOptions{DeleteOptions: sdk.DeleteOptions{AccessConditions: t.condition().sdk()}}); err != nil {
			return nil, err
		}
	}
	answer := &batchAnswer{items: map[int]error{}}
	_, err = client.SubmitBatch(context.WithValue(ctx, decoderKey{}, decoder(answer)), batch, nil)
	if answer.decoded {
		return answer, answer.whole // the SDK's error is that it was left no body
	}
	return nil, err
}

// decode reads the parts of an answer. It ends at the first that can't be read: what it has by then was answered.
func (b *batchAnswer) decode(resp *http.Response) error {
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || params["boundary"] == "" {
		return errors.New("the answer to a batch has no parts")
	}
	b.decoded = true
	for r := multipart.NewReader(resp.Body, params["boundary"]); ; {
		part, err := r.NextRawPart()
		if err != nil {
			break
		}
		outcome, ok := decodeItem(part, resp.Request)
		if !ok {
			continue
		}
		if id := strings.TrimSpace(part.Header.Get("Content-ID")); id == "" {
			b.whole = outcome // of no item
		} else if i, err := strconv.Atoi(id); err == nil {
			b.items[i] = outcome
		}
	}
	if len(b.items) > 0 {
		b.whole = nil
	}
	_, _ = io.Copy(io.Discard, resp.Body) // only a connection that was read to the end is used again
	return nil
}

// decodeItem reads the answer to one item: nil, or the service's error. Without the service's marks it is none.
func decodeItem(part io.Reader, req *http.Request) (outcome error, ok bool) {
	// An item without a body may lack the empty line after its headers.
	resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(part, strings.NewReader("\r\n\r\n"))), req)
	if err != nil || resp.Header.Get("x-ms-request-id") == "" {
		return nil, false
	}
	defer resp.Body.Close()
	if resp.StatusCode < http.StatusBadRequest {
		return nil, resp.StatusCode == http.StatusAccepted && resp.Header.Get("x-ms-version") != ""
	}
	var refusal *azcore.ResponseError
	outcome = runtime.NewResponseError(resp)
	return outcome, errors.As(outcome, &refusal) && refusal.ErrorCode != ""
}

// DeleteBatch removes up to MaxBatch blobs of one container in one request, in no order. The error is Mismatch when one of
// them is there in another version, else Absent or AbsentContainer when the service says that one is not there; in both cases
// the others are removed. Where batches are refused, or not answered, it removes the blobs one by one.
func (c *Client) DeleteBatch(ctx context.Context, containerName string, targets []Target) error {
	if at := c.noBatches.Load(); at != nil && time.Since(*at) < restOfBatches {
		_, err := c.deleteEach(ctx, containerName, targets)
		return err
	}
	ref := Ref{Container: containerName}
	client := c.container(ref)
	left := targets
	var unmatched []Target
	var absent error
	// settle notes the outcome of an item, and says whether it is one.
	settle := func(t Target, err error) bool {
		switch v := judge(err); {
		case err == nil:
		case v.reason == Absent, v.reason == AbsentContainer:
			absent = absence(t)
		case v.reason == Mismatch && t.ETag != "":
			unmatched = append(unmatched, t)
		default:
			return false
		}
		return true
	}
	undecided, served, single := 0, false, false
	err := c.do(ctx, call{op: "delete batch", ref: ref, write: true}, func(ctx context.Context) error {
		answer, err := submit(ctx, client, left)
		if err == nil && !answer.tells(len(left)) {
			err = errUndecided
		}
		if err != nil {
			v := judge(err)
			switch {
			case v.reason == Refused, v.reason == AbsentContainer, throttled(err):
				return err
			case v.reason != Unreachable:
				err = fmt.Errorf("%w: %w", errUndecided, explain(err))
			}
			if undecided++; undecided < maxUndecided {
				return err
			}
			t := left[0]
			_, one := client.NewBlobClient(t.Name).Delete(ctx, &sdk.DeleteOptions{AccessConditions: t.condition().sdk()})
			if settle(t, one) {
				left, single = left[1:], true
			} else if judge(one).reason != Refused {
				return err
			}
			return fmt.Errorf("%w: %w", errNoBatches, err)
		}
		undecided = 0
		var failed []Target
		var worst error
		for i, t := range left {
			err := answer.of(i)
			if settle(t, err) {
				served = true
				continue
			}
			v := judge(err)
			served = served || v.reason != Refused
			failed = append(failed, t)
			if worst == nil || !v.again {
				worst = fmt.Errorf("%s: %w", t.Name, explain(err))
			}
		}
		left = failed
		return worst
	})
	if errors.Is(err, errNoBatches) || Is(err, Refused) && !served {
		var worked bool
		worked, err = c.deleteEach(ctx, containerName, left)
		if worked || single {
			now := time.Now()
			c.noBatches.Store(&now)
		}
	}
	if answered(err) {
		err = worse(err, c.changed(ctx, containerName, unmatched))
	}
	return worse(err, absent)
}

// deleteEach removes blobs one by one, as many at a time as there are slots. Worked says that one of them was not refused.
// The error is Mismatch only if there is no other but Absent, and Absent only if there is no other at all.
func (c *Client) deleteEach(ctx context.Context, containerName string, targets []Target) (worked bool, err error) {
	var (
		wg   sync.WaitGroup
		done atomic.Bool
		errs = make([]error, len(targets))
	)
	for i, t := range targets {
		wg.Go(func() {
			errs[i] = c.Delete(ctx, Ref{Container: containerName, Name: t.Name}, t.condition())
			if answered(errs[i]) {
				done.Store(true)
			}
		})
	}
	wg.Wait()
	for _, e := range errs {
		err = worse(err, e)
	}
	return done.Load(), err
}

// answered says whether a delete was done, or not needed, or met another version: nothing kept it from being tried.
func answered(err error) bool { return err == nil || Is(err, Absent, AbsentContainer, Mismatch) }

// throttled says whether the service asks for fewer requests.
func throttled(err error) bool {
	var answer *azcore.ResponseError
	return errors.As(err, &answer) && (answer.StatusCode == http.StatusServiceUnavailable || answer.StatusCode == http.StatusTooManyRequests)
}

// worse returns the error that decides what several deletes come to: any before a Mismatch, and a Mismatch before an absence.
func worse(a, b error) error {
	rank := func(err error) int {
		switch {
		case err == nil:
			return 0
		case Is(err, Absent, AbsentContainer):
			return 1
		case Is(err, Mismatch):
			return 2
		}
		return 3
	}
	if rank(b) > rank(a) {
		return b
	}
	return a
}
