package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	signing "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
)

// Login sends single requests to an account, each once, for tools that look at answers as they are. Its methods may be
// called concurrently.
type Login struct {
	Account
	transport policy.Transporter
}

// Login returns the login of the account. Of the options it uses the transport and the concurrency.
func (a Account) Login(o Options) *Login {
	return &Login{a, newClient(o).transport(o.Transport)}
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
	case l.logout != nil:
		return TokenLogin
	case l.key != nil:
		return KeyLogin
	}
	return SignatureLogin
}

// URL returns the address of a target in the account, such as "container/blob?comp=metadata", with the account's
// signature if it has one.
func (l *Login) URL(target string) *url.URL {
	path, query, _ := strings.Cut(target, "?")
	u := l.url.JoinPath(path)
	u.RawQuery = strings.Trim(query+"&"+l.url.RawQuery, "&")
	return u
}

// Authorize adds to a request what authorizes it at a time.
func (l *Login) Authorize(req *http.Request, at time.Time) error { return l.authorize(req, at) }

// Do sends an authorized request. Its errors don't contain what authorizes it.
func (l *Login) Do(req *http.Request) (*http.Response, error) {
	resp, err := l.transport.Do(req)
	if err != nil {
		err = redactError(req, explain(err))
	}
	return resp, err
}

// DeleteBatch deletes blobs of a container in one request of a version. It returns an error for each.
func (l *Login) DeleteBatch(ctx context.Context, version, containerName string, targets []Target) ([]error, error) {
	c, err := l.New(Options{ClientOptions: policy.ClientOptions{Transport: l.transport, APIVersion: version}, Concurrency: 1})
	if err != nil {
		return nil, err
	}
	answer, err := c.blobs.submit(ctx, containerName, targets)
	if err != nil {
		return nil, explain(err)
	}
	return answer.outcomes, nil
}

// Signed returns a login with a shared access signature in the place of the account's key, or of a token, which takes a
// request for a user delegation key of a version. It is for one container, or for the account if there is none, which
// takes the key. It begins an hour before it ends.
func (l *Login) Signed(ctx context.Context, version, container, permissions string, end time.Time) (*Login, error) {
	start, u := end.Add(-time.Hour), *l.url
	ofContainer := signing.BlobSignatureValues{StartTime: start, ExpiryTime: end, Permissions: permissions, ContainerName: container}
	var signed signing.QueryParameters
	var err error
	switch {
	case l.logout != nil && container != "":
		var key *service.UserDelegationCredential
		if key, err = l.delegation(ctx, version); err == nil {
			signed, err = ofContainer.SignWithUserDelegation(key)
		}
	case l.key == nil:
		err = errors.New("it takes " + KeyLogin + ", and the login is " + l.Kind())
	case container != "":
		signed, err = ofContainer.SignWithSharedKey(l.key)
	default:
		ofAccount := signing.AccountSignatureValues{StartTime: start, ExpiryTime: end, Permissions: permissions, ResourceTypes: "sco"}
		signed, err = ofAccount.SignWithSharedKey(l.key)
	}
	u.RawQuery = signed.Encode()
	return &Login{Account{url: &u}, l.transport}, err
}

// delegation asks for a user delegation key, which is valid for an hour.
func (l *Login) delegation(ctx context.Context, version string) (*service.UserDelegationCredential, error) {
	var o service.ClientOptions
	o.Transport, o.Retry.MaxRetries, o.PerCallPolicies = l.transport, -1, []policy.Policy{serviceVersion(version)}
	c, err := l.client(o)
	if err != nil {
		return nil, err
	}
	at := func(d time.Duration) *string { return new(time.Now().UTC().Add(d).Format(signing.TimeFormat)) }
	key, err := c.GetUserDelegationCredential(ctx, service.KeyInfo{Start: at(-2 * time.Hour), Expiry: at(time.Hour)}, nil)
	if err != nil {
		err = fmt.Errorf("ask for a user delegation key: %w", explain(err))
	}
	return key, err
}

// ReadPage decodes a page of a listing. It returns blobs, groups of blobs by their names, containers by their names and
// metadata, and the marker of the next page.
func ReadPage(body []byte) (items []Item, next string, err error) {
	page, err := readPage(bytes.NewReader(body), nil)
	for _, name := range page.groups {
		page.blobs = append(page.blobs, Item{Name: name})
	}
	for _, c := range page.containers {
		page.blobs = append(page.blobs, Item{Name: c.Name, Properties: Properties{Metadata: c.Metadata}})
	}
	return page.blobs, page.next, err
}
