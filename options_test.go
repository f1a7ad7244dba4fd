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
	want := Options{
		Concurrency: 256, GracePeriod: 10 * time.Minute,
		Backoff: Backoff{InitialInterval: 200 * time.Millisecond, MaxInterval: 20 * time.Second, MaxElapsed: 15 * time.Minute},
	}
	if o, err := (Options{}).complete(); err != nil || !reflect.DeepEqual(o, want) {
		t.Errorf("%+v, %v", o, err)
	}
	want.Backoff.MaxInterval = time.Second // the zero fields beside it have their defaults
	if o, err := (Options{Backoff: Backoff{MaxInterval: time.Second}}).complete(); err != nil || !reflect.DeepEqual(o, want) {
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
	bad := Options{Concurrency: -1, GracePeriod: 1, Backoff: Backoff{-1, -2, -3}, DayProbing: -1, ClientOptions: policy.ClientOptions{APIVersion: "latest", Retry: policy.RetryOptions{MaxRetries: 3}}}
	const allBad = "Options.Concurrency|-1 is negative|Options.GracePeriod|1ns|InitialInterval|-1ns|MaxInterval|-2ns|MaxElapsed|-3ns|Options.DayProbing|-1 is negative|Options.APIVersion|latest|Options.Retry|Backoff"
	open := func(prefix, endpoint string, cred azcore.TokenCredential, opts Options) func() (*Vault, error) {
		return func() (*Vault, error) { return New(t.Context(), prefix, endpoint, cred, nil, opts) }
	}
	byString := func(prefix, cs string, opts Options) func() (*Vault, error) {
		return func() (*Vault, error) { return NewFromConnectionString(t.Context(), prefix, cs, nil, opts) }
	}
	byKey := func(endpoint, name, key string) func() (*Vault, error) {
		return func() (*Vault, error) {
			cred, err := NewSharedKeyCredential(name, key)
			if err != nil {
				return nil, err
			}
			return NewWithSharedKeyCredential(t.Context(), "prod", endpoint, cred, nil, Options{})
		}
	}
	with := func(opts Options) func() (*Vault, error) { return open("prod", goodEndpoint, token(nil), opts) }
	through := func(t http.RoundTripper, concurrency int) func() (*Vault, error) {
		return with(Options{ClientOptions: policy.ClientOptions{Transport: &http.Client{Transport: t}}, Concurrency: concurrency})
	}
	for i, test := range []struct {
		open func() (*Vault, error)
		want string // parts of the error; none if all is well
	}{
		{with(Options{}), ""},
		{with(Options{Concurrency: 1, GracePeriod: time.Second, Backoff: Backoff{1, 1, 1}, ClientOptions: policy.ClientOptions{APIVersion: "", Transport: nil}, DayProbing: 0, Observer: Observer{}}), ""},
		{through(nil, 0), "Options.Transport|keeps 2 idle connections|256 requests|MaxIdleConnsPerHost|Options.Concurrency"},
		{through(nil, 2), ""},
		{through(&http.Transport{MaxIdleConnsPerHost: 256}, 0), ""},
		{through(&http.Transport{MaxIdleConnsPerHost: 255}, 0), "keeps 255 idle connections"},
		{through(&http.Transport{MaxIdleConnsPerHost: -1}, 1), "keeps 0 idle connections"},
		{through(&http.Transport{MaxIdleConnsPerHost: 256, MaxIdleConns: 100}, 0), "keeps 100 idle connections"},
		{through(&http.Transport{MaxIdleConnsPerHost: 256, DisableKeepAlives: true}, 0), "keeps 0 idle connections"},
		{through(http.NewFileTransport(nil), 0), ""},
		{with(Options{GracePeriod: maxGrace}), ""},
		{with(Options{GracePeriod: maxGrace + 1}), "Options.GracePeriod|is more than 12h"},
		{with(Options{GracePeriod: time.Second - 1}), "Options.GracePeriod|999.999999ms"},
		{with(Options{GracePeriod: -1}), "Options.GracePeriod|negative"},
		{open("prod", goodEndpoint+"/", token(nil), Options{}), ""},
		{open("prod", "https://localhost:10000/devstoreaccount1", token(nil), Options{}), ""},
		{open("", goodEndpoint, token(nil), Options{}), "prefix|is empty"},
		{open(strings.Repeat("p", 53), goodEndpoint, token(nil), Options{}), "prefix|52"},
		{open("prod", "http://account.blob.core.windows.net", token(nil), Options{}), "endpoint|https only"},
		{open("prod", "account.blob.core.windows.net", token(nil), Options{}), "endpoint"},
		{open("prod", "https:///container", token(nil), Options{}), "endpoint"},
		{open("prod", "", token(nil), Options{}), "endpoint"},
		{open("prod", "https://ho st", token(nil), Options{}), "endpoint"},
		{open("prod", goodEndpoint, nil, Options{}), "cred|is nil"},
		{open("pr_od", "http://x", nil, bad), "prefix|endpoint|cred|" + allBad},
		{byKey(goodEndpoint, "a", key), ""},
		{byKey(goodEndpoint, "a", key+"!"), "accountKey|not base64"},
		{byKey(goodEndpoint, "", key), "accountKey|missing"},
		{byKey("account", "a", key), "endpoint"},
		{func() (*Vault, error) {
			return NewWithSharedKeyCredential(t.Context(), "prod", goodEndpoint, nil, nil, Options{})
		}, "cred|missing"},
		{byString("prod", emulator.New(emulator.Options{}).ConnectionString(), Options{}), ""},
		{byString("prod", "AccountName=a;AccountKey="+key, Options{}), ""},
		{byString("prod", "BlobEndpoint=https://a.blob.core.windows.net/;SharedAccessSignature=sv=2024-01-01&sig="+key, Options{}), ""},
		{byString("AccountName=a;AccountKey="+key, "prod", Options{}), "prefix|connectionString"},
		{byString("https://a.blob.core.windows.net/?sig="+key, "prod", Options{}), "prefix|connectionString"},
		{with(Options{DayProbing: 36526}), "Options.DayProbing|at most 36525"},
		{with(Options{ClientOptions: policy.ClientOptions{Transport: (*http.Client)(nil)}}), "Options.Transport|nil"},
		{with(Options{ClientOptions: policy.ClientOptions{PerCallPolicies: []policy.Policy{nil}}}), "Options.PerCallPolicies|nil"},
		{with(Options{ClientOptions: policy.ClientOptions{PerRetryPolicies: []policy.Policy{nil}}}), "Options.PerRetryPolicies|nil"},
		{byString("Prod", "nonsense", bad), "prefix|connectionString|" + allBad},
		{byString("prod", "AccountName=a;AccountKey="+key+"!", Options{}), "connectionString"},
		{byString("prod", "AccountKey="+key, Options{}), "connectionString"},
		{byString("prod", "AccountName=a;AccountKey="+key+";BlobEndpoint=http://[", Options{}), "connectionString"},
		{byString("prod", "BlobEndpoint=http://%zz;SharedAccessSignature=sig="+key, Options{}), "connectionString"},
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
	server := emulator.New(emulator.Options{})
	asked := token(func() { t.Error("a token was asked for") })
	ctx, cancel := context.WithCancel(t.Context())
	_, err := New(ctx, "prod", goodEndpoint, asked, nil, Options{ClientOptions: policy.ClientOptions{Transport: server.Transport()}})
	must(t, err)
	v, err := NewFromConnectionString(ctx, "prod", server.ConnectionString(), nil, Options{ClientOptions: policy.ClientOptions{Transport: server.Transport()}})
	must(t, err)
	if n := len(server.Requests()); n > 0 {
		t.Errorf("%d requests", n)
	}
	cancel()
	if _, err := v.Exists(t.Context(), workflow.NewV7()); err != nil {
		t.Error(err)
	}
	if v, err := New(ctx, "prod", goodEndpoint, asked, nil, Options{}); v != nil || !errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrInvalid) {
		t.Errorf("%v, %v", v, err)
	}
	if v, err := NewFromConnectionString(ctx, "Prod", server.ConnectionString(), nil, Options{}); v != nil || !errors.Is(err, context.Canceled) || !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("%v, %v", v, err)
	}
}

