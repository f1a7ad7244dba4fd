package emulator_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/planvault/azblob/emulator"
)

// keyClient returns a client that signs with the given account and key.
func keyClient(t *testing.T, tr *emulator.Transport, url, account, key string, policies ...policy.Policy) *container.Client {
	t.Helper()
	cred, err := azblob.NewSharedKeyCredential(account, key)
	must(t, err)
	o := noRetries(tr)
	o.PerCallPolicies = policies
	c, err := azblob.NewClientWithSharedKeyCredential(url, cred, o)
	must(t, err)
	return c.ServiceClient().NewContainerClient("plans")
}

const pathStyle = "http://localhost:10000/" + emulator.DefaultAccount

func TestSharedKey(t *testing.T) {
	other := base64.StdEncoding.EncodeToString([]byte("another key"))
	for _, tc := range []struct {
		name, account, key string
		code               string
	}{
		{name: "right", account: emulator.DefaultAccount, key: emulator.DefaultKey},
		{name: "wrong key", account: emulator.DefaultAccount, key: other, code: "AuthenticationFailed"},
		{name: "wrong account", account: "somebody", key: emulator.DefaultKey, code: "AuthenticationFailed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := emulator.New()
			s.PutContainer("plans", nil)
			c := keyClient(t, s.Transport(), pathStyle, tc.account, tc.key)
			_, err := upload(t.Context(), c, "a", "body", nil)
			if tc.code == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			want(t, err, http.StatusForbidden, tc.code)
			if s.Len("plans") != 0 {
				t.Error("it took effect")
			}
		})
	}
}

// TestSharedKeyOfHardRequests signs requests whose canonical form is difficult.
func TestSharedKeyOfHardRequests(t *testing.T) {
	onBothWires(t, func(t *testing.T, _ *emulator.Server, c *container.Client) {
		metadata := make(map[string]*string)
		for _, name := range []string{"a", "a_", "a_b", "aa", "a1", "a_1", "ab", "abc", "b_a", "_", "z9", "z_9"} {
			metadata[name] = to.Ptr("value of " + name)
		}
		for _, name := range []string{"plain", "a/b/c", "with blank", "per%cent", "que?stion", "a+b=c&d", "ü/é/😀", "a%2fb", "x//y", "*'();:@,$#[]"} {
			mustUpload(t, c, name, "body", &blockblob.UploadOptions{Metadata: metadata})
			if got, _, err := download(t.Context(), c, name, nil); err != nil || got != "body" {
				t.Errorf("%s: %q, %v", name, got, err)
			}
			list, _ := names(t, c, &container.ListBlobsFlatOptions{Prefix: &name, StartFrom: &name, MaxResults: to.Ptr(int32(1))})
			if len(list) != 1 || list[0] != name {
				t.Errorf("%s is listed as %v", name, list)
			}
		}
	})
}

// tamper changes a request after it was signed. It is a transport, because the SDK runs all policies before
// signing.
type tamper struct {
	policy.Transporter
	change func(*http.Request)
}

func (p tamper) Do(r *http.Request) (*http.Response, error) {
	p.change(r)
	return p.Transporter.Do(r)
}

