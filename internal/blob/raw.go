package blob

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	signing "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
)

// Login authorizes single requests to an account, for tools that look at answers as they are. Its methods may be called
// concurrently.
type Login struct {
	Account

	mu    sync.Mutex
	token azcore.AccessToken
}

// The kinds of logins.
const (
	KeyLogin       = "the account's key"
	TokenLogin     = "a token"
	SignatureLogin = "a shared access signature"
)

// Kind returns [KeyLogin], [TokenLogin] or [SignatureLogin].
func (l *Login) Kind() string {
	switch {
	case l.Account.token != nil:
		return TokenLogin
	case l.key != nil:
		return KeyLogin
	}
	return SignatureLogin
}

// URL returns the address of a path in the account, with the account's signature if it has one.
func (l *Login) URL(path string, query url.Values) *url.URL {
	u := l.url.JoinPath(path)
	all := l.url.Query()
	maps.Copy(all, query)
	u.RawQuery = all.Encode()
	return u
}

// Authorize adds to a request of a method what authorizes it at a time.
func (l *Login) Authorize(req *http.Request, at time.Time) error {
	if l.Kind() == KeyLogin {
		return l.signer.sign(req, at)
	}
	req.Header["X-Ms-Date"] = []string{at.UTC().Format(http.TimeFormat)}
	if l.Kind() == SignatureLogin {
		return nil
	}
	if req.URL.Scheme != "https" {
		return errors.New("a token is sent over https only")
	}
	token, err := l.bearer(req.Context())
	req.Header["Authorization"] = []string{"Bearer " + token}
	return err
}

// bearer returns a token that is valid for some minutes.
func (l *Login) bearer(ctx context.Context) (token string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Until(l.token.ExpiresOn) < 5*time.Minute {
		l.token, err = l.Account.token.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{tokenScope}})
	}
	return l.token.Token, err
}

// Signed returns a login with a shared access signature in the place of the account's key. It is for one container, or
// for the account if there is none, and begins an hour before it ends.
func (l *Login) Signed(container, permissions string, end time.Time) (*Login, error) {
	if l.key == nil {
		return nil, errors.New("only the account's key makes signatures")
	}
	start, protocol := end.Add(-time.Hour), signing.ProtocolHTTPSandHTTP
	var (
		signed signing.QueryParameters
		err    error
	)
	if container != "" {
		signed, err = signing.BlobSignatureValues{
			Protocol: protocol, StartTime: start, ExpiryTime: end, Permissions: permissions, ContainerName: container,
		}.SignWithSharedKey(l.key)
	} else {
		signed, err = signing.AccountSignatureValues{
			Protocol: protocol, StartTime: start, ExpiryTime: end, Permissions: permissions, ResourceTypes: "sco",
		}.SignWithSharedKey(l.key)
	}
	u := *l.url
	u.RawQuery = signed.Encode()
	return &Login{Account: Account{url: &u}}, err
}

// Class returns the billing class of a request.
func (l *Login) Class(req *http.Request) Class { return classOf(req) }
