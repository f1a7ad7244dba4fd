package blob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

func TestSecondaryEndpoints(t *testing.T) {
	const key = ";AccountName=name;AccountKey=a2V5"
	for _, test := range []struct{ cs, endpoint, want string }{
		{"BlobEndpoint=https://name.blob.core.windows.net" + key, "", "https://name-secondary.blob.core.windows.net"},
		{"BlobEndpoint=https://name.z1.blob.storage.azure.net/" + key, "", "https://name-secondary.z1.blob.storage.azure.net"},
		{"DefaultEndpointsProtocol=https" + key, "", "https://name-secondary.blob.core.windows.net"},
		{"BlobEndpoint=http://127.0.0.1:10000/name" + key, "", "http://127.0.0.1:10000/name-secondary"},
		{"BlobEndpoint=https://a.example;BlobSecondaryEndpoint=https://b.example/" + key, "", "https://b.example"},
		{"BlobEndpoint=https://a.example;BlobSecondaryEndpoint=https://b.example/" + key, "https://c.example", "https://c.example"},
		{"BlobEndpoint=https://a.example;SharedAccessSignature=sv=1&sig=x", "", "https://a-secondary.example?sv=1&sig=x"},
		{"BlobEndpoint=https://a.example;SharedAccessSignature=?sv=1&sig=x", "https://c.example", "https://c.example?sv=1&sig=x"},
		{"BlobEndpoint=https://localhost" + key, "", ""},
		{"BlobEndpoint=https://10.0.0.1" + key, "", ""},
		{"BlobEndpoint=https://[::ffff:10.0.0.1]:443" + key, "", ""},
		{"BlobEndpoint=https://a.example" + key, "/path", ""},
	} {
		primary, err := ParseConnectionString(test.cs)
		must(t, err)
		before := primary.url.String()
		second, err := primary.Secondary(test.endpoint)
		if (err == nil) != (test.want != "") || err == nil && second.url.String() != test.want {
			t.Errorf("%s, %q: got %v, %v, want %s", test.cs, test.endpoint, second.url, err, test.want)
		}
		if primary.url.String() != before {
			t.Errorf("%s: the primary is now at %s", test.cs, primary.url)
		}
	}
}

// asked is a credential that notes the scopes for which it was asked, and may refuse.
type asked struct {
	scopes  []string
	err     error
	refresh time.Duration // after it the credential wants to renew a token, if it is not 0
}

func (a *asked) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	a.scopes = append(a.scopes, o.Scopes...)
	t := azcore.AccessToken{Token: fmt.Sprint("token ", len(a.scopes)), ExpiresOn: time.Now().Add(time.Hour)}
	if a.refresh > 0 {
		t.RefreshOn = time.Now().Add(a.refresh)
	}
	return t, a.err
}

// TestTokensAreRenewed lets hours pass. A token is asked for once, and again some time before its end. While the
// credential fails, the token that is still valid is used, and the credential is asked seldom.
func TestTokensAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, cred := range []*asked{{}, {refresh: 20 * time.Minute}} {
			login := &tokens{cred: cred}
			after := func(d time.Duration, want string, asked int) {
				t.Helper()
				time.Sleep(d)
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://account.example/", nil)
				if err := login.authorize(r); (err == nil) != (want != "") || r.Header.Get("Authorization") != want || len(cred.scopes) != asked {
					t.Errorf("got %q, want %q, asked %d times: %v", r.Header.Get("Authorization"), want, len(cred.scopes), err)
				}
			}
			lasts := cmp.Or(cred.refresh, 55*time.Minute)
			after(0, "Bearer token 1", 1)
			after(lasts-time.Second, "Bearer token 1", 1)
			after(time.Second, "Bearer token 2", 2)
			cred.err = errors.New("the identity is away")
			after(lasts, "Bearer token 2", 3)
			after(20*time.Second, "Bearer token 2", 3)
			after(10*time.Second, "Bearer token 2", 4)
			after(time.Hour, "", 5)
			cred.err = nil
			after(0, "Bearer token 6", 6)
		}
		if err := (&tokens{cred: &asked{}}).authorize(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://account.example/", nil)); judge(err).reason != Refused || judge(err).again {
			t.Errorf("over http: %v", err)
		}
	})
}