func TestSharedKeyNoticesChanges(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"method":    func(r *http.Request) { r.Method = "DELETE" },
		"path":      func(r *http.Request) { r.URL.Path += "x" },
		"query":     func(r *http.Request) { r.URL.RawQuery = "timeout=5" },
		"metadata":  func(r *http.Request) { r.Header.Set("x-ms-meta-a", "c") },
		"another":   func(r *http.Request) { r.Header.Set("x-ms-meta-b", "c") },
		"condition": func(r *http.Request) { r.Header.Del("If-None-Match") },
		"type":      func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
		"MD5":       func(r *http.Request) { r.Header.Set("Content-MD5", "AAAA") },
		"date": func(r *http.Request) {
			r.Header.Set("x-ms-date", time.Now().Add(time.Minute).UTC().Format(http.TimeFormat))
		},
		"no date":   func(r *http.Request) { r.Header.Del("x-ms-date") },
		"signature": func(r *http.Request) { r.Header.Set("Authorization", "SharedKey devstoreaccount1:AAAA") },
		"garbage":   func(r *http.Request) { r.Header.Set("Authorization", "SharedKey ~") },
		"not lite":  func(r *http.Request) { r.Header.Set("Authorization", "SharedKey devstoreaccount1") },
	} {
		t.Run(name, func(t *testing.T) {
			s := emulator.New()
			s.PutContainer("plans", nil)
			c, err := azblob.NewClientFromConnectionString(s.ConnectionString(), noRetries(tamper{s.Transport(), change}))
			must(t, err)
			_, err = upload(t.Context(), c.ServiceClient().NewContainerClient("plans"), "a", "body", &blockblob.UploadOptions{
				Metadata:         map[string]*string{"a": to.Ptr("b")},
				AccessConditions: conditions("", "*"),
			})
			want(t, err, http.StatusForbidden, "AuthenticationFailed")
			if s.Len("plans") != 0 {
				t.Error("it took effect")
			}
		})
	}
}

func TestNoAuthentication(t *testing.T) {
	for _, header := range []string{"", "Bearer", "Bearer  ", "Basic eDp5", "SharedKeyLite devstoreaccount1:AAAA"} {
		s := emulator.New()
		s.Put("plans", "a", nil, nil)
		resp, _ := raw(t, s, "DELETE", "/plans/a", "", map[string]string{"Authorization": header})
		if resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("x-ms-error-code") != "NoAuthenticationInformation" ||
			resp.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%q: got %d %s", header, resp.StatusCode, resp.Header.Get("x-ms-error-code"))
		}
		if s.Len("plans") != 1 {
			t.Errorf("%q: it took effect", header)
		}
	}
}

func TestClockSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			skew time.Duration
			ok   bool
		}{
			{0, true},
			{15 * time.Minute, true},
			{-15 * time.Minute, true},
			{15*time.Minute + time.Second, false},
			{-15*time.Minute - time.Second, false},
		} {
			s := emulator.New(emulator.WithClock(func() time.Time { return time.Now().Add(tc.skew) }))
			c := newClient(t, s.Transport())
			_, err := c.CreateContainer(t.Context(), "plans", nil)
			if tc.ok {
				if err != nil {
					t.Errorf("%s: %v", tc.skew, err)
				}
				continue
			}
			wantFor(t, tc.skew.String(), err, http.StatusForbidden, "AuthenticationFailed")
		}
	})
}

// token is a credential with a made-up token.
type token string

func (k token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(k), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestBearerAndHostStyle(t *testing.T) {
	s := emulator.New(emulator.WithAccount("vault", base64.StdEncoding.EncodeToString([]byte("key"))))
	tr := s.Transport()
	const url = "https://vault.blob.core.windows.net/"
	client, err := azblob.NewClient(url, token("made up"), noRetries(tr))
	must(t, err)
	c := client.ServiceClient().NewContainerClient("plans")
	must(t, errOf(c.Create(t.Context(), nil)))
	mustUpload(t, c, "vault/a b", "body", nil)
	if b, there := s.Blob("plans", "vault/a b"); !there || string(b.Body) != "body" {
		t.Errorf("stored is %v", b)
	}
	resp, err := deleteBatch(t, c, "vault/a b")
	if err != nil || resp.Responses[0].Error != nil {
		t.Errorf("batch: %v, %v", resp.Responses, err)
	}
	// The same with the key and with the path.
	for _, url := range []string{url, "http://localhost/vault"} {
		c := keyClient(t, tr, url, "vault", base64.StdEncoding.EncodeToString([]byte("key")))
		mustUpload(t, c, "a", url, nil)
		if got, _, err := download(t.Context(), c, "a", nil); err != nil || got != url {
			t.Errorf("%s: %q, %v", url, got, err)
		}
	}
}

func TestOtherAccount(t *testing.T) {
	s := emulator.New()
	c := keyClient(t, s.Transport(), "http://localhost/other", emulator.DefaultAccount, emulator.DefaultKey)
	want(t, errOf(c.Create(t.Context(), nil)), http.StatusNotFound, "ResourceNotFound")
}
