package azblob

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

func TestDefaults(t *testing.T) {
	o, err := applyOptions(nil)
	want := options{
		concurrency: 256, grace: 10 * time.Minute,
		retry: Retry{InitialInterval: 200 * time.Millisecond, MaxInterval: 20 * time.Second, MaxElapsed: 15 * time.Minute},
	}
	if err != nil || !reflect.DeepEqual(o, want) {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = applyOptions([]Option{WithRetry(Retry{MaxInterval: time.Second})})
	want.retry.MaxInterval = time.Second
	if err != nil || o.retry != want.retry {
		t.Errorf("fields of Retry that are zero are not their defaults: %+v, %v", o.retry, err)
	}
}

func TestLaterOptionsWin(t *testing.T) {
	o, err := applyOptions([]Option{WithConcurrency(-1), WithConcurrency(3)})
	if err != nil || o.concurrency != 3 {
		t.Errorf("%d, %v", o.concurrency, err)
	}
}

func TestBadOptionsAreAllNamed(t *testing.T) {
	for _, test := range []struct {
		opts []Option
		want []string // parts of the error; none for good options
	}{
		{[]Option{WithConcurrency(1), WithGracePeriod(time.Second), WithRetry(Retry{1, 1, 1}), WithServiceVersion(""), WithTransport(nil), WithDayProbing(0), WithObserver(Observer{})}, nil},
		{[]Option{WithConcurrency(0)}, []string{"WithConcurrency", "0 is less than 1"}},
		{[]Option{WithConcurrency(-5)}, []string{"WithConcurrency", "-5"}},
		{[]Option{WithDayProbing(-1)}, []string{"WithDayProbing", "-1 is negative"}},
		{[]Option{WithServiceVersion("latest")}, []string{"WithServiceVersion", `"latest"`}},
		{[]Option{WithGracePeriod(time.Second - 1)}, []string{"WithGracePeriod", "999.999999ms"}},
		{[]Option{WithGracePeriod(0)}, []string{"WithGracePeriod"}},
		{[]Option{WithGracePeriod(-time.Hour)}, []string{"WithGracePeriod", "-1h"}},
		{[]Option{WithRetry(Retry{InitialInterval: -time.Second})}, []string{"InitialInterval", "-1s"}},
		{[]Option{WithRetry(Retry{MaxInterval: -time.Minute})}, []string{"MaxInterval", "-1m"}},
		{[]Option{WithRetry(Retry{MaxElapsed: -time.Hour})}, []string{"MaxElapsed", "-1h"}},
		{
			[]Option{WithConcurrency(0), WithGracePeriod(1), WithRetry(Retry{-1, -2, -3})},
			[]string{"WithConcurrency", "WithGracePeriod", "InitialInterval", "MaxInterval", "MaxElapsed"},
		},
	} {
		_, err := applyOptions(test.opts)
		checkNamed(t, err, test.want)
	}
}

// checkNamed checks that an error is ErrInvalid and contains a name. Without a name there must be no error.
func checkNamed(t *testing.T, err error, want []string) {
	t.Helper()
	if len(want) == 0 {
		if err != nil {
			t.Error(err)
		}
		return
	}
	if !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("%q is not named, the error is %v", want, err)
		return
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not named: %v", part, err)
		}
	}
}

// token is a credential for a service that does not look at tokens.
type token struct{}

func (token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "token", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

const goodEndpoint = "https://account.blob.core.windows.net"

func TestNewNamesEachFault(t *testing.T) {
	for _, test := range []struct {
		prefix, endpoint string
		cred             azcore.TokenCredential
		opts             []Option
		want             []string
	}{
		{"prod", goodEndpoint, token{}, nil, nil},
		{"prod", goodEndpoint + "/", token{}, nil, nil},
		{"prod", "https://localhost:10000/devstoreaccount1", token{}, nil, nil},
		{"", goodEndpoint, token{}, nil, []string{"prefix", "is empty"}},
		{"Prod", goodEndpoint, token{}, nil, []string{"prefix", `"Prod"`}},
		{"prod-", goodEndpoint, token{}, nil, []string{"prefix", `"prod-"`}},
		{strings.Repeat("p", 53), goodEndpoint, token{}, nil, []string{"prefix", "52"}},
		{"prod", "http://account.blob.core.windows.net", token{}, nil, []string{"endpoint", "https only"}},
		{"prod", "account.blob.core.windows.net", token{}, nil, []string{"endpoint"}},
		{"prod", "https://", token{}, nil, []string{"endpoint"}},
		{"prod", "https:///container", token{}, nil, []string{"endpoint"}},
		{"prod", "", token{}, nil, []string{"endpoint"}},
		{"prod", "https://ho st", token{}, nil, []string{"endpoint"}},
		{"prod", "ftp://host", token{}, nil, []string{"endpoint"}},
		{"prod", goodEndpoint, nil, nil, []string{"cred", "is nil"}},
		{"prod", goodEndpoint, token{}, []Option{WithConcurrency(0)}, []string{"WithConcurrency"}},
		{"pr_od", "http://x", nil, []Option{WithConcurrency(0), WithGracePeriod(1), WithRetry(Retry{-1, -1, -1})}, []string{
			"prefix", "endpoint", "cred", "WithConcurrency", "WithGracePeriod", "InitialInterval", "MaxInterval", "MaxElapsed",
		}},
	} {
		v, err := New(t.Context(), test.prefix, test.endpoint, test.cred, nil, test.opts...)
		checkNamed(t, err, test.want)
		if (v == nil) != (err != nil) {
			t.Errorf("%v, %v", v, err)
		}
		var e *storage.Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("not a *storage.Error: %v", err)
		}
	}
}

