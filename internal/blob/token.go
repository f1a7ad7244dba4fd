package blob

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// tokenScope is the scope of a token, in all clouds.
const tokenScope = "https://storage.azure.com/.default"

// tokens authorizes requests with the tokens of a credential. It keeps a token until the credential wants to renew
// it, or until five minutes before its end.
//
// The policy of the SDK would ask for a token of the resource that a refusal names, and send it to whoever sent the
// refusal.
type tokens struct {
	cred azcore.TokenCredential

	mu      sync.Mutex
	token   azcore.AccessToken
	header  []string
	renewal time.Time // when to ask for another token
}

// early is how long before its end a token is renewed, and afresh how long a failed renewal is left alone.
const (
	early  = 5 * time.Minute
	afresh = 30 * time.Second
)

// refusal is an error that no later attempt mends.
type refusal struct{ error }

// NonRetriable marks the error as the SDK does.
func (refusal) NonRetriable() {}

func (r refusal) Unwrap() error { return r.error }

func (t *tokens) authorize(r *http.Request) error {
	if r.URL.Scheme != "https" {
		return refusal{errors.New("a token is sent over https only")}
	}
	header, err := t.current(r.Context())
	if err != nil {
		return refusal{err} // the credential has tried again if that helps
	}
	r.Header["Authorization"] = header
	return nil
}

// current returns the header with a token that is valid. While one request waits for a first token, the others wait, too.
func (t *tokens) current(ctx context.Context) ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Before(t.renewal) {
		return t.header, nil
	}
	next, err := t.cred.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{tokenScope}})
	switch {
	case err == nil:
		t.token, t.header = next, []string{"Bearer " + next.Token}
		if t.renewal = next.ExpiresOn.Add(-early); !next.RefreshOn.IsZero() && next.RefreshOn.Before(t.renewal) {
			t.renewal = next.RefreshOn
		}
	case now.Before(t.token.ExpiresOn):
		t.renewal = now.Add(afresh)
	default:
		return nil, err
	}
	return t.header, nil
}

// renew forgets the token: the service has refused it.
func (t *tokens) renew() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.token, t.renewal = azcore.AccessToken{}, time.Time{}
	return true
}
