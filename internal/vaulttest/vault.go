// Package vaulttest holds what tests of the vault share: services and vaults on them, plans, states that crashes leave,
// faults, and how to look at what a vault shows and stores.
package vaulttest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/azurite/azuritetest"
	"github.com/planvault/azblob/internal/merge"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/storage/storagetest"
)

// Azurite is shared by all tests of the package. Each test has its own prefix.
var Azurite azuritetest.Holder

// OnServices runs a test on the emulator, and on Azurite where it is installed.
func OnServices(t *testing.T, test func(t *testing.T, open func(opts ...azblob.Options) *azblob.Vault)) {
	t.Run("emulator", func(t *testing.T) {
		server := emulator.New(emulator.Options{})
		test(t, func(opts ...azblob.Options) *azblob.Vault {
			return OnEmulator(t, server, opts...)
		})
	})
	t.Run("azurite", func(t *testing.T) {
		cs := Azurite.Get(t).ConnectionString()
		prefix := "t" + uuid.NewString()
		test(t, func(opts ...azblob.Options) *azblob.Vault {
			return OpenVault(t, prefix, cs, opts...)
		})
	})
}

// OnEmulator opens a vault on an emulator in this process until the test ends. Its token takes less time than a signature
// for each request.
func OnEmulator(t *testing.T, server *emulator.Server, opts ...azblob.Options) *azblob.Vault {
	t.Helper()
	v := WithToken(t, server, append([]azblob.Options{impatient}, opts...)...)
	closeAtEnd(t, v)
	return v
}

// Signing opens a vault on an emulator in this process that signs its requests.
func Signing(t *testing.T, server *emulator.Server, opts ...azblob.Options) *azblob.Vault {
	t.Helper()
	return OpenVault(t, "test", server.ConnectionString(), append([]azblob.Options{settings.Over(server.Transport())}, opts...)...)
}

// OpenVault opens a vault that signs its requests until the test ends.
func OpenVault(t *testing.T, prefix, connectionString string, opts ...azblob.Options) *azblob.Vault {
	t.Helper()
	v, err := azblob.NewFromConnectionString(t.Context(), prefix, connectionString, plantest.Register(), merge.Fields(append([]azblob.Options{impatient}, opts...)...))
	Must(t, err)
	closeAtEnd(t, v)
	return v
}

// impatient lets a vault try again soon.
var impatient = azblob.Options{Backoff: azblob.Backoff{InitialInterval: time.Millisecond}}

func closeAtEnd(t *testing.T, v *azblob.Vault) {
	t.Cleanup(func() {
		if err := v.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
}

// WithToken opens a vault on an emulator in this process with a made-up token, and never closes it.
func WithToken(t *testing.T, server *emulator.Server, opts ...azblob.Options) *azblob.Vault {
	t.Helper()
	opts = append([]azblob.Options{settings.Over(server.Transport())}, opts...)
	v, err := Dial(t.Context(), opts...)
	Must(t, err)
	return v
}

// Dial opens a vault on an emulator in this process with a made-up token, which is the cheapest login: nothing is signed.
func Dial(ctx context.Context, opts ...azblob.Options) (*azblob.Vault, error) {
	return azblob.New(ctx, "test", "https://blob.emulator.invalid/"+emulator.DefaultAccount, Token{}, plantest.Register(), merge.Fields(opts...))
}

// Token is a credential that the emulator accepts.
type Token struct{}

func (Token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "made-up", ExpiresOn: time.Now().Add(24 * time.Hour)}, nil
}

// DropContainers removes what a case stored: Azurite looks through all of its blobs at each delete.
func DropContainers(ctx context.Context, connectionString, prefix string) error {
	client, err := service.NewClientFromConnectionString(connectionString, nil)
	if err != nil {
		return err
	}
	pager := client.NewListContainersPager(&service.ListContainersOptions{Prefix: &prefix})
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, container := range page.ContainerItems {
			if _, err := client.DeleteContainer(ctx, *container.Name, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// InBubble runs a test in virtual time.
func InBubble(t *testing.T, name string, test func(t *testing.T, server *emulator.Server)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := emulator.New(emulator.Options{})
			Strict(t, server)
			test(t, server)
		})
	})
}

