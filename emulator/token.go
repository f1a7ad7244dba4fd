package emulator

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// Role is what the holder of a token may do.
type Role string

// The roles, named as those of Azure.
const (
	Reader      Role = "Storage Blob Data Reader"
	Contributor Role = "Storage Blob Data Contributor"
)

// Claims are what a bearer token says. The emulator checks them if it was opened with [Options].Tokens. Azure keeps
// roles in the account; here they are in the token.
type Claims struct {
	// Audience is the resource that the token is for. Default: "https://storage.azure.com".
	Audience string `json:"aud"`
	// Issuer is who issued the token: "https://sts.windows.net/" and the tenant.
	Issuer string `json:"iss"`
	// NotBefore and Expires are in seconds since 1970.
	NotBefore int64 `json:"nbf,omitempty"`
	Expires   int64 `json:"exp"`
	// Role is the role of the holder. Default: none.
	Role Role `json:"role,omitempty"`
	// Container restricts the role to a container. Default: the account.
	Container string `json:"container,omitempty"`
}

// NewClaims returns the claims of a holder with a role on the account, in a tenant.
func NewClaims(tenant string, role Role, expires time.Time) Claims {
	return Claims{Audience: storageAudience, Issuer: issuer + tenant + "/", Expires: expires.Unix(), Role: role}
}

const (
	storageAudience = "https://storage.azure.com"
	issuer          = "https://sts.windows.net/"
)

// Token returns an unsigned token with these claims.
func (c Claims) Token() string {
	encode := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			panic(err) // strings and numbers always marshal
		}
		return base64.RawURLEncoding.EncodeToString(data)
	}
	return encode(map[string]string{"alg": "none", "typ": "JWT"}) + "." + encode(c) + "."
}

// parseToken returns the claims of a token.
func parseToken(token string) (Claims, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return Claims{}, false
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return Claims{}, false
	}
	var c Claims
	return c, json.Unmarshal(data, &c) == nil
}

// verifyToken checks a bearer token, unless the server accepts every token.
func (s *Server) verifyToken(c *call, token string, now time.Time) *answer {
	if s.tenant == "" {
		return nil
	}
	claims, ok := parseToken(token)
	audience := strings.TrimSuffix(claims.Audience, "/")
	switch {
	case !c.secure():
		return unauthenticated("Authentication scheme Bearer is not supported over http.")
	case !ok:
		return s.challenge("The token is malformed.")
	case audience != storageAudience && audience != "https://"+s.account+".blob.core.windows.net":
		return s.challenge("Audience validation failed. Audience did not match.")
	case claims.Issuer != issuer+s.tenant+"/":
		return s.challenge("Issuer validation failed. Issuer did not match.")
	case now.Unix() >= claims.Expires:
		return s.challenge("Lifetime validation failed. The token is expired.")
	case now.Unix() < claims.NotBefore:
		return s.challenge("Lifetime validation failed. The token is not yet valid.")
	}
	n := needOf(c)
	allowed := claims.Role == Contributor || claims.Role == Reader && !n.write
	if !allowed || n.outside || claims.Container != "" && claims.Container != c.container {
		return fail("AuthorizationPermissionMismatch")
	}
	return nil
}

// challenge is the refusal of a token. It says where to get another one.
func (s *Server) challenge(detail string) *answer {
	a := failAuthentication("InvalidAuthenticationInfo", detail)
	a.header.Set("Www-Authenticate", bearer(s.tenant+"/oauth2/authorize"))
	return a
}

// bearer is the header that says where to get a token.
func bearer(path string) string {
	return "Bearer authorization_uri=https://login.microsoftonline.com/" + path + " resource_id=" + storageAudience
}

// unauthenticated is the refusal of a key or a signature.
func unauthenticated(detail string) *answer {
	return failAuthentication("AuthenticationFailed", detail)
}