func TestNewFromConnectionStringNamesEachFault(t *testing.T) {
	good := emulator.New().ConnectionString()
	const key = "c2VjcmV0LWtleQ=="
	for _, test := range []struct {
		prefix, cs string
		opts       []Option
		want       []string
	}{
		{"prod", good, nil, nil},
		{"prod", "AccountName=a;AccountKey=" + key, nil, nil},
		{"prod", "BlobEndpoint=https://a.blob.core.windows.net/;SharedAccessSignature=sv=2024-01-01&sig=" + key, nil, nil},
		{"Prod", good, []Option{WithConcurrency(0)}, []string{"prefix", "WithConcurrency"}},
		{"prod", "", nil, []string{"connectionString"}},
		{"prod", "AccountName=a;AccountKey=" + key + "!", nil, []string{"connectionString"}},
		{"prod", "AccountKey=" + key, nil, []string{"connectionString"}},
		{"prod", "AccountName=a;AccountKey=" + key + ";BlobEndpoint=http://[", nil, []string{"connectionString"}},
		{"prod", "BlobEndpoint=http://%zz;SharedAccessSignature=sig=" + key, nil, []string{"connectionString"}},
	} {
		v, err := NewFromConnectionString(t.Context(), test.prefix, test.cs, nil, test.opts...)
		checkNamed(t, err, test.want)
		if (v == nil) != (err != nil) {
			t.Errorf("%v, %v", v, err)
		}
		if err != nil && strings.Contains(err.Error(), "c2Vj") {
			t.Errorf("the error tells the key: %v", err)
		}
	}
}

// TestFaultsOfAConnectionStringAreJoined checks that this constructor also reports all problems at once.
func TestFaultsOfAConnectionStringAreJoined(t *testing.T) {
	_, err := NewFromConnectionString(t.Context(), "Prod", "nonsense", nil, WithConcurrency(0))
	checkNamed(t, err, []string{"prefix", "WithConcurrency", "connectionString"})
}

func TestNewSendsNoRequest(t *testing.T) {
	server := emulator.New()
	asked := false
	cred := credentialFunc(func() { asked = true })
	for _, open := range []func(opts ...Option) (*Vault, error){
		func(opts ...Option) (*Vault, error) {
			return New(t.Context(), "prod", goodEndpoint, cred, nil, opts...)
		},
		func(opts ...Option) (*Vault, error) {
			return NewFromConnectionString(t.Context(), "prod", server.ConnectionString(), nil, opts...)
		},
	} {
		v, err := open(WithTransport(server.Transport()))
		must(t, err)
		must(t, v.Close(t.Context()))
	}
	if n := len(server.Requests()); n > 0 || asked {
		t.Errorf("%d requests; a token was asked for: %v", n, asked)
	}
}

// credentialFunc is a credential that calls a function.
type credentialFunc func()

func (f credentialFunc) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	f()
	return token{}.GetToken(ctx, o)
}

func TestNewWithAContextThatEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v, err := New(ctx, "prod", goodEndpoint, token{}, nil)
	if v != nil || !errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrInvalid) {
		t.Errorf("%v, %v", v, err)
	}
	v, err = NewFromConnectionString(ctx, "Prod", emulator.New().ConnectionString(), nil)
	if v != nil || !errors.Is(err, context.Canceled) || !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("%v, %v", v, err)
	}
}

// TestNewOutlivesItsContext checks that the vault works after the context of New has ended.
func TestNewOutlivesItsContext(t *testing.T) {
	server := emulator.New()
	ctx, cancel := context.WithCancel(t.Context())
	v, err := NewFromConnectionString(ctx, "prod", server.ConnectionString(), nil, WithTransport(server.Transport()))
	must(t, err)
	cancel()
	if _, err := v.Exists(t.Context(), workflow.NewV7()); err != nil {
		t.Error(err)
	}
}

