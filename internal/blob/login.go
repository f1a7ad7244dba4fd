package blob

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
)

// need is what a request needs of its login.
type need struct {
	resource   string // resource type of an account's signature
	permission string // permission of a signature
	write      bool   // the role of a reader is not enough
	// action is what a role must allow if the data roles don't allow the request.
	action string
}

func needOf(req *http.Request) need {
	q := req.URL.Query()
	ofContainer := q.Get("restype") == "container"
	switch comp := q.Get("comp"); {
	case ofContainer && req.Method == http.MethodDelete:
		return need{"c", "d", true, ""}
	case comp == "batch", req.Method == http.MethodDelete:
		return need{"o", "d", true, ""}
	case comp == "list" && ofContainer:
		return need{"c", "l", false, ""}
	case comp == "list":
		return need{"s", "l", false, ""}
	case q.Get("restype") == "service":
		return need{"s", "r", false, "Microsoft.Storage/storageAccounts/blobServices/read"}
	case q.Get("restype") == "account":
		return need{"s", "r", false, "Microsoft.Storage/storageAccounts/blobServices/getInfo/action"}
	case ofContainer && req.Method == http.MethodPut && comp == "":
		return need{"c", "c", true, ""}
	case ofContainer && req.Method == http.MethodPut: // of metadata or a lease
		return need{"c", "w", true, ""}
	case ofContainer:
		return need{"c", "r", false, ""}
	case req.Method == http.MethodPut:
		return need{"o", "w", true, ""}
	}
	return need{"o", "r", false, ""}
}

// loginRemedy says what is wrong with the login of a refused request, as far as the request and the answer
// tell. It returns "" if they don't. It quotes no part of a key, token or signature.
func loginRemedy(answer *azcore.ResponseError) string {
	if answer.RawResponse == nil || answer.RawResponse.Request == nil {
		return ""
	}
	req := answer.RawResponse.Request
	code := bloberror.Code(answer.ErrorCode)
	switch scheme, _, _ := strings.Cut(req.Header.Get("Authorization"), " "); {
	case strings.EqualFold(scheme, "Bearer"):
		return tokenRemedy(code, needOf(req), authenticationDetail(answer.RawResponse))
	case scheme == "" && req.URL.Query().Has("sig"):
		return signatureRemedy(code, needOf(req), req.URL.Query(), RefusedAt(answer))
	}
	return ""
}

// tokenRemedy is loginRemedy for a token. The detail is the service's.
func tokenRemedy(code bloberror.Code, n need, detail string) string {
	switch code {
	case bloberror.AuthorizationPermissionMismatch:
		if n.action != "" {
			return "the data roles don't allow this: ask with the account's key, or give the identity a role with the action " + n.action + ", such as Storage Account Contributor"
		}
		if n.write {
			return "give the identity the role Storage Blob Data Contributor on the account"
		}
		return "give the identity the role Storage Blob Data Reader, or Contributor, on the account"
	case bloberror.AuthenticationFailed, bloberror.InvalidAuthenticationInfo:
		switch {
		case strings.Contains(detail, "expired"):
			return "the token has expired, and the credential gives no newer one: check the credential and this machine's clock"
		case strings.Contains(detail, "not yet valid"):
			return "the token is not valid yet: check this machine's clock"
		case strings.Contains(detail, "Audience"):
			return "the token is for another audience: it must be for https://storage.azure.com"
		case strings.Contains(detail, "Issuer"):
			return "the token is from another tenant than the account: check the tenant of the credential"
		}
		return "the token has expired, or is for another audience or tenant: check the credential"
	}
	return ""
}

// signatureRemedy is loginRemedy for a shared access signature with these parameters. The service's clock
// said at.
func signatureRemedy(code bloberror.Code, n need, q url.Values, at time.Time) string {
	const sas = "the shared access signature "
	switch code {
	case bloberror.AuthenticationFailed:
		switch start, expiry := signedTime(q.Get("st")), signedTime(q.Get("se")); {
		case !at.IsZero() && !expiry.IsZero() && !at.Before(expiry):
			return sas + "expired at " + expiry.UTC().Format(time.RFC3339) + ": open the vault with a new one"
		case !at.IsZero() && at.Before(start):
			return sas + "is valid from " + start.UTC().Format(time.RFC3339) + " only: wait, or check the clock of the machine that made it"
		case q.Get("sr") != "":
			return sas + "is for one container, and not for this request: use a signature of the account, or this container's; or its key was changed"
		}
		return sas + "does not match: it was changed, or the account's key was; make a new one"
	case bloberror.AuthorizationPermissionMismatch:
		if q.Get("sr") != "" && n.resource != "o" && n.permission != "l" {
			return sas + "is for blobs only: use one of the account, with the resource type " + n.resource + " and the permission " + n.permission
		}
		return sas + fmt.Sprintf("lacks the permission %s: it has %q", n.permission, q.Get("sp"))
	case bloberror.UnauthorizedBlobOverwrite:
		return sas + fmt.Sprintf("lacks the permission w: it has %q", q.Get("sp"))
	case bloberror.AuthorizationResourceTypeMismatch:
		return sas + fmt.Sprintf("lacks the resource type %s: it has %q", n.resource, q.Get("srt"))
	case bloberror.AuthorizationServiceMismatch:
		return sas + fmt.Sprintf("lacks the service b: it has %q", q.Get("ss"))
	case bloberror.AuthorizationProtocolMismatch:
		return sas + "is for https only"
	case bloberror.AuthorizationSourceIPMismatch:
		return sas + fmt.Sprintf("is for other addresses than this machine's: it has %q", q.Get("sip"))
	}
	return ""
}

// signedTime returns a time of a shared access signature, or the zero time if there is none.
func signedTime(s string) time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00", time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t
		}
	}
	return time.Time{}
}

// authenticationDetail returns what the service says about a failed authentication. It may contain the
// signature, and must not be quoted.
func authenticationDetail(resp *http.Response) string {
	body, err := runtime.Payload(resp) // which the SDK has read before
	var e struct {
		XMLName xml.Name `xml:"Error"`
		Detail  string   `xml:"AuthenticationErrorDetail"`
	}
	if err != nil || xml.Unmarshal(body, &e) != nil {
		return ""
	}
	return e.Detail
}

// outOfReach reports whether a refused request is one that the signature of a container can't allow: the
// service says of those outside of its container that the authentication failed.
func outOfReach(answer *azcore.ResponseError) bool {
	if answer.ErrorCode != string(bloberror.AuthenticationFailed) || answer.RawResponse == nil || answer.RawResponse.Request == nil {
		return false
	}
	q, at := answer.RawResponse.Request.URL.Query(), RefusedAt(answer)
	return q.Get("sr") != "" && at.Before(signedTime(q.Get("se"))) && !at.Before(signedTime(q.Get("st")))
}