// TestTokensAreForStorage refuses tokens and names another resource, as anybody between client and service
// could. The client asks for one more token, and again for the storage service. If there is no token, nothing is sent.
func TestTokensAreForStorage(t *testing.T) {
	const scope = "https://storage.azure.com/.default"
	for _, cred := range []*asked{{}, {err: errors.New("no identity here")}} {
		var sent []string
		account, err := WithToken("https://account.example", cred)
		must(t, err)
		c, err := account.New(Options{Concurrency: 1, Transport: sender(func(req *http.Request) (*http.Response, error) {
			sent = append(sent, req.Header.Get("Authorization"))
			h := http.Header{
				"Www-Authenticate": {"Bearer authorization_uri=https://login.example/tenant/oauth2/authorize resource_id=https://another.example"},
				"X-Ms-Request-Id":  {"1"}, "X-Ms-Version": {"2026-06-06"}, "X-Ms-Error-Code": {"InvalidAuthenticationInfo"},
			}
			return &http.Response{StatusCode: http.StatusUnauthorized, Header: h, Body: http.NoBody, Request: req}, nil
		})})
		must(t, err)
		_, err = c.Put(t.Context(), Ref{"container", "name"}, nil, mine(), IfNew)
		wantError(t, "refused", err, Refused, false)
		if cred.err != nil && (!errors.Is(err, cred.err) || len(cred.scopes) != 1 || len(sent) != 0) {
			t.Errorf("asked for tokens of %q and sent %q: %v", cred.scopes, sent, err)
		}
		if cred.err == nil && (!slices.Equal(cred.scopes, []string{scope, scope}) || !slices.Equal(sent, []string{"Bearer token 1", "Bearer token 2"})) {
			t.Errorf("asked for tokens of %q and sent %q", cred.scopes, sent)
		}
	}
}

func TestConnectionStringsThatCantBeUsed(t *testing.T) {
	const key = "c2VjcmV0LWtleQ=="
	for _, s := range []string{
		"", ";", "=", "nonsense", "AccountKey=" + key, "AccountName=a", "AccountName=a;AccountKey=" + key + "!", "AccountName=a;AccountKey",
		"AccountName=;AccountKey=" + key + ";BlobEndpoint=", "AccountName=a;AccountKey=" + key + ";BlobEndpoint=http://[",
		"AccountName=a;AccountKey=" + key + ";BlobEndpoint=/path", "BlobEndpoint=http://ho st;SharedAccessSignature=sig=" + key,
		"BlobEndpoint=http://%zz;SharedAccessSignature=sig=" + key, "BlobEndpoint=://;SharedAccessSignature=sig=" + key,
	} {
		if _, err := NewFromConnectionString(s, Options{}); err == nil || strings.Contains(err.Error(), "c2Vj") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// FuzzConnectionString parses connection strings of any form. Errors quote nothing, and what is accepted has
// a host and a login.
func FuzzConnectionString(f *testing.F) {
	f.Add("UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://proxy")
	f.Add("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=a2V5;EndpointSuffix=core.windows.net")
	f.Add("BlobEndpoint=https://a.example/;SharedAccessSignature=?sv=1&sig=x")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseConnectionString(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || len(text) > 60 && strings.Contains(err.Error(), text) {
				t.Errorf("the error of %q is %q", text, err)
			}
			return
		}
		if u, err := url.Parse(a.url.String()); err != nil || u.Host == "" {
			t.Errorf("%q has the endpoint %v", text, a.url)
		}
		if a.key == nil && a.url.RawQuery == "" {
			t.Errorf("%q has no login", text)
		}
		_, _ = a.Secondary("")
	})
}