func TestNewTakesTokens(t *testing.T) {
	server := emulator.New()
	for _, slash := range []string{"", "/"} {
		v, err := New(t.Context(), "prod", "https://blob.emulator.invalid/"+emulator.DefaultAccount+slash, token{}, plantest.Register(), WithTransport(server.Transport()))
		must(t, err)
		plan := plantest.Small()
		must(t, v.Create(t.Context(), plan))
		got, err := v.Read(t.Context(), plan.ID)
		must(t, err)
		if d := plantest.Diff(plan, got); d != "" {
			t.Error(d)
		}
		must(t, v.Delete(t.Context(), plan.ID))
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

func newServer() *emulator.Server { return emulator.New() }

func TestWithConcurrency(t *testing.T) {
	for n, size := range map[int]int{1: 2, 3: 2, 256: 10} {
		var now, most atomic.Int32
		inTime(t, func() *emulator.Server { return emulator.New(emulator.WithLatency(time.Second)) }, func(s *emulator.Server) []Option {
			transport := s.Transport()
			return []Option{WithConcurrency(n), WithTransport(transportFunc(func(req *http.Request) (*http.Response, error) {
				in := now.Add(1)
				defer now.Add(-1)
				for old := most.Load(); in > old && !most.CompareAndSwap(old, in); old = most.Load() {
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

func TestWithGracePeriod(t *testing.T) {
	for _, test := range []struct {
		opts   []Option
		paces  time.Duration // how long a request takes
		passes bool
	}{
		{nil, 110 * time.Second, true}, // five requests, one after the other
		{nil, 130 * time.Second, false},
		{[]Option{WithGracePeriod(20 * time.Second)}, 3 * time.Second, true},
		{[]Option{WithGracePeriod(20 * time.Second)}, 5 * time.Second, false},
	} {
		inTime(t, func() *emulator.Server { return emulator.New(emulator.WithLatency(test.paces / 10)) }, func(s *emulator.Server) []Option {
			// A try may take 30s, so the slow service answers in the end.
			s.Inject(emulator.On(emulator.CreateContainer, emulator.PutBlob).Where(notTriedYet()).Do(emulator.Answer(503, "ServerBusy").RetryAfter(test.paces * 8 / 10)))
			return test.opts
		}, func(t *testing.T, v *Vault, _ *emulator.Server) {
			plan := &workflow.Plan{Blocks: []*workflow.Block{{}}}
			started := time.Now()
			err := v.Create(t.Context(), plan)
			if test.passes != (err == nil) {
				t.Errorf("grace period %v, a request takes %v: %v after %v", v.grace, test.paces, err, time.Since(started))
			}
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
}

// notTriedYet matches the first request for each path.
func notTriedYet() func(emulator.Request) bool {
	var mu sync.Mutex
	seen := map[string]bool{}
	return func(r emulator.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		was := seen[r.Path()]
		seen[r.Path()] = true
		return !was
	}
}

func TestWithRetry(t *testing.T) {
	var waits []time.Duration
	inTime(t, newServer, func(s *emulator.Server) []Option {
		s.Inject(emulator.On().Do(emulator.Answer(503, "ServerBusy")))
		return []Option{
			WithRetry(Retry{InitialInterval: time.Second, MaxInterval: 4 * time.Second, MaxElapsed: time.Minute}),
			WithObserver(Observer{Retry: func(_ context.Context, r RetryEvent) { waits = append(waits, r.Wait) }}),
		}
	}, func(t *testing.T, v *Vault, _ *emulator.Server) {
		started := time.Now()
		_, err := v.Exists(t.Context(), workflow.NewV7())
		if took := time.Since(started); !errors.Is(err, storage.ErrUnavailable) || took > time.Minute || took < 50*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		base := time.Second
		for i, w := range waits {
			if w < base/2 || w > base*3/2 {
				t.Errorf("wait %d was %v, not about %v", i+1, w, base)
			}
			base = min(2*base, 4*time.Second)
		}
	})
}

func TestWithServiceVersion(t *testing.T) {
	sent := map[string]bool{}
	inTime(t, newServer, func(s *emulator.Server) []Option {
		transport := s.Transport()
		return []Option{WithServiceVersion("2021-12-02"), WithTransport(transportFunc(func(req *http.Request) (*http.Response, error) {
			for name, values := range req.Header {
				if strings.EqualFold(name, "x-ms-version") {
					sent[strings.Join(values, ",")] = true
				}
			}
			return transport.Do(req)
		}))}
	}, func(t *testing.T, v *Vault, _ *emulator.Server) {
		if _, err := v.Exists(t.Context(), workflow.NewV7()); err != nil {
			t.Error(err)
		}
	})
	if !reflect.DeepEqual(sent, map[string]bool{"2021-12-02": true}) {
		t.Errorf("%v", sent)
	}
}
