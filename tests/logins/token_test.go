package logins_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/internal/settings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azlog "github.com/Azure/azure-sdk-for-go/sdk/azcore/log"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	azruntime "github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/tracing"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/internal/vaulttest"
)

// issuer is the endpoint that gives tokens to credentials of azidentity: that of managed identities, and Entra ID.
type issuer struct {
	lasts time.Duration

	mu     sync.Mutex
	fails  int // a status, or hangs; 0 is none
	asked  int // requests for tokens
	claims int // those with claims
}

const hangs = -1

func (i *issuer) set(status int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fails, i.asked, i.claims = status, 0, 0
}

func (i *issuer) counts() (asked, claims int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked, i.claims
}

// Do implements [policy.Transporter].
func (i *issuer) Do(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/openid-configuration") {
		const at = "https://login.microsoftonline.com/" + tenant
		return i.answer(req, 200, `{"token_endpoint":"`+at+`/token","authorization_endpoint":"`+at+`/authorize","issuer":"`+at+`/v2.0"}`), nil
	}
	form := ""
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		form = string(body)
	}
	i.mu.Lock()
	fails := i.fails
	i.asked++
	if strings.Contains(form+req.URL.RawQuery, "insufficient") || strings.Contains(form, "claims=") && strings.Contains(form, "nbf") {
		i.claims++
	}
	i.mu.Unlock()
	switch fails {
	case hangs:
		<-req.Context().Done()
		return nil, req.Context().Err()
	case 0:
		expires := time.Now().Add(i.lasts)
		token := emulator.NewClaims(tenant, emulator.Contributor, expires).Token()
		return i.answer(req, 200, fmt.Sprintf(`{"access_token":%q,"expires_in":%d,"refresh_in":%d,"token_type":"Bearer","resource":"https://storage.azure.com"}`,
			token, int(i.lasts.Seconds()), int(i.lasts.Seconds()/2))), nil
	}
	return i.answer(req, fails, `{"error":"temporarily_unavailable","error_description":"try later"}`), nil
}

func (i *issuer) answer(req *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// credentials are those of azidentity that ask an endpoint over HTTP.
var credentials = map[string]func(*issuer) (azcore.TokenCredential, error){
	"managed identity": func(i *issuer) (azcore.TokenCredential, error) {
		return azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{
			ClientOptions: policy.ClientOptions{Transport: i}, ID: azidentity.ClientID(workflow.NewV7().String()), // MSAL shares the tokens of an identity
		})
	},
	"client secret": func(i *issuer) (azcore.TokenCredential, error) {
		return azidentity.NewClientSecretCredential(tenant, "client", "a secret of the client", &azidentity.ClientSecretCredentialOptions{
			ClientOptions: policy.ClientOptions{Transport: i}, DisableInstanceDiscovery: true,
		})
	},
}

// withCredentials runs a test in virtual time with a vault and each credential.
func withCredentials(t *testing.T, test func(t *testing.T, i *issuer, v *azblob.Vault)) {
	for name, credential := range credentials {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := &issuer{lasts: 24 * time.Hour}
				cred, err := credential(i)
				vaulttest.Must(t, err)
				server := emulator.New(emulator.Options{Tokens: tenant})
				v, err := azblob.New(t.Context(), "test", hostStyle, cred, plantest.Register(), settings.Over(server.Transport()))
				vaulttest.Must(t, err)
				defer v.Close(t.Context())
				test(t, i, v)
			})
		})
	}
}

// minute asks for a plan nine times a second for a minute, with a deadline of a second. It returns how often, and why
// that failed. No call takes longer than its deadline.
func minute(t *testing.T, v *azblob.Vault) (calls int, failures []error) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(110 * time.Millisecond) {
		calls++
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begun := time.Now()
			_, err := v.Exists(ctx, workflow.NewV7())
			if took := time.Since(begun); took > time.Second {
				t.Errorf("a call with a deadline of 1s took %v: %v", took, err)
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, err)
			}
		})
	}
	wg.Wait()
	return calls, failures
}

