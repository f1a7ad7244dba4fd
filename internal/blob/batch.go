package blob

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/google/uuid"
)

// The SDK makes a client for each item of a batch, which takes six times the processor time of a single delete. It takes the
// answer as a whole, and trusts the item numbers in it as indexes. This file encodes batches itself, and decodes answers
// so that the outcomes that arrived count if the rest of an answer is lost.

// Proxies that don't support batches, and Azurite for batches of a shared access signature, answer a batch
// without the outcome of any item. After maxUndecided such answers in a row the client gives up batches,
// provided that the service answers a single delete; if it does not, this is an outage. After restOfBatches
// the client tries batches again.
const (
	maxUndecided  = 3
	restOfBatches = 10 * time.Minute
)

// errNoBatches means that the client gave up batches.
var errNoBatches = errors.New("batches are not supported here")

// errUndecided means that the answer to a batch has no outcome of any item.
var errUndecided = errors.New("the answer to a batch has no outcome of any item")

// errUnanswered means that the answer to a batch has no outcome of an item.
var errUnanswered = errors.New("the answer to a batch lacks an item")

// batchAnswer is the decoded answer to a batch.
type batchAnswer struct {
	whole    error   // why the batch was refused as a whole
	told     bool    // whether there is an outcome of any item
	outcomes []error // by item; errUnanswered for the others
}

// submit sends a batch of deletes of a container's blobs.
func (s *direct) submit(ctx context.Context, containerName string, targets []Target) (*batchAnswer, error) {
	var body bytes.Buffer
	parts := multipart.NewWriter(&body)
	if err := parts.SetBoundary("batch_" + uuid.NewString()); err != nil {
		return nil, err
	}
	for i, t := range targets {
		part, err := parts.CreatePart(textproto.MIMEHeader{
			"Content-Type": {"application/http"}, "Content-Transfer-Encoding": {"binary"}, "Content-ID": {strconv.Itoa(i)},
		})
		if err == nil {
			err = s.writeItem(ctx, part, Ref{containerName, t.Name}, t.condition())
		}
		if err != nil {
			return nil, err
		}
	}
	if err := parts.Close(); err != nil {
		return nil, err
	}
	u := *s.account
	u.Path += "/" + containerName
	u.RawQuery = strings.Trim("comp=batch&restype=container&"+u.RawQuery, "&")
	h := make(http.Header, 6)
	h["Content-Type"] = []string{"multipart/mixed; boundary=" + parts.Boundary()}
	resp, err := s.sendTo(ctx, http.MethodPost, u, h, body.Bytes())
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer := &batchAnswer{outcomes: slices.Repeat([]error{errUnanswered}, len(targets))}
	if err := answer.decode(resp); err != nil {
		return nil, err
	}
	return answer, answer.whole
}

// writeItem writes the request that removes a blob, as an item of a batch. It names no version of the service, and each
// slash in the name of the blob is escaped, as the SDK does it.
func (s *direct) writeItem(ctx context.Context, w io.Writer, ref Ref, cond Condition) error {
	u := *s.account
	u.RawPath = u.EscapedPath() + "/" + ref.Container + "/" + url.PathEscape(ref.Name)
	u.Path += "/" + ref.Container + "/" + ref.Name
	req := (&http.Request{Method: http.MethodDelete, URL: &u, Header: make(http.Header, 4)}).WithContext(ctx)
	cond.add(req.Header)
	if err := s.authorize(req, time.Now()); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "DELETE %s HTTP/1.1\r\n", u.RequestURI()); err != nil {
		return err
	}
	if err := req.Header.Write(w); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\r\n")
	return err
}

// decode reads the parts of an answer. It stops at the first part that can't be read; the earlier ones count.
func (b *batchAnswer) decode(resp *http.Response) error {
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || params["boundary"] == "" {
		return errors.New("the answer to a batch has no parts")
	}
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
			b.whole = outcome // the batch as a whole
		} else if i, err := strconv.Atoi(id); err == nil && i >= 0 && i < len(b.outcomes) {
			b.told, b.outcomes[i] = true, outcome
		}
	}
	if b.told {
		b.whole = nil
	}
	_, _ = io.Copy(io.Discard, resp.Body) // only a connection that was read to the end is reused
	return nil
}

// decodeItem reads the answer to one item: nil, or the error of the service. ok is false if the part lacks
// the marks of the service.
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

// DeleteBatch removes up to MaxBatch blobs of one container in one request, in no order. The error is
// Mismatch if some of them exist in another version, which [Changed] returns, otherwise Absent or AbsentContainer if the
// service says that one does not exist. In both cases the other blobs are removed. Where batches are refused or not
// answered, DeleteBatch removes the blobs one by one.
func (c *Client) DeleteBatch(ctx context.Context, containerName string, targets []Target) error {
	ref := Ref{Container: containerName}
	d := deletion{blobs: &c.blobs, in: containerName, left: targets}
	if at := c.noBatches.Load(); at != nil && time.Since(*at) < restOfBatches {
		_, err := c.deleteEach(ctx, &d)
		return c.outcome(ctx, &d, err)
	}
	err := c.do(ctx, call{op: "delete batch", ref: ref, write: true}, d.try)
	if errors.Is(err, errNoBatches) || Is(err, Refused) && !d.served && !unread(err) { // single deletes have the same version
		var worked bool
		worked, err = c.deleteEach(ctx, &d)
		if worked || d.single {
			now := time.Now()
			c.noBatches.Store(&now)
		}
	}
	return c.outcome(ctx, &d, err)
}

// changedError is the Err of a Mismatch of a DeleteBatch.
type changedError struct {
	now    []Target
	absent bool // whether the service says that another blob does not exist
}

