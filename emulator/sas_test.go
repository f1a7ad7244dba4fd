package emulator_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/planvault/azblob/emulator"
)

const hostStyle = "https://" + emulator.DefaultAccount + ".blob.core.windows.net"

// signedClient returns a client with a shared access signature.
func signedClient(t *testing.T, s *emulator.Server, query string) *container.Client {
	t.Helper()
	c, err := azblob.NewClientWithNoCredential(hostStyle+"/?"+query, noRetries(s.Transport()))
	must(t, err)
	return c.ServiceClient().NewContainerClient("plans")
}

// TestSignaturesOfTheSDK checks that the server accepts what the SDK signs, and that what it signs itself is
// the same.
func TestSignaturesOfTheSDK(t *testing.T) {
	key, err := azblob.NewSharedKeyCredential(emulator.DefaultAccount, emulator.DefaultKey)
	must(t, err)
	start, expiry := time.Now().Add(-time.Minute).UTC().Truncate(time.Second), time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	for _, version := range []string{"2020-12-06", "2022-11-02", "2026-02-06"} {
		s := emulator.New(emulator.Options{})
		s.Put("plans", "a", []byte("body"), nil)
		account, err := sas.AccountSignatureValues{
			Version: version, StartTime: start, ExpiryTime: expiry, Permissions: "rwdlc", ResourceTypes: "sco", Protocol: sas.ProtocolHTTPS,
		}.SignWithSharedKey(key)
		must(t, err)
		of, err := sas.BlobSignatureValues{
			Version: version, StartTime: start, ExpiryTime: expiry, Permissions: "rcwdl", ContainerName: "plans", Protocol: sas.ProtocolHTTPS,
		}.SignWithSharedKey(key)
		must(t, err)
		blob, err := sas.BlobSignatureValues{
			Version: version, StartTime: start, ExpiryTime: expiry, Permissions: "r", ContainerName: "plans", BlobName: "a",
		}.SignWithSharedKey(key)
		must(t, err)
		for what, query := range map[string]string{"account": account.Encode(), "container": of.Encode(), "blob": blob.Encode()} {
			if got, _, err := download(t.Context(), signedClient(t, s, query), "a", nil); err != nil || got != "body" {
				t.Errorf("%s, %s: %q, %v", version, what, got, err)
			}
		}
		p := emulator.Permissions{Allowed: "rwdlc", Types: "sco", Start: start, Expiry: expiry, HTTPS: true, Version: version}
		if signatureOf(s.AccountSAS(p)) != signatureOf(account.Encode()) {
			t.Errorf("%s: the server signs %s, and the SDK %s", version, s.AccountSAS(p), account.Encode())
		}
	}
	for _, version := range []string{"2015-04-05", "2018-11-09", "2019-12-12"} { // older than the SDK signs
		s := emulator.New(emulator.Options{})
		s.Put("plans", "a", []byte("body"), nil)
		for _, query := range []string{s.AccountSAS(emulator.Permissions{Allowed: "r", Version: version}), s.ContainerSAS("plans", emulator.Permissions{Allowed: "r", Version: version})} {
			if _, _, err := download(t.Context(), signedClient(t, s, query), "a", nil); err != nil {
				t.Errorf("%s: %v", version, err)
			}
		}
	}
}

func signatureOf(query string) string {
	_, sig, _ := strings.Cut(query, "sig=")
	sig, _, _ = strings.Cut(sig, "&")
	return sig
}

// TestSignaturesThatAreRefused changes each parameter of a good signature, and makes requests that it does
// not allow.
func TestSignaturesThatAreRefused(t *testing.T) {
	s := emulator.New(emulator.Options{})
	s.Put("plans", "a", []byte("body"), nil)
	s.Put("other", "a", []byte("body"), nil)
	read := func(c *container.Client) error { _, _, err := download(context.Background(), c, "a", nil); return err }
	good := s.AccountSAS(emulator.Permissions{Allowed: "r", Start: time.Now().Add(-time.Minute)})
	must(t, read(signedClient(t, s, good)))
	for from, to := range map[string]string{"sp=r": "sp=rw", "ss=b": "ss=bq", "srt=sco": "srt=o", "sv=2022-11-02": "sv=2022-11-03", "st=": "st=1", "se=": "se=3", "sig=": "sig=A"} {
		changed := strings.Replace(good, from, to, 1)
		if changed == good {
			t.Fatalf("%s has no %s", good, from)
		}
		wantFor(t, to, read(signedClient(t, s, changed)), http.StatusForbidden, "AuthenticationFailed")
	}
	for what, query := range map[string]string{
		"another container": s.ContainerSAS("other", emulator.Permissions{Allowed: "r"}),
		"expired":           s.AccountSAS(emulator.Permissions{Allowed: "r", Expiry: time.Now()}),
		"not yet valid":     s.AccountSAS(emulator.Permissions{Allowed: "r", Start: time.Now().Add(time.Hour)}),
		"a stored policy":   good + "&si=policy",
		"an old version":    s.AccountSAS(emulator.Permissions{Allowed: "r", Version: "2012-02-12"}),
	} {
		wantFor(t, what, read(signedClient(t, s, query)), http.StatusForbidden, "AuthenticationFailed")
	}
	// A signature that allows to create does not allow to overwrite.
	c := signedClient(t, s, s.ContainerSAS("plans", emulator.Permissions{Allowed: "c"}))
	must(t, errOf(upload(t.Context(), c, "new", "body", nil)))
	want(t, errOf(upload(t.Context(), c, "a", "other", nil)), http.StatusForbidden, "UnauthorizedBlobOverwrite")
	if b, _ := s.Blob("plans", "a"); string(b.Body) != "body" {
		t.Error("it was overwritten")
	}
}