// TestTokensWhileTheIssuerFails renews tokens while their issuer answers 429 or 500, or hangs. As long as a token is valid,
// no call waits for another one. After that, calls keep their deadlines and their errors say what to do. The credential is
// asked rarely: at most 30 requests for tokens a minute, whatever the number of calls. When the issuer answers again,
// calls succeed within a minute.
func TestTokensWhileTheIssuerFails(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, fails := range []int{429, 500, hangs} {
		withCredentials(t, func(t *testing.T, i *issuer, v *azblob.Vault) {
			seldom := func(what string) {
				t.Helper()
				if asked, _ := i.counts(); asked == 0 || asked > 30 {
					t.Errorf("%d, %s: %d requests for tokens in a minute", fails, what, asked)
				}
			}
			if calls, failures := minute(t, v); len(failures) > 0 {
				t.Fatalf("%d of %d calls fail: %v", len(failures), calls, failures[0])
			}
			time.Sleep(13 * time.Hour)
			i.set(fails)
			if calls, failures := minute(t, v); len(failures) > 0 {
				t.Errorf("%d: the token is valid, and %d of %d calls fail: %v", fails, len(failures), calls, failures[0])
			}
			seldom("while the token is valid")
			time.Sleep(11 * time.Hour)
			i.set(fails)
			calls, failures := minute(t, v)
			if len(failures) != calls {
				t.Errorf("%d: the token has expired, and %d of %d calls fail", fails, len(failures), calls)
			}
			seldom("after the token has expired")
			for _, err := range failures {
				if text := err.Error(); !strings.Contains(text, "the credential gives no token") || strings.Contains(text, "\n") || errors.Is(err, storage.ErrUnknown) {
					t.Fatalf("%d: %q", fails, text)
				}
			}
			i.set(0)
			time.Sleep(time.Minute)
			if calls, failures := minute(t, v); len(failures) > 0 {
				t.Errorf("%d: the issuer answers, and %d of %d calls fail: %v", fails, len(failures), calls, failures[0])
			}
		})
	}
}

// TestTokensAreRenewed works for three days, busily or seldom. Tokens are renewed before they expire, and batches
// take those of all other requests.
func TestTokensAreRenewed(t *testing.T) {
	for _, every := range []time.Duration{3 * time.Minute, 20 * time.Second}[:efforttest.Pick(1, 2, 2)] {
		withCredentials(t, func(t *testing.T, i *issuer, v *azblob.Vault) {
			for range 5 {
				plan := vaulttest.Created(t, v, plantest.Small())
				vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
			}
			if asked, _ := i.counts(); asked != 1 {
				t.Errorf("%d requests for tokens", asked)
			}
			for end := time.Now().Add(72 * time.Hour); time.Now().Before(end); time.Sleep(every) {
				if _, err := v.Exists(t.Context(), workflow.NewV7()); err != nil {
					t.Fatalf("%v before the end: %v", time.Until(end), err)
				}
			}
			if asked, _ := i.counts(); asked < 5 || asked > 7 {
				t.Errorf("%d requests for tokens in three days", asked)
			}
		})
	}
}

// stuck is a credential that does not answer the first time, even when its context has ended.
type stuck struct {
	asked   atomic.Int64
	release chan struct{}
	ended   atomic.Bool // the context of the first request
}

func (s *stuck) GetToken(ctx context.Context, _ policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if s.asked.Add(1) == 1 {
		defer func() { s.ended.Store(ctx.Err() != nil) }()
		<-s.release
	}
	return azcore.AccessToken{Token: "token", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// TestStuckCredentials asks a credential again after a minute. Close ends a request that is in flight.
func TestStuckCredentials(t *testing.T) {
	for _, closes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cred := &stuck{release: make(chan struct{})}
			v, err := azblob.New(t.Context(), "test", hostStyle, cred, plantest.Register(), settings.Over(emulator.New(emulator.Options{}).Transport()))
			vaulttest.Must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), map[bool]time.Duration{false: 2 * time.Minute, true: time.Second}[closes])
			defer cancel()
			if _, err := v.Exists(ctx, workflow.NewV7()); (err != nil) != closes {
				t.Errorf("closes %v: %v", closes, err)
			}
			vaulttest.Must(t, v.Close(t.Context()))
			synctest.Wait()
			close(cred.release)
			synctest.Wait()
			if !cred.ended.Load() {
				t.Error("the request for a token has not ended")
			}
		})
	}
}

