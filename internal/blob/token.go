package blob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// tokenScope is the scope of a token, in all clouds.
const tokenScope = "https://storage.azure.com/.default"

// Limits of requests to a credential.
const (
	tokenPatience = time.Minute // for one request
	tokenRest     = time.Second // how long a result counts for everybody
)

// errNoToken means that a credential has not answered. Nothing was sent to the service.
var errNoToken = errors.New("the credential gives no token: check the login, and whether this machine reaches the endpoint that issues its tokens")

// tokens is a credential that answers azcore's policy at once. The policy would make all requests wait for the one that
// asks for a token, whatever their contexts say, and ask within the context of that one. Here a goroutine asks, and each
// request waits in [authorize] as long as its context allows. A token that is still valid serves meanwhile.
type tokens struct {
	cred  azcore.TokenCredential
	ended context.Context // when nobody wants tokens any more

	mu      sync.Mutex
	pending map[string]*tokenRequest // by claims
}

// tokenRequest is a request to the credential. As an error it means that the request is in flight.
type tokenRequest struct {
	done  chan struct{}
	at    time.Time // of the end, or of the start
	token azcore.AccessToken
	err   error
	taken bool // by the policy
}

func (*tokenRequest) Error() string { return errNoToken.Error() }

// counts reports whether a request need not be repeated.
func (r *tokenRequest) counts() bool {
	select {
	case <-r.done:
		return time.Since(r.at) < tokenRest || r.err == nil && !r.taken && time.Now().Before(r.token.ExpiresOn)
	default:
		return time.Since(r.at) < tokenPatience
	}
}

// newTokens returns azcore's policy for the tokens of a credential, until end is called.
func newTokens(cred azcore.TokenCredential) (p policy.Policy, end func()) {
	t := &tokens{cred: cred, pending: map[string]*tokenRequest{}}
	t.ended, end = context.WithCancel(context.Background())
	p = runtime.NewBearerTokenPolicy(t, nil, &policy.BearerTokenOptions{AuthorizationHandler: policy.AuthorizationHandler{OnRequest: authorize}})
	return p, end
}

// authorize authorizes a request as azcore's policy does by default, once the credential has answered.
func authorize(req *policy.Request, withToken func(policy.TokenRequestOptions) error) error {
	ctx := req.Raw().Context()
	for {
		err := withToken(policy.TokenRequestOptions{Scopes: []string{tokenScope}})
		r, inFlight := errors.AsType[*tokenRequest](err)
		if !inFlight {
			return err
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errNoToken, context.Cause(ctx))
		}
	}
}

// GetToken returns the result of the latest request, or the request itself if it is in flight.
func (t *tokens) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.pending, func(_ string, r *tokenRequest) bool { return !r.counts() })
	r := t.pending[o.Claims]
	if r == nil {
		r = &tokenRequest{done: make(chan struct{}), at: time.Now()}
		t.pending[o.Claims] = r
		go t.ask(context.WithoutCancel(ctx), o, r)
	}
	select {
	case <-r.done:
		r.taken = true
		return r.token, r.err
	default:
		return azcore.AccessToken{}, r
	}
}

func (t *tokens) ask(ctx context.Context, o policy.TokenRequestOptions, r *tokenRequest) {
	ctx, cancel := context.WithTimeout(ctx, tokenPatience)
	defer cancel()
	defer context.AfterFunc(t.ended, cancel)()
	token, err := t.cred.GetToken(ctx, o)
	if err != nil {
		err = newTokenError(err)
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", errNoToken, err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r.token, r.err, r.at = token, err, time.Now()
	close(r.done)
}

// tokenError is the error of a credential on one line. Those of azidentity are pages, and make their text anew each time,
// which only one goroutine may do.
type tokenError struct {
	text string
	err  error
}

func newTokenError(err error) error {
	return &tokenError{"the credential gives no token: " + strings.Join(strings.Fields(err.Error()), " "), err}
}

func (e *tokenError) Error() string { return e.text }
func (e *tokenError) Unwrap() error { return e.err }

// authorization returns the header with a token for a request of a URL.
func authorization(ctx context.Context, login policy.Policy, url string) (string, error) {
	req, err := runtime.NewRequest(ctx, http.MethodGet, url)
	if err != nil {
		return "", err
	}
	_, err = login.Do(req)
	if header := req.Raw().Header.Get("Authorization"); header != "" { // the error says that no policy follows
		return header, nil
	}
	return "", err
}
