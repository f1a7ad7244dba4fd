package blob

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	signing "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
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
func (l *Login) Authorize(req *http.Request, at time.Time) error {
	if s, ok := l.login.(*signer); ok {
		return s.sign(req, at)
	}
	req.Header["X-Ms-Date"] = []string{at.UTC().Format(http.TimeFormat)}
	if l.login == nil {
		return nil
	}
	header, err := authorization(req.Context(), l.login, req.URL.String())
	if err == nil {
		req.Header["Authorization"] = []string{header}
	}
	return err
}

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
	c, err := l.New(Options{Concurrency: 1, Transport: l.transport, ServiceVersion: version})
	if err != nil {
		return nil, err
	}
	answer, err := submit(ctx, c.container(Ref{Container: containerName}), c.builder.NewContainerClient(containerName), targets)
	if err != nil {
		return nil, explain(err)
	}
	return answer.outcomes, nil
}

// Signed returns a login with a shared access signature in the place of the account's key. It is for one container, or
// for the account if there is none, and begins an hour before it ends.
func (l *Login) Signed(container, permissions string, end time.Time) (*Login, error) {
	if l.key == nil {
		return nil, errors.New("it takes " + KeyLogin + ", and the login is " + l.Kind())
	}
	start, u := end.Add(-time.Hour), *l.url
	ofAccount := signing.AccountSignatureValues{StartTime: start, ExpiryTime: end, Permissions: permissions, ResourceTypes: "sco"}
	signed, err := ofAccount.SignWithSharedKey(l.key)
	if container != "" {
		ofContainer := signing.BlobSignatureValues{StartTime: start, ExpiryTime: end, Permissions: permissions, ContainerName: container}
		signed, err = ofContainer.SignWithSharedKey(l.key)
	}
	u.RawQuery = signed.Encode()
	return &Login{Account{url: &u}, l.transport}, err
}

// ReadPage decodes a page of a listing. It returns blobs, and groups of blobs or containers by their names alone, and
// the marker of the next page.
func ReadPage(body []byte) (items []Item, next string, err error) {
	page, err := readPage(bytes.NewReader(body), nil)
	for _, name := range page.groups {
		page.blobs = append(page.blobs, Item{Name: name})
	}
	for _, c := range page.containers {
		page.blobs = append(page.blobs, Item{Name: c.Name})
	}
	return page.blobs, page.next, err
}
