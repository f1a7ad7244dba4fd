package emulator

import (
	"cmp"
	"crypto/hmac"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// need is what an operation needs: one of the resource types and one of the permissions of an account's
// shared access signature, one of the permissions of a container's, and whether a role must allow writing.
// https://learn.microsoft.com/rest/api/storageservices/create-account-sas
// https://learn.microsoft.com/rest/api/storageservices/create-service-sas
type need struct {
	types, account, container string
	write                     bool
	// outside is set for operations that the data roles do not contain.
	outside bool
}

const anyPermission = "rwdxylacupft"

// needOf returns what a request needs. A service signature gives no access to the properties and leases of
// containers.
func needOf(c *call) need {
	switch {
	case c.operation.op == Unsupported:
		return need{types: "sco", account: anyPermission, container: anyPermission, write: true}
	case c.operation.op == LeaseContainer && strings.EqualFold(c.http.Header.Get("x-ms-lease-action"), "break"):
		return need{types: "c", account: "wd", write: true}
	}
	return c.operation.need
}

// isSASParameter reports whether a query parameter belongs to a shared access signature.
func isSASParameter(name string) bool {
	switch name {
	case "sv", "ss", "srt", "sr", "sp", "st", "se", "sip", "spr", "ses", "sig", "si", "rscc", "rscd", "rsce", "rscl", "rsct",
		"skoid", "sktid", "skt", "ske", "sks", "skv", "saoid", "suoid", "scid", "skdutid", "sduoid":
		return true
	}
	return false
}

// verifySAS checks a shared access signature: its signature, its times, and what it allows.
func (s *Server) verifySAS(c *call, now time.Time) *answer {
	q := c.query
	text, ok := s.signedText(c)
	sent, err := base64.StdEncoding.DecodeString(q.Get("sig"))
	if !ok || err != nil {
		return unauthenticated("The shared access signature is malformed.")
	}
	if !hmac.Equal(s.signature(q, text), sent) {
		// The service adds the text that it has signed.
		return unauthenticated("Signature did not match. String to sign used was " + text)
	}
	from, until := signedTime(q.Get("st")), signedTime(q.Get("se"))
	if until.IsZero() || now.Before(from) || !now.Before(until) {
		return unauthenticated(fmt.Sprintf("Signature not valid in the specified time frame: Start [%s] - Expiry [%s] - Current [%s]",
			stamp(from), stamp(until), stamp(now)))
	}
	if q.Get("spr") == "https" && !c.secure() {
		return fail("AuthorizationProtocolMismatch")
	}
	if q.Has("skoid") {
		if bad := verifyDelegation(c, now); bad != nil {
			return bad
		}
	}
	n := needOf(c)
	permissions := n.account
	if q.Get("sr") != "" {
		permissions = n.container
	} else {
		switch {
		case !strings.Contains(q.Get("ss"), "b"):
			return fail("AuthorizationServiceMismatch")
		case !strings.ContainsAny(q.Get("srt"), n.types):
			return fail("AuthorizationResourceTypeMismatch")
		}
	}
	if !strings.ContainsAny(q.Get("sp"), permissions) {
		return fail("AuthorizationPermissionMismatch")
	}
	c.createOnly = c.operation.op == PutBlob && !strings.Contains(q.Get("sp"), "w")
	return nil
}

// signedText returns the text that is signed, by the version of the signature. It returns false for versions
// and forms that the emulator does not support: those before 2015-04-05, and stored access policies.
func (s *Server) signedText(c *call) (string, bool) {
	q := c.query
	version := q.Get("sv")
	if version < "2015-04-05" || q.Get("si") != "" {
		return "", false
	}
	var lines []string
	switch sr := q.Get("sr"); sr {
	case "":
		lines = append([]string{s.account}, linesOf(q, "sp", "ss", "srt", "st", "se", "sip", "spr", "sv")...)
		if version >= "2020-12-06" {
			lines = append(lines, q.Get("ses"))
		}
		return strings.Join(lines, "\n") + "\n", true
	case "c", "b":
		resource := "/blob/" + s.account + "/" + c.container
		if c.container == "" {
			resource += "$root"
		}
		if sr == "b" {
			resource += "/" + c.blob
		}
		by := linesOf(q, "si")
		if q.Has("skoid") {
			by = delegatedLines(q)
		}
		lines = slices.Concat(linesOf(q, "sp", "st", "se"), []string{resource}, by, linesOf(q, "sip", "spr", "sv"))
		if version >= "2018-11-09" {
			lines = append(lines, sr, "") // no snapshot
		}
		if version >= "2020-12-06" {
			lines = append(lines, q.Get("ses"))
		}
		if q.Has("skoid") && version >= "2026-04-06" {
			lines = append(lines, "", "") // it names no headers and parameters of requests
		}
		lines = append(lines, linesOf(q, "rscc", "rscd", "rsce", "rscl", "rsct")...)
		return strings.Join(lines, "\n"), true
	}
	return "", false
}

// linesOf returns the values of parameters.
func linesOf(q url.Values, names ...string) (lines []string) {
	for _, name := range names {
		lines = append(lines, q.Get(name))
	}
	return lines
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

// secure reports whether the request came over TLS, or pretends to.
func (c *call) secure() bool { return c.http.TLS != nil || c.http.URL.Scheme == "https" }

// Permissions says what a shared access signature from [Server.AccountSAS] or [Server.ContainerSAS] allows.
type Permissions struct {
	// Allowed are the letters of the permissions, in the order "rwdxylacupft", such as "rwdlc".
	Allowed string
	// Types are the resource types of an account's signature: of "sco". Default: all.
	Types string
	// Services are the services of an account's signature: of "bqtf". Default: "b".
	Services string
	// Start and Expiry bound its time. Default: no start, and an expiry in an hour.
	Start, Expiry time.Time
	// HTTPS restricts it to https.
	HTTPS bool
	// Version is the version of the signature. Default: "2022-11-02".
	Version string
}

func (p Permissions) query(now time.Time) url.Values {
	if p.Expiry.IsZero() {
		p.Expiry = now.Add(time.Hour)
	}
	q := url.Values{"sv": {cmp.Or(p.Version, "2022-11-02")}, "sp": {p.Allowed}, "se": {p.Expiry.UTC().Format(time.RFC3339)}}
	if !p.Start.IsZero() {
		q.Set("st", p.Start.UTC().Format(time.RFC3339))
	}
	if p.HTTPS {
		q.Set("spr", "https")
	}
	return q
}

// AccountSAS returns a shared access signature of the account, as the query of a URL.
func (s *Server) AccountSAS(p Permissions) string {
	q := p.query(s.clock())
	q.Set("ss", cmp.Or(p.Services, "b"))
	q.Set("srt", cmp.Or(p.Types, "sco"))
	return s.sign(&call{query: q})
}

// ContainerSAS returns a service shared access signature of a container, as the query of a URL.
func (s *Server) ContainerSAS(container string, p Permissions) string {
	q := p.query(s.clock())
	q.Set("sr", "c")
	return s.sign(&call{query: q, container: container})
}

func (s *Server) sign(c *call) string {
	text, _ := s.signedText(c)
	c.query.Set("sig", base64.StdEncoding.EncodeToString(s.mac(text)))
	return c.query.Encode()
}
