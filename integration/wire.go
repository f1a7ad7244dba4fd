package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// wire is the connection of one vault: it notes every request, and can crash. It stands on the client's side, so that it
// works with every service.
type wire struct {
	inner policy.Transporter
	base  string
	note  func(request)
	// made is told of each container that was created, or may have been.
	made func(container string)

	mu      sync.Mutex
	crash   *crash
	crashed bool
	// kill ends the contexts of the calls under way: nobody is there any more who would try again.
	kill context.CancelCauseFunc
}

// errCrashed is what happens to the requests of a vault that has crashed.
var errCrashed = errors.New("this vault has crashed, as the step wants it")

// crash says when a vault crashes: at the nth request that matches, before it is sent, or after the service has done it and
// before its answer arrives.
type crash struct {
	matches func(request) bool
	nth     int // 1 is the first
	after   bool
}

// request is what a request was about.
type request struct {
	Method    string
	Container string
	// Blob is its name; empty for what is about a container or the account.
	Blob string
	// About says what a request is that is not about one blob, such as "list plans/".
	About  string
	Status int // 0 when there was no answer
	// Remark is for what a status does not say.
	Remark string
	// creates says that it creates the container.
	creates bool
}

func (w *wire) Do(req *http.Request) (*http.Response, error) {
	r := w.describe(req)
	strike := w.strike(r)
	if strike != nil && !strike.after {
		r.Remark = "not sent: crash"
		w.note(r)
	}
	if w.dead(strike) {
		return nil, errCrashed
	}
	resp, err := w.inner.Do(req)
	if r.creates && (err != nil || resp.StatusCode == http.StatusCreated) {
		w.made(r.Container)
	}
	if err != nil {
		if _, gone := errors.AsType[*url.Error](err); gone && req.Context().Err() != nil {
			r.Remark = "broken off"
		} else {
			r.Remark = "no answer"
		}
		w.note(r)
		return nil, redact(err)
	}
	r.Status = resp.StatusCode
	if strike == nil {
		w.note(r)
		return resp, nil
	}
	r.Remark = "answer lost: crash"
	w.note(r)
	_ = resp.Body.Close()
	w.die()
	return nil, errCrashed
}

// strike returns the crash if this is the request that it waits for.
func (w *wire) strike(r request) *crash {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.crash
	if c == nil || w.crashed || !c.matches(r) {
		return nil
	}
	if c.nth--; c.nth > 0 {
		return nil
	}
	w.crash = nil
	return c
}

// dead says whether the vault can't send, which it can't when the crash comes before sending.
func (w *wire) dead(strike *crash) bool {
	if strike != nil && !strike.after {
		w.die()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.crashed
}

func (w *wire) die() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.crashed = true
	if w.kill != nil {
		w.kill(errCrashed)
	}
}

// dies runs a call of a vault that is to crash in the middle of it, and says whether it did.
func (w *wire) dies(ctx context.Context, c crash, call func(ctx context.Context) error) (crashed bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.mu.Lock()
	w.crash, w.kill = &c, cancel
	w.mu.Unlock()
	err = call(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.crashed, err
}

// describe reads from a request what it is about.
func (w *wire) describe(req *http.Request) request {
	query := req.URL.Query()
	path := strings.TrimPrefix(req.URL.Path, w.base)
	r := request{Method: req.Method}
	r.Container, r.Blob, _ = strings.Cut(path, "/")
	comp := query.Get("comp")
	switch {
	case comp == "batch":
		r.About = w.batch(req)
	case comp == "list" && r.Container == "":
		r.About = "list containers"
	case comp == "list":
		r.About = strings.TrimSuffix("list "+query.Get("prefix"), " ")
		if query.Has("startFrom") {
			r.About += " from a name on"
		}
	case query.Get("restype") == "container":
		r.About = "container"
		r.creates = req.Method == http.MethodPut && comp == ""
	}
	return r
}

// batch says what a batch deletes, and where.
func (w *wire) batch(req *http.Request) string {
	if req.Body == nil {
		return "batch"
	}
	body, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	req.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return "batch"
	}
	n := 0
	var dirs []string
	for line := range strings.Lines(string(body)) {
		target, ok := strings.CutPrefix(line, "DELETE ")
		if !ok {
			continue
		}
		n++
		target, _, _ = strings.Cut(strings.TrimSpace(target), " ")
		if path, err := url.PathUnescape(target); err == nil {
			target = path
		}
		_, blob, _ := strings.Cut(strings.TrimPrefix(target, w.base), "/")
		dir, _, _ := strings.Cut(blob, "/")
		dirs = append(dirs, dir+"/")
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	where := strings.Join(dirs, " ")
	if len(dirs) > 3 {
		where = fmt.Sprintf("%d directories", len(dirs))
	}
	return "batch: delete " + count(n, "blob") + " of " + where
}

// redact takes out of an error what may be the signature of a shared access signature.
func redact(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		e.URL = withoutQuery(e.URL)
	}
	return err
}