// challenged is a transport that refuses tokens until one was issued for claims.
func challenged(i *issuer, always bool, next policy.Transporter) vaulttest.Send {
	const claims = `{"access_token":{"nbf":{"essential":true,"value":"1604106651"}}}`
	return func(req *http.Request) (*http.Response, error) {
		if _, answered := i.counts(); answered > 0 && !always {
			return next.Do(req)
		}
		return &http.Response{StatusCode: 401, Request: req, Body: http.NoBody, Header: http.Header{
			"X-Ms-Request-Id": {"1"}, "X-Ms-Version": {"2026-02-06"}, "X-Ms-Error-Code": {"InvalidAuthenticationInfo"},
			"Www-Authenticate": {`Bearer authorization_uri="https://login.example/", error="insufficient_claims", claims="` + base64.StdEncoding.EncodeToString([]byte(claims)) + `"`},
		}}, nil
	}
}

// TestClaimsChallenges revokes a token in the midst of many calls, as Continuous Access Evaluation does. One or two requests
// for a token answer the challenge for all. A service that repeats the challenge is asked once more: that is a refusal then.
func TestClaimsChallenges(t *testing.T) {
	for _, always := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			i := &issuer{lasts: time.Hour}
			cred, err := credentials["client secret"](i)
			vaulttest.Must(t, err)
			transport := challenged(i, always, emulator.New(emulator.Options{}).Transport())
			v, err := azblob.New(t.Context(), "test", hostStyle, cred, plantest.Register(), settings.Over(transport))
			vaulttest.Must(t, err)
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					if _, err := v.Exists(t.Context(), workflow.NewV7()); (err != nil) != always || always && !errors.Is(err, storage.ErrDenied) {
						t.Errorf("always %v: %v", always, err)
					}
				})
			}
			wg.Wait()
			if asked, claims := i.counts(); asked > 6 || claims < 1 || claims > 3 {
				t.Errorf("always %v: %d requests for tokens, %d with claims", always, asked, claims)
			}
		})
	}
}

// TestTokensAreForStorage refuses tokens and names another resource, as anybody between client and service could. The
// credential is asked for tokens of the storage service alone, and such a refusal is final.
func TestTokensAreForStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cred, sent := &scopes{}, 0
		transport := vaulttest.Send(func(req *http.Request) (*http.Response, error) {
			sent++
			return &http.Response{StatusCode: 401, Request: req, Body: http.NoBody, Header: http.Header{
				"X-Ms-Request-Id": {"1"}, "X-Ms-Version": {"2026-02-06"}, "X-Ms-Error-Code": {"InvalidAuthenticationInfo"},
				"Www-Authenticate": {"Bearer authorization_uri=https://login.example/tenant/oauth2/authorize resource_id=https://another.example"},
			}}, nil
		})
		v, err := azblob.New(t.Context(), "test", hostStyle, cred, plantest.Register(), settings.Over(transport))
		vaulttest.Must(t, err)
		_, err = v.Exists(t.Context(), workflow.NewV7())
		vaulttest.Fails(t, err, storage.ErrDenied)
		if sent != 1 || strings.Join(cred.asked, " ") != "https://storage.azure.com/.default" {
			t.Errorf("%d requests, tokens of %q", sent, cred.asked)
		}
	})
}

// scopes is a credential that notes the scopes of its tokens.
type scopes struct{ asked []string }

