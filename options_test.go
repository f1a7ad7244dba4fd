package azblob

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

func TestDefaults(t *testing.T) {
	want := options{
		concurrency: 256, grace: 10 * time.Minute,
		retry: Retry{InitialInterval: 200 * time.Millisecond, MaxInterval: 20 * time.Second, MaxElapsed: 15 * time.Minute},
	}
	if o, err := applyOptions(nil); err != nil || !reflect.DeepEqual(o, want) {
		t.Errorf("%+v, %v", o, err)
	}
	// The zero fields of Retry have their defaults, and later options win.
	want.retry.MaxInterval = time.Second
	if o, err := applyOptions([]Option{WithConcurrency(-1), WithRetry(Retry{MaxInterval: time.Second}), WithConcurrency(256)}); err != nil || !reflect.DeepEqual(o, want) {
		t.Errorf("%+v, %v", o, err)
	}
}

// token is a credential for a service that does not look at tokens. It calls itself if it is not nil.
type token func()

func (f token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if f != nil {
		f()
	}
	return azcore.AccessToken{Token: "token", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

const goodEndpoint = "https://account.blob.core.windows.net"

// TestNewNamesEachFault opens vaults with arguments that are wrong, in one way or in all ways at once. No error
// tells the key of a connection string.
func TestNewNamesEachFault(t *testing.T) {
	const key = "c2VjcmV0LWtleQ=="
	bad := []Option{WithConcurrency(0), WithGracePeriod(1), WithRetry(Retry{-1, -2, -3}), WithDayProbing(-1), WithServiceVersion("latest")}
	const allBad = "WithConcurrency|0 is less than 1|WithGracePeriod|1ns|InitialInterval|-1ns|MaxInterval|-2ns|MaxElapsed|-3ns|WithDayProbing|-1 is negative|WithServiceVersion|latest"
	open := func(prefix, endpoint string, cred azcore.TokenCredential, opts ...Option) func() (*Vault, error) {
		return func() (*Vault, error) { return New(t.Context(), prefix, endpoint, cred, nil, opts...) }
	}
	byString := func(prefix, cs string, opts ...Option) func() (*Vault, error) {
		return func() (*Vault, error) { return NewFromConnectionString(t.Context(), prefix, cs, nil, opts...) }
	}
	with := func(opts ...Option) func() (*Vault, error) { return open("prod", goodEndpoint, token(nil), opts...) }
	for i, test := range []struct {
		open func() (*Vault, error)
		want string // parts of the error; none if all is well
	}{
		{with(), ""},
		{with(WithConcurrency(1), WithGracePeriod(time.Second), WithRetry(Retry{1, 1, 1}), WithServiceVersion(""), WithTransport(nil), WithDayProbing(0), WithObserver(Observer{})), ""},
		{with(WithGracePeriod(maxGrace)), ""},
		{with(WithGracePeriod(maxGrace + 1)), "WithGracePeriod|is more than 12h"},
		{with(WithGracePeriod(time.Second - 1)), "WithGracePeriod|999.999999ms"},
		{with(WithGracePeriod(0)), "WithGracePeriod"},
		{open("prod", goodEndpoint+"/", token(nil)), ""},
		{open("prod", "https://localhost:10000/devstoreaccount1", token(nil)), ""},
		{open("", goodEndpoint, token(nil)), "prefix|is empty"},
		{open(strings.Repeat("p", 53), goodEndpoint, token(nil)), "prefix|52"},
		{open("prod", "http://account.blob.core.windows.net", token(nil)), "endpoint|https only"},
		{open("prod", "account.blob.core.windows.net", token(nil)), "endpoint"},
		{open("prod", "https:///container", token(nil)), "endpoint"},
		{open("prod", "", token(nil)), "endpoint"},
		{open("prod", "https://ho st", token(nil)), "endpoint"},
		{open("prod", goodEndpoint, nil), "cred|is nil"},
		{open("pr_od", "http://x", nil, bad...), "prefix|endpoint|cred|" + allBad},
		{byString("prod", emulator.New().ConnectionString()), ""},
		{byString("prod", "AccountName=a;AccountKey="+key), ""},
		{byString("prod", "BlobEndpoint=https://a.blob.core.windows.net/;SharedAccessSignature=sv=2024-01-01&sig="+key), ""},
		{byString("Prod", "nonsense", bad...), "prefix|connectionString|" + allBad},
		{byString("prod", "AccountName=a;AccountKey="+key+"!"), "connectionString"},
		{byString("prod", "AccountKey="+key), "connectionString"},
		{byString("prod", "AccountName=a;AccountKey="+key+";BlobEndpoint=http://["), "connectionString"},
		{byString("prod", "BlobEndpoint=http://%zz;SharedAccessSignature=sig="+key), "connectionString"},
	} {
		v, err := test.open()
		if test.want == "" || err == nil {
			if test.want != "" || err != nil || v == nil {
				t.Errorf("row %d: %v, want %q", i, err, test.want)
			}
			continue
		}
		if e := (*storage.Error)(nil); v != nil || !errors.Is(err, storage.ErrInvalid) || !errors.As(err, &e) || strings.Contains(err.Error(), "c2Vj") || strings.Contains(err.Error(), "\n") {
			t.Errorf("row %d: %v, %v", i, v, err)
		}
		for part := range strings.SplitSeq(test.want, "|") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("row %d: %q is not named: %v", i, part, err)
			}
		}
	}
}

