package blob

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
)

// Account is a storage account and what authorizes requests to it: a token credential, the account's key, or
// the shared access signature in the URL. Errors about accounts quote neither URLs nor secrets.
type Account struct {
	url    *url.URL      // of the service, with the signature
	login  policy.Policy // what authorizes requests; nil for a signature
	logout func()        // ends the use of a credential; nil for other logins
	key    *service.SharedKeyCredential
}

// errEndpoint quotes nothing, because the endpoint may contain a secret.
var errEndpoint = errors.New("the endpoint is missing or malformed")

// WithToken returns the account at an endpoint with a credential for tokens.
func WithToken(endpoint string, cred azcore.TokenCredential) (Account, error) {
	u, err := accountEndpoint(endpoint)
	login, logout := newTokens(cred)
	return Account{url: u, login: login, logout: logout}, err
}

// WithSignature returns the account of a URL with a shared access signature. The URL may be that of a
// container: isContainer says by its name whether the last element of the path is one.
func WithSignature(text string, isContainer func(name string) bool) (Account, error) {
	u, err := parseEndpoint(text)
	if err != nil {
		return Account{}, err
	}
	if u.Query().Get("sig") == "" {
		return Account{}, errors.New("the URL has no shared access signature")
	}
	if dir, last := path.Split(u.Path); isContainer(last) {
		u.Path = strings.TrimSuffix(dir, "/")
	}
	if err := checkPath(u); err != nil {
		return Account{}, err
	}
	return Account{url: u}, nil
}

// accountEndpoint parses the endpoint of an account.
func accountEndpoint(text string) (*url.URL, error) {
	u, err := parseEndpoint(text)
	if err != nil {
		return nil, err
	}
	return u, checkPath(u)
}

// checkPath refuses a path that goes on after the account, for example to a container: the vault would store
// its containers there, as blobs. The service's hosts name the account, and emulators have it in the path.
func checkPath(u *url.URL) error {
	account := strings.TrimPrefix(u.Path, "/")
	if strings.Contains(account, "/") || account != "" && strings.Contains(u.Host, ".blob.") {
		return errors.New("the endpoint has more than an account: it must not name a container that is not the vault's, nor a blob")
	}
	return nil
}

func parseEndpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errEndpoint
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}

// The development account, which emulators serve. Its key is public:
// https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string
const (
	devAccount = "devstoreaccount1"
	devKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
	devPort    = "10000"
)

// ParseConnectionString returns the account of a connection string: one with a key, with a shared access
// signature, or with UseDevelopmentStorage=true.
func ParseConnectionString(text string) (Account, error) {
	fields, err := parseFields(text)
	if err != nil {
		return Account{}, err
	}
	if strings.EqualFold(fields["usedevelopmentstorage"], "true") {
		if fields, err = development(fields["developmentstorageproxyuri"]); err != nil {
			return Account{}, err
		}
	}
	name, endpoint := fields["accountname"], fields["blobendpoint"]
	switch {
	case endpoint != "":
	case name == "":
		return Account{}, errors.New("the connection string needs AccountName or BlobEndpoint")
	default:
		endpoint = fmt.Sprintf("%s://%s.blob.%s", cmp.Or(fields["defaultendpointsprotocol"], "https"), name, cmp.Or(fields["endpointsuffix"], "core.windows.net"))
	}
	u, err := accountEndpoint(endpoint)
	if err != nil {
		return Account{}, err
	}
	if fields["blobendpoint"] == "" && !strings.HasPrefix(u.Host, name+".") { // such as a/b, whose host would be a
		return Account{}, errors.New("the AccountName is not the name of an account")
	}
	switch key, signature := fields["accountkey"], strings.TrimPrefix(fields["sharedaccesssignature"], "?"); {
	case key != "" && name != "":
		return withKey(u, name, key)
	case signature != "":
		u.RawQuery = signature
		return Account{url: u}, nil
	}
	return Account{}, errors.New("the connection string needs AccountName with AccountKey, or SharedAccessSignature")
}

// WithKey returns the account at an endpoint with its name and key.
func WithKey(endpoint, name, key string) (Account, error) {
	u, err := accountEndpoint(endpoint)
	if err != nil {
		return Account{}, err
	}
	return withKey(u, name, key)
}

func withKey(u *url.URL, name, key string) (Account, error) {
	if err := CheckKey(name, key); err != nil {
		return Account{}, err
	}
	secret, _ := base64.StdEncoding.DecodeString(key)
	ofSDK, err := service.NewSharedKeyCredential(name, key)
	return Account{url: u, login: newSigner(name, secret), key: ofSDK}, err
}

// CheckKey says what is wrong with the name and the key of an account. It quotes no part of the key.
func CheckKey(name, key string) error {
	if name == "" || key == "" {
		return errors.New("the name or the key of the account is missing")
	}
	if _, err := base64.StdEncoding.DecodeString(key); err != nil {
		return errors.New("the AccountKey is not base64")
	}
	return nil
}

// parseFields splits a connection string into its fields, with names in lower case.
func parseFields(text string) (map[string]string, error) {
	fields := map[string]string{}
	for field := range strings.SplitSeq(text, ";") {
		if field = strings.TrimSpace(field); field == "" {
			continue
		}
		name, value, ok := strings.Cut(field, "=")
		if !ok {
			return nil, errors.New("the connection string is not a list of Name=Value, separated by semicolons")
		}
		fields[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
	}
	return fields, nil
}

// development returns the fields of the development account at this machine, or at the host of a proxy.
func development(proxy string) (map[string]string, error) {
	u, err := parseEndpoint(cmp.Or(proxy, "http://127.0.0.1"))
	if err != nil {
		return nil, errors.New("the DevelopmentStorageProxyUri is not like http://host")
	}
	host := u.Hostname()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return map[string]string{
		"accountname":  devAccount,
		"accountkey":   devKey,
		"blobendpoint": fmt.Sprintf("%s://%s:%s/%s", u.Scheme, host, devPort, devAccount),
	}, nil
}

// client returns the SDK's client for the account.
func (a Account) client(o service.ClientOptions) (*service.Client, error) {
	o.PerCallPolicies = a.authorizing(o.PerCallPolicies)
	return service.NewClientWithNoCredential(a.url.String(), &o)
}

// authorizing appends the policy that authorizes requests to the account, if they need one.
func (a Account) authorizing(policies []policy.Policy) []policy.Policy {
	if a.login == nil {
		return policies
	}
	return append(slices.Clip(policies), a.login)
}

// authorize adds to a request what authorizes it at a time.
func (a Account) authorize(req *http.Request, at time.Time) error {
	if s, ok := a.login.(*signer); ok {
		return s.sign(req, at)
	}
	req.Header["X-Ms-Date"] = []string{at.UTC().Format(http.TimeFormat)}
	if a.login == nil {
		return nil
	}
	header, err := authorization(req.Context(), a.login, req.URL.String())
	if err == nil {
		req.Header["Authorization"] = []string{header}
	}
	return err
}