func (s *scopes) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	s.asked = append(s.asked, o.Scopes...)
	return azcore.AccessToken{Token: "token", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// TestAzureCLI logs in with a CLI that gives a token, that has no login, and that hangs until the test ends. A call returns
// when its context ends.
func TestAzureCLI(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the CLI is a shell script here")
	}
	path := os.Getenv("PATH")
	for name, test := range map[string]struct{ script, says string }{
		"token":    {`echo '{"accessToken":"token","expires_on":` + fmt.Sprint(time.Now().Add(time.Hour).Unix()) + `}'`, ""},
		"no login": {"echo 'ERROR: Please run az login to setup account.' >&2; exit 1", "az login"},
		"hangs":    {`touch "$0.begun"; while [ -e "$0.begun" ]; do sleep 0.1; done`, "the credential gives no token"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("PATH", dir+string(os.PathListSeparator)+path)
			begun := filepath.Join(dir, "az.begun")
			vaulttest.Must(t, os.WriteFile(filepath.Join(dir, "az"), []byte("#!/bin/sh\n"+test.script+"\n"), 0o700))
			cred, err := azidentity.NewAzureCLICredential(nil)
			vaulttest.Must(t, err)
			v, err := azblob.New(t.Context(), "test", hostStyle, cred, plantest.Register(), settings.Over(emulator.New(emulator.Options{}).Transport()))
			vaulttest.Must(t, err)
			defer v.Close(t.Context())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				for _, err := os.Stat(begun); err != nil && ctx.Err() == nil; _, err = os.Stat(begun) {
					time.Sleep(time.Millisecond)
				}
				cancel()
			}()
			_, err = v.Exists(ctx, workflow.NewV7())
			if (err != nil) != (test.says != "") || err != nil && (!strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%v, want %q", err, test.says)
			}
		})
	}
}

// TestPipeline creates, lists and deletes a plan. The log of azcore has every request and no secret, each names the vault
// in its User-Agent, and a tracer in the context sees each.
func TestPipeline(t *testing.T) {
	for _, login := range []string{"token: Storage Blob Data Contributor on the account", "account key", "account SAS: `srt=sco`, `sp=rwdlc`"} {
		server := emulator.New(emulator.Options{Tokens: tenant})
		var mu sync.Mutex
		var sent, spans int
		var log strings.Builder
		azlog.SetListener(func(e azlog.Event, text string) {
			mu.Lock()
			defer mu.Unlock()
			if e == azlog.EventRequest {
				log.WriteString(text)
			}
		})
		defer azlog.SetListener(nil)
		transport := vaulttest.Send(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			sent++
			if agent := req.Header.Get("User-Agent"); !strings.HasPrefix(agent, "planvault azsdk-go-") {
				t.Errorf("%s %s: the User-Agent is %q", req.Method, req.URL.Path, agent)
			}
			return server.Transport().Do(req)
		})
		v, err := logins[login](t.Context(), server, "", settings.Over(transport))
		vaulttest.Must(t, err)
		tracer := tracing.NewTracer(func(ctx context.Context, name string, _ *tracing.SpanOptions) (context.Context, tracing.Span) {
			mu.Lock()
			defer mu.Unlock()
			if strings.HasPrefix(name, "HTTP ") {
				spans++
			}
			return ctx, tracing.Span{}
		}, nil)
		ctx, end := azruntime.StartSpan(t.Context(), "test", tracer, nil)
		plan := plantest.Small()
		vaulttest.Must(t, v.Create(ctx, plan))
		_, err = storage.Collect(v.List(ctx, 0))
		vaulttest.Must(t, err)
		vaulttest.Must(t, vaulttest.ErrOf(v.Read(ctx, plan.ID)))
		vaulttest.Must(t, v.Delete(ctx, plan.ID))
		end(nil)
		if logged := strings.Count(log.String(), "OUTGOING REQUEST"); sent < 8 || logged != sent || spans != sent {
			t.Errorf("%s: %d requests, %d in the log, %d spans", login, sent, logged, spans)
		}
		for _, secret := range []string{"SharedKey ", "Bearer ", "sig=" + "%"} {
			if strings.Contains(log.String(), secret) {
				t.Errorf("%s: the log has %q", login, secret)
			}
		}
	}
}
