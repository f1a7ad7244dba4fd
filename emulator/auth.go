package emulator

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// clockTolerance is the largest difference between the date of a signed request and the server's clock.
const clockTolerance = 15 * time.Minute

// authorize refuses a client that neither signs with the account's key, nor has a token or a shared access
// signature.
func (s *Server) authorize(c *call, now time.Time) *answer {
	r := c.http
	scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case strings.EqualFold(scheme, "Bearer") && strings.TrimSpace(rest) != "":
		return s.verifyToken(c, strings.TrimSpace(rest), now)
	case scheme == "" && c.query.Has("sig"):
		return s.verifySAS(c, now)
	case scheme == "SharedKey":
		return s.verifySignature(r, strings.TrimSpace(rest), now)
	default:
		a := fail("NoAuthenticationInformation")
		a.header.Set("Www-Authenticate", bearer("common"))
		return a
	}
}

// verifySignature checks a Shared Key signature.
// https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
func (s *Server) verifySignature(r *http.Request, credentials string, now time.Time) *answer {
	account, signature, _ := strings.Cut(credentials, ":")
	sent, err := base64.StdEncoding.DecodeString(signature)
	if err != nil || account != s.account {
		return fail("AuthenticationFailed")
	}
	date := cmp.Or(r.Header.Get("x-ms-date"), r.Header.Get("Date"))
	at, err := http.ParseTime(date)
	if err != nil || now.Sub(at).Abs() > clockTolerance {
		return failWith("AuthenticationFailed", "Request date header too old: '"+date+"'.")
	}
	resource, ok := canonicalResource(s.account, r.URL)
	if !ok || !visible(r.Header) {
		return fail("AuthenticationFailed")
	}
	// The documentation sorts headers lexicographically. The service and the SDK sort them in the order of a
	// locale. The orders differ for names with underscores or hyphens; the emulator accepts both.
	for _, key := range []func(string) string{localeOrder, func(name string) string { return name }} {
		if hmac.Equal(s.mac(stringToSign(r, canonicalHeaders(r.Header, key), resource)), sent) {
			return nil
		}
	}
	return fail("AuthenticationFailed")
}

// mac signs a text with the account's key.
func (s *Server) mac(text string) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// visible reports whether the x-ms- headers can be signed. Client and service disagree on the wire form of
// anything but visible ASCII.
func visible(h http.Header) bool {
	for name, values := range h {
		if !strings.HasPrefix(strings.ToLower(name), "x-ms-") {
			continue
		}
		for _, value := range values {
			if strings.ContainsFunc(value, func(r rune) bool { return r > '~' }) {
				return false
			}
		}
	}
	return true
}

// stringToSign returns the string that client and server sign.
func stringToSign(r *http.Request, headers, resource string) string {
	h := r.Header
	length := ""
	if r.ContentLength > 0 {
		length = strconv.FormatInt(r.ContentLength, 10)
	}
	date := h.Get("Date")
	if h.Get("x-ms-date") != "" {
		date = ""
	}
	return strings.Join([]string{
		r.Method,
		h.Get("Content-Encoding"),
		h.Get("Content-Language"),
		length,
		h.Get("Content-Md5"),
		h.Get("Content-Type"),
		date,
		h.Get("If-Modified-Since"),
		h.Get("If-Match"),
		h.Get("If-None-Match"),
		h.Get("If-Unmodified-Since"),
		h.Get("Range"),
		headers + resource,
	}, "\n")
}

// canonicalHeaders returns the x-ms- headers, one per line, sorted by key.
func canonicalHeaders(h http.Header, key func(string) string) string {
	var lines []string
	for name, values := range h {
		name = strings.ToLower(name)
		if strings.HasPrefix(name, "x-ms-") {
			lines = append(lines, name+":"+strings.Join(values, ",")+"\n")
		}
	}
	slices.SortFunc(lines, func(a, b string) int {
		nameA, _, _ := strings.Cut(a, ":")
		nameB, _, _ := strings.Cut(b, ":")
		return cmp.Or(strings.Compare(key(nameA), key(nameB)), strings.Compare(nameA, nameB))
	})
	return strings.Join(lines, "")
}

// localeOrder maps the name of a header to a key that sorts bytewise as the service sorts names: hyphens are
// ignored, and an underscore comes before digits and letters.
func localeOrder(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "-", ""), "_", "!")
}

// canonicalResource returns the account, the path as it was sent, and the query with one parameter per line.
func canonicalResource(account string, u *url.URL) (string, bool) {
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", false
	}
	lines := make([]string, 0, len(query))
	for name, values := range query {
		values = slices.Sorted(slices.Values(values))
		lines = append(lines, "\n"+strings.ToLower(name)+":"+strings.Join(values, ","))
	}
	slices.Sort(lines)
	return "/" + account + path + strings.Join(lines, ""), true
}