// TestLeasesNeedRights leases and breaks the lease of a container with several permissions. Write allows both, and delete a
// break. A signature of a container allows neither.
func TestLeasesNeedRights(t *testing.T) {
	for permissions, test := range map[string]struct{ acquires, breaks, ofContainer bool }{
		"rl": {}, "rdlc": {breaks: true}, "rw": {acquires: true, breaks: true}, "rwdlc": {ofContainer: true},
	} {
		s := emulator.New(emulator.Options{})
		s.PutContainer("plans", nil)
		query := s.AccountSAS(emulator.Permissions{Allowed: permissions, Types: "c"})
		if test.ofContainer {
			query = s.ContainerSAS("plans", emulator.Permissions{Allowed: permissions})
		}
		by := func(query string) *lease.ContainerClient {
			l, err := lease.NewContainerClient(signedClient(t, s, query), nil)
			must(t, err)
			return l
		}
		check := func(what string, err error, allowed bool) {
			t.Helper()
			if allowed {
				must(t, err)
			} else {
				wantFor(t, permissions+": "+what, err, http.StatusForbidden, "AuthorizationPermissionMismatch")
			}
		}
		_, err := by(query).AcquireLease(t.Context(), -1, nil)
		check("acquire", err, test.acquires)
		if err != nil {
			must(t, errOf(by(s.AccountSAS(emulator.Permissions{Allowed: "w"})).AcquireLease(t.Context(), -1, nil)))
		}
		check("break", errOf(by(query).BreakLease(t.Context(), nil)), test.breaks)
	}
}

// claimed is a credential with these claims.
type claimed emulator.Claims

func (c claimed) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: emulator.Claims(c).Token(), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestTokens(t *testing.T) {
	s := emulator.New(emulator.Options{Tokens: "tenant"})
	s.Put("plans", "a", []byte("body"), nil)
	good := emulator.NewClaims("tenant", emulator.Reader, time.Now().Add(time.Hour))
	with := func(change func(*emulator.Claims)) emulator.Claims {
		c := good
		change(&c)
		return c
	}
	for what, test := range map[string]struct {
		claims emulator.Claims
		status int
		code   string
	}{
		"good":              {claims: good},
		"of the account":    {claims: with(func(c *emulator.Claims) { c.Audience = hostStyle + "/" })},
		"this container":    {claims: with(func(c *emulator.Claims) { c.Container = "plans" })},
		"another container": {with(func(c *emulator.Claims) { c.Container = "others" }), http.StatusForbidden, "AuthorizationPermissionMismatch"},
		"no role":           {with(func(c *emulator.Claims) { c.Role = "" }), http.StatusForbidden, "AuthorizationPermissionMismatch"},
		"audience":          {with(func(c *emulator.Claims) { c.Audience = "https://other" }), http.StatusUnauthorized, "InvalidAuthenticationInfo"},
		"issuer":            {with(func(c *emulator.Claims) { c.Issuer += "x" }), http.StatusUnauthorized, "InvalidAuthenticationInfo"},
		"expired":           {with(func(c *emulator.Claims) { c.Expires = time.Now().Unix() }), http.StatusUnauthorized, "InvalidAuthenticationInfo"},
		"early":             {with(func(c *emulator.Claims) { c.NotBefore = time.Now().Add(time.Minute).Unix() }), http.StatusUnauthorized, "InvalidAuthenticationInfo"},
	} {
		client, err := azblob.NewClient(hostStyle, claimed(test.claims), noRetries(s.Transport()))
		must(t, err)
		c := client.ServiceClient().NewContainerClient("plans")
		if _, _, err := download(t.Context(), c, "a", nil); test.code == "" {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			_, err := upload(t.Context(), c, "b", "", nil)
			wantFor(t, what, err, http.StatusForbidden, "AuthorizationPermissionMismatch")
		} else {
			wantFor(t, what, err, test.status, test.code)
		}
	}
	for _, token := range []string{"x", "a.b.c", "..", "a." + strings.Repeat("A", 7) + "."} {
		resp, _ := raw(t, s, "GET", "/plans/a", "", map[string]string{"Authorization": "Bearer " + token})
		if resp.StatusCode < 400 {
			t.Errorf("%q is accepted", token)
		}
	}
}