func (e *changedError) Error() string { return e.now[0].Name + " has another version" }

// Changed returns the blobs that a [Client.DeleteBatch] left because they exist in another version, each in the version
// it has now. absent reports whether the service says that one of the others does not exist.
func Changed(err error) (now []Target, absent bool) {
	if e, ok := errors.AsType[*changedError](err); ok {
		return e.now, e.absent
	}
	return nil, Is(err, Absent, AbsentContainer)
}

// outcome returns the error of a DeleteBatch. It looks at the blobs that did not match their versions: a missing blob
// does not match either. Azurite then answers 412, and the answer of the service is not documented.
func (c *Client) outcome(ctx context.Context, d *deletion, err error) error {
	if !answered(err) {
		return err
	}
	found := make([]string, len(d.unmatched))
	errs := each(len(found), func(i int) error {
		p, err := c.Head(ctx, Ref{Container: d.in, Name: d.unmatched[i].Name})
		if Is(err, Absent, AbsentContainer) {
			return absence(d.unmatched[i])
		}
		found[i] = p.ETag
		return err
	})
	var changed changedError
	for i, etag := range found {
		if etag != "" {
			changed.now = append(changed.now, Target{d.unmatched[i].Name, etag})
		}
	}
	err = worst(append(errs, err, d.absent))
	if len(changed.now) > 0 {
		changed.absent = Is(err, Absent, AbsentContainer)
		err = worse(err, &Error{Reason: Mismatch, Err: &changed})
	}
	return err
}

// deletion is the state of a DeleteBatch across its attempts.
type deletion struct {
	blobs     *direct
	in        string   // the container
	left      []Target // without an outcome
	unmatched []Target
	absent    error
	undecided int  // attempts in a row that decided nothing
	served    bool // an item was answered
	single    bool // a single delete was answered
}

// settle records the outcome of an item. It reports whether err is an outcome.
func (d *deletion) settle(t Target, err error) bool {
	switch v := judge(err); {
	case err == nil:
	case v.reason == Absent, v.reason == AbsentContainer:
		d.absent = absence(t)
	case v.reason == Mismatch && t.ETag != "":
		d.unmatched = append(d.unmatched, t)
	default:
		return false
	}
	return true
}

// try sends what is left as a batch.
func (d *deletion) try(ctx context.Context) error {
	answer, err := d.blobs.submit(ctx, d.in, d.left)
	if err == nil && !answer.told {
		err = errUndecided
	}
	if err != nil {
		return d.failed(ctx, err)
	}
	d.undecided = 0
	var unsettled []Target
	var worst error
	for i, t := range d.left {
		err := answer.outcomes[i]
		if d.settle(t, err) {
			d.served = true
			continue
		}
		v := judge(err)
		d.served = d.served || v.reason != Refused
		unsettled = append(unsettled, t)
		if worst == nil || !v.again {
			worst = fmt.Errorf("%s: %w", t.Name, explain(err))
		}
	}
	d.left = unsettled
	return worst
}

// failed returns the error of an attempt that failed as a whole. After maxUndecided such attempts it tries a
// single delete: if that is answered, batches are not.
func (d *deletion) failed(ctx context.Context, err error) error {
	v := judge(err)
	_, foreign := errors.AsType[*foreignError](err) // a proxy may refuse batches with any status
	switch {
	case v.reason == Refused, v.reason == AbsentContainer, throttled(err) && !foreign:
		return err
	case v.reason != Unreachable:
		err = fmt.Errorf("%w: %w", errUndecided, explain(err))
	}
	if d.undecided++; d.undecided < maxUndecided {
		return err
	}
	t := d.left[0]
	one := d.blobs.delete(ctx, Ref{d.in, t.Name}, t.condition())
	if d.settle(t, one) {
		d.left, d.single = d.left[1:], true
	} else if judge(one).reason != Refused {
		return err
	}
	return fmt.Errorf("%w: %w", errNoBatches, err)
}

// deleteEach removes what is left of a deletion one by one, as many at a time as there are slots. worked reports
// whether at least one of them was not refused. The error is the worst one, as defined by worse.
func (c *Client) deleteEach(ctx context.Context, d *deletion) (worked bool, err error) {
	errs := each(len(d.left), func(i int) error {
		return c.Delete(ctx, Ref{Container: d.in, Name: d.left[i].Name}, d.left[i].condition())
	})
	for i, e := range errs {
		worked = worked || answered(e)
		if !Is(e, Mismatch) || !d.settle(d.left[i], e) {
			err = worse(err, e)
		}
	}
	return worked, err
}

// each calls do for 0 to n-1 concurrently and returns the errors in this order.
func each(n int, do func(int) error) []error {
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errs
}

func absence(t Target) error {
	return &Error{Reason: Absent, Err: fmt.Errorf("%s does not exist", t.Name)}
}

// answered reports whether a delete was executed, was not needed, or met another version.
func answered(err error) bool { return err == nil || Is(err, Absent, AbsentContainer, Mismatch) }

// throttled reports whether the service asks for fewer requests, or a front end in its place. That one may send a page
// without any marks of the service: it says nothing about what is stored, but it is as busy.
func throttled(err error) bool {
	status := 0
	if answer, ok := errors.AsType[*azcore.ResponseError](err); ok {
		status = answer.StatusCode
	} else if foreign, ok := errors.AsType[*foreignError](err); ok {
		status = foreign.status
	}
	return status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests
}

// worst returns the worst of several errors, as defined by worse.
func worst(errs []error) (err error) {
	for _, e := range errs {
		err = worse(err, e)
	}
	return err
}

// worse returns the error that decides the outcome of several deletes: any other error before a Mismatch, and
// a Mismatch before an absence.
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
