package vaulttest

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
)

// Faulty opens a vault whose requests meet faults.
func Faulty(t *testing.T, server *emulator.Server, rules ...*emulator.Rule) *azblob.Vault {
	t.Helper()
	transport := server.Transport()
	transport.Inject(rules...)
	return OnEmulator(t, server, azblob.WithTransport(transport))
}

// Absences are the answers that say that a blob is not there.
var Absences = []emulator.Effect{emulator.Answer(404, "BlobNotFound"), emulator.Answer(404, "ContainerNotFound"), emulator.Answer(404, "")}

// ShortLister is a transport whose listings omit blobs with certain names, a limited number of times, or as a cache: in
// every answer to the same request.
type ShortLister struct {
	*emulator.Transport
	Name   string
	Cached bool
	mu     sync.Mutex
	Times  int
	Query  string // the request that a cache answers
}

var listedBlob = regexp.MustCompile(`(?s)<Blob>.*?</Blob>`)

func (f *ShortLister) Do(req *http.Request) (*http.Response, error) {
	resp, err := f.Transport.Do(req)
	f.mu.Lock()
	defer f.mu.Unlock()
	hit := f.Times > 0 || f.Cached && f.Query == req.URL.RawQuery
	if err != nil || req.URL.Query().Get("comp") != "list" || !hit {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	omitted := regexp.MustCompile("<Name>" + f.Name)
	short := listedBlob.ReplaceAllFunc(body, func(b []byte) []byte {
		if omitted.Match(b) {
			return nil
		}
		return b
	})
	if len(short) < len(body) {
		f.Times, f.Query = f.Times-1, req.URL.RawQuery
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(short)), int64(len(short))
	return resp, nil
}

// Send is a transport.
type Send func(*http.Request) (*http.Response, error)

// Do implements policy.Transporter.
func (s Send) Do(req *http.Request) (*http.Response, error) { return s(req) }

// Frozen delays the answers to writes to a path.
func Frozen(path string, by time.Duration) *emulator.Rule {
	return emulator.On(emulator.PutBlob).Path(path).Do(emulator.After(func() { time.Sleep(by) }))
}

// Startless is a service of before version 2026-02-06.
func Startless(t policy.Transporter) Send {
	return func(req *http.Request) (*http.Response, error) {
		q := req.URL.Query()
		q.Del("startFrom")
		req = req.Clone(req.Context())
		req.URL.RawQuery = q.Encode()
		return t.Do(req)
	}
}

// Before is a rule that does something before the first request of one kind for certain blobs.
func Before(op emulator.Op, path string, do func()) *emulator.Rule {
	return emulator.On(op).Path(path).Nth(1).Do(emulator.Before(do))
}

// With opens a vault of a process that does something before one of its requests takes effect.
func With(t *testing.T, server *emulator.Server, match func(r emulator.Request) bool, run func()) *azblob.Vault {
	t.Helper()
	return Faulty(t, server, emulator.On().Where(match).Nth(1).Do(emulator.Before(run)))
}

// Denied is the answer to an identity without the right to send a request.
var Denied = emulator.Answer(403, "AuthorizationPermissionMismatch")

// Meanwhile opens a vault of a process that does something before its first request of one kind for certain blobs, as
// [Before] says.
func Meanwhile(t *testing.T, server *emulator.Server, op emulator.Op, part string, do func(), rules ...*emulator.Rule) *azblob.Vault {
	t.Helper()
	return Faulty(t, server, append(rules, Before(op, part, do))...)
}