// FuzzToken decodes tokens of any form.
func FuzzToken(f *testing.F) {
	s := emulator.New(emulator.Options{Tokens: "tenant"})
	f.Add(emulator.NewClaims("other", emulator.Reader, time.Now().Add(time.Hour)).Token())
	f.Add("a.e30.")
	f.Fuzz(func(t *testing.T, text string) {
		client, err := azblob.NewClient(hostStyle, token(text), noRetries(s.Transport()))
		must(t, err)
		if _, err := client.ServiceClient().NewContainerClient("plans").Create(t.Context(), nil); err == nil {
			t.Errorf("%q is accepted", text)
		}
	})
}

// TestUserDelegation signs with keys that the SDK asks for by a token. A signature allows no more than its holder's role.
func TestUserDelegation(t *testing.T) {
	s := emulator.New(emulator.Options{Tokens: "tenant"})
	s.Put("plans", "a", []byte("body"), nil)
	for role, status := range map[emulator.Role]int{emulator.Contributor: 0, emulator.Reader: http.StatusForbidden} {
		client, err := azblob.NewClient(hostStyle, claimed(emulator.NewClaims("tenant", role, time.Now().Add(time.Hour))), noRetries(s.Transport()))
		must(t, err)
		ends := time.Now().Add(time.Hour)
		key, err := client.ServiceClient().GetUserDelegationCredential(t.Context(), service.KeyInfo{
			Start: new(time.Now().UTC().Format(sas.TimeFormat)), Expiry: new(ends.UTC().Format(sas.TimeFormat)),
		}, nil)
		must(t, err)
		signed, err := sas.BlobSignatureValues{ExpiryTime: ends.UTC(), Permissions: "rw", ContainerName: "plans"}.SignWithUserDelegation(key)
		must(t, err)
		query := signed.Encode()
		c := signedClient(t, s, query)
		_, _, err = download(t.Context(), c, "a", nil)
		must(t, err)
		if _, err := upload(t.Context(), c, "b", "", nil); status > 0 {
			wantFor(t, string(role), err, status, "AuthorizationPermissionMismatch")
		} else {
			must(t, err)
		}
		for _, name := range []string{"skoid", "ske", "sktid", "sp"} {
			q, err := url.ParseQuery(query)
			must(t, err)
			q.Set(name, q.Get(name)+"0")
			_, _, err = download(t.Context(), signedClient(t, s, q.Encode()), "a", nil)
			wantFor(t, name, err, http.StatusForbidden, "AuthenticationFailed")
		}
	}
	holder := claimed(emulator.NewClaims("tenant", emulator.Reader, time.Now().Add(time.Hour)))
	byToken, err := azblob.NewClient(hostStyle, holder, noRetries(s.Transport()))
	must(t, err)
	long := service.KeyInfo{Start: new(""), Expiry: new(time.Now().Add(8 * 24 * time.Hour).UTC().Format(sas.TimeFormat))}
	_, err = byToken.ServiceClient().GetUserDelegationCredential(t.Context(), long, nil)
	wantFor(t, "for more than a week", err, http.StatusBadRequest, "InvalidInput")
	byKey, err := azblob.NewClientFromConnectionString(s.ConnectionString(), noRetries(s.Transport()))
	must(t, err)
	info := service.KeyInfo{Start: new(""), Expiry: new(time.Now().Add(time.Hour).UTC().Format(sas.TimeFormat))}
	_, err = byKey.ServiceClient().GetUserDelegationCredential(t.Context(), info, nil)
	wantFor(t, "by the key", err, http.StatusForbidden, "AuthenticationFailed")
}

const pathStyle = "http://localhost:10000/" + emulator.DefaultAccount

// TestOrderOfSignedHeaders signs names of metadata, which the SDK sorts as the service does and not as bytes.
func TestOrderOfSignedHeaders(t *testing.T) {
	onBothWires(t, func(t *testing.T, _ *emulator.Server, c *container.Client) {
		metadata := make(map[string]*string)
		for _, name := range []string{"a", "a_", "a_b", "aa", "a1", "a_1", "ab", "abc", "b_a", "_", "z9", "z_9"} {
			metadata[name] = to.Ptr("value of " + name)
		}
		mustUpload(t, c, "ü/a b+c", "body", &blockblob.UploadOptions{Metadata: metadata})
	})
}

// token is a credential with a made-up token.
type token string

func (k token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(k), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestBearerAndHostStyle(t *testing.T) {
	s := emulator.New(emulator.Options{})
	tr := s.Transport()
	client, err := azblob.NewClient(hostStyle, token("made up"), noRetries(tr))
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
	key, err := azblob.NewSharedKeyCredential(emulator.DefaultAccount, emulator.DefaultKey)
	must(t, err)
	client, err = azblob.NewClientWithSharedKeyCredential(hostStyle, key, noRetries(tr))
	must(t, err)
	mustUpload(t, client.ServiceClient().NewContainerClient("plans"), "a", "body", nil)
}