// InBubbleOf runs a test in virtual time on the given server.
func InBubbleOf(t *testing.T, server *emulator.Server, test func(t *testing.T, server *emulator.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, server) })
}

// Strict makes the test fail at its end if a vault with the prefix "test" sent a request that it must never
// send.
func Strict(t storagetest.T, server *emulator.Server) {
	server.Forbid(func(r emulator.Request) error {
		if r.Op == emulator.ListContainers {
			if r.Prefix != "test-" && !ownContainer.MatchString(r.Prefix) {
				return fmt.Errorf("containers of other prefixes are listed: %v", r)
			}
			return nil
		}
		object := strings.HasSuffix(r.Blob, "-object.json")
		hasEntry := func() bool {
			_, ok := server.Blob(r.Container, strings.Replace(r.Blob, "-object.json", "-entry.json", 1))
			return ok
		}
		switch {
		case !ownContainer.MatchString(r.Container):
			return fmt.Errorf("a request for another container: %v", r)
		case r.Op == emulator.DeleteContainer && r.Lease == "":
			return fmt.Errorf("a day is deleted without a lease: %v", r)
		case r.Op == emulator.PutBlob && r.Condition == "" && !strings.HasPrefix(r.Blob, "open/"):
			return fmt.Errorf("a write without condition: %v", r)
		case r.Op == emulator.PutBlob && r.Metadata["writeid"] == "":
			return fmt.Errorf("a write without writeid: %v", r)
		case r.Op == emulator.PutBlob && object && r.Condition == "If-None-Match:*" && !hasEntry():
			return fmt.Errorf("an object is written before its entry: %v", r)
		case r.Op == emulator.DeleteBlob && r.Condition == "" && object:
			return fmt.Errorf("an object is deleted without condition: %v", r)
		}
		return nil
	})
	t.Cleanup(func() {
		for _, err := range server.Violations() {
			t.Errorf("%v", err)
		}
	})
}

// ownContainer matches the name of a container of the prefix "test".
var ownContainer = regexp.MustCompile(`^test-(\d{4}-\d\d-\d\d|control|log)$`)

// Meets lets the requests of a vault meet faults.
func Meets(server *emulator.Server, rules ...*emulator.Rule) azblob.Options {
	transport := server.Transport()
	transport.Inject(rules...)
	return settings.Over(transport)
}

// Faulty opens a vault whose requests meet faults.
func Faulty(t *testing.T, server *emulator.Server, rules ...*emulator.Rule) *azblob.Vault {
	t.Helper()
	return OnEmulator(t, server, Meets(server, rules...))
}

// Absences are the answers that say that a blob is not there.
var Absences = []emulator.Effect{emulator.Answer(404, "BlobNotFound"), emulator.Answer(404, "ContainerNotFound"), emulator.Answer(404, "")}

// ShortLister is a transport whose listings omit blobs with certain names, so many times, always if Times is negative, or
// as a cache: in every answer to the same request.
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
	hit := f.Times != 0 || f.Cached && f.Query == req.URL.RawQuery
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
		f.Times, f.Query = max(f.Times-1, min(f.Times, 0)), req.URL.RawQuery
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

// AlmostLate delays a Create until shortly before the end of its grace period.
func AlmostLate() *emulator.Rule {
	return emulator.On(emulator.PutBlob).Path("actions/").Nth(1).Do(emulator.Answer(503, "ServerBusy").RetryAfter(590 * time.Second))
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

// Denied is the answer to an identity without the right to send a request.
var Denied = emulator.Answer(403, "AuthorizationPermissionMismatch")

// Meanwhile opens a vault of a process that does something before its first request of one kind for certain blobs, as
// [Before] says.
func Meanwhile(t *testing.T, server *emulator.Server, op emulator.Op, part string, do func(), rules ...*emulator.Rule) *azblob.Vault {
	t.Helper()
	return Faulty(t, server, append(rules, Before(op, part, do))...)
}