// TestNewSendsNoRequest also checks that the vault outlives the context of New.
func TestNewSendsNoRequest(t *testing.T) {
	server := emulator.New()
	asked := token(func() { t.Error("a token was asked for") })
	ctx, cancel := context.WithCancel(t.Context())
	_, err := New(ctx, "prod", goodEndpoint, asked, nil, WithTransport(server.Transport()))
	must(t, err)
	v, err := NewFromConnectionString(ctx, "prod", server.ConnectionString(), nil, WithTransport(server.Transport()))
	must(t, err)
	if n := len(server.Requests()); n > 0 {
		t.Errorf("%d requests", n)
	}
	cancel()
	if _, err := v.Exists(t.Context(), workflow.NewV7()); err != nil {
		t.Error(err)
	}
	if v, err := New(ctx, "prod", goodEndpoint, asked, nil); v != nil || !errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrInvalid) {
		t.Errorf("%v, %v", v, err)
	}
	if v, err := NewFromConnectionString(ctx, "Prod", server.ConnectionString(), nil); v != nil || !errors.Is(err, context.Canceled) || !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("%v, %v", v, err)
	}
}

// transportFunc is a transport that calls a function.
type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) Do(req *http.Request) (*http.Response, error) { return f(req) }

// inTime runs a test in virtual time with a vault on a new emulator.
func inTime(t *testing.T, server func() *emulator.Server, opts func(server *emulator.Server) []Option, test func(t *testing.T, v *Vault, server *emulator.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := server()
		v, err := NewFromConnectionString(t.Context(), "prod", s.ConnectionString(), plantest.Register(), append([]Option{WithTransport(s.Transport())}, opts(s)...)...)
		must(t, err)
		test(t, v, s)
		must(t, v.Close(t.Context()))
	})
}

// TestWithConcurrency counts the requests in flight of two calls, and looks at the version that each names.
func TestWithConcurrency(t *testing.T) {
	for n, size := range map[int]int{1: 2, 3: 2, 256: 10} {
		var now, most atomic.Int32
		inTime(t, slowServer, func(s *emulator.Server) []Option {
			transport := s.Transport()
			return []Option{WithConcurrency(n), WithServiceVersion("2021-12-02"), WithTransport(transportFunc(func(req *http.Request) (*http.Response, error) {
				in := now.Add(1)
				defer now.Add(-1)
				for old := most.Load(); in > old && !most.CompareAndSwap(old, in); old = most.Load() {
				}
				if sent := append(req.Header.Values("X-Ms-Version"), req.Header[strings.ToLower("X-Ms-Version")]...); !slices.Equal(sent, []string{"2021-12-02"}) { // the SDK's names are in lower case
					t.Errorf("the version is %q", sent)
				}
				return transport.Do(req)
			}))}
		}, func(t *testing.T, v *Vault, _ *emulator.Server) {
			var wg sync.WaitGroup
			for range 2 { // the bound is the vault's, not each call's
				wg.Go(func() {
					if err := v.Create(t.Context(), plantest.Sized(2, size, size)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		})
		if most.Load() != int32(n) {
			t.Errorf("WithConcurrency(%d): %d requests were in flight at most", n, most.Load())
		}
	}
}

// TestWithGracePeriod creates a plan in five requests, one after the other.
func TestWithGracePeriod(t *testing.T) {
	for latency, passes := range map[time.Duration]bool{3 * time.Second: true, 5 * time.Second: false} {
		inTime(t, func() *emulator.Server { return emulator.New(emulator.WithLatency(latency)) }, func(*emulator.Server) []Option {
			return []Option{WithGracePeriod(20 * time.Second)}
		}, func(t *testing.T, v *Vault, _ *emulator.Server) {
			err := v.Create(t.Context(), &workflow.Plan{Blocks: []*workflow.Block{{}}})
			if passes != (err == nil) || err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a request takes %v: %v", latency, err)
			}
		})
	}
}