// transportFunc is a transport that calls a function.
type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) Do(req *http.Request) (*http.Response, error) { return f(req) }

// inTime runs a test in virtual time with a vault on a new emulator.
func inTime(t *testing.T, server func() *emulator.Server, opts func(server *emulator.Server) Options, test func(t *testing.T, v *Vault, server *emulator.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := server()
		o := opts(s)
		if o.Transport == nil {
			o.Transport = s.Transport()
		}
		v, err := NewFromConnectionString(t.Context(), "prod", s.ConnectionString(), plantest.Register(), o)
		must(t, err)
		test(t, v, s)
		must(t, v.Close(t.Context()))
	})
}

// TestConcurrency counts the requests in flight of two calls, and looks at the version that each names.
func TestConcurrency(t *testing.T) {
	for n, size := range map[int]int{1: 2, 3: 2, 256: 10} {
		var now, most atomic.Int32
		inTime(t, slowServer, func(s *emulator.Server) Options {
			transport := s.Transport()
			return Options{Concurrency: n, ClientOptions: policy.ClientOptions{APIVersion: "2021-12-02", Transport: transportFunc(func(req *http.Request) (*http.Response, error) {
				in := now.Add(1)
				defer now.Add(-1)
				for old := most.Load(); in > old && !most.CompareAndSwap(old, in); old = most.Load() {
				}
				if sent := append(req.Header.Values("X-Ms-Version"), req.Header[strings.ToLower("X-Ms-Version")]...); !slices.Equal(sent, []string{"2021-12-02"}) { // the SDK's names are in lower case
					t.Errorf("the version is %q", sent)
				}
				return transport.Do(req)
			})}}
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
			t.Errorf("Options{Concurrency: %d}: %d requests were in flight at most", n, most.Load())
		}
	}
}

// TestGracePeriod creates a plan in five requests, one after the other.
func TestGracePeriod(t *testing.T) {
	for latency, passes := range map[time.Duration]bool{3 * time.Second: true, 5 * time.Second: false} {
		inTime(t, func() *emulator.Server { return emulator.New(emulator.Options{Latency: latency}) }, func(*emulator.Server) Options {
			return Options{GracePeriod: 20 * time.Second}
		}, func(t *testing.T, v *Vault, _ *emulator.Server) {
			err := v.Create(t.Context(), &workflow.Plan{Blocks: []*workflow.Block{{}}})
			if passes != (err == nil) || err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a request takes %v: %v", latency, err)
			}
		})
	}
}
