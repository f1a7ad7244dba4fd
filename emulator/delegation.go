package emulator

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The object IDs of the holders of tokens. Azure looks their roles up; here the ID stands for the role.
const (
	contributorID = "00000000-0000-0000-0000-000000000001"
	readerID      = "00000000-0000-0000-0000-000000000002"
)

// maxDelegation is the longest time that a user delegation key is valid.
const maxDelegation = 7 * 24 * time.Hour

// userDelegationKey answers with a key that signs in the place of the token's holder.
// https://learn.microsoft.com/rest/api/storageservices/get-user-delegation-key
func (s *Server) userDelegationKey(c *call) *answer {
	scheme, token, _ := strings.Cut(c.http.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return unauthenticated("Only authentication scheme Bearer is supported.")
	}
	var info struct {
		XMLName       xml.Name `xml:"KeyInfo"`
		Start, Expiry string
	}
	if xml.Unmarshal(c.body, &info) != nil {
		return fail("InvalidInput")
	}
	start, expiry := signedTime(info.Start), signedTime(info.Expiry)
	if !expiry.After(c.now) || !expiry.After(start) || expiry.Sub(c.now) > maxDelegation {
		return failWith("InvalidInput", "Expiry.")
	}
	claims, _ := parseToken(token)
	id, tenant := contributorID, s.tenant
	if claims.Role == Reader {
		id = readerID
	}
	key := url.Values{
		"skoid": {id}, "sktid": {tenant}, "sks": {"b"}, "skv": {c.version},
		"skt": {start.Format(time.RFC3339)}, "ske": {expiry.Format(time.RFC3339)},
	}
	a := newAnswer(http.StatusOK)
	a.header.Set("Content-Type", "application/xml")
	var w bytes.Buffer
	w.WriteString(xmlProlog + "<UserDelegationKey>")
	for _, element := range [][2]string{
		{"SignedOid", id},
		{"SignedTid", tenant},
		{"SignedStart", key.Get("skt")},
		{"SignedExpiry", key.Get("ske")},
		{"SignedService", "b"},
		{"SignedVersion", c.version},
		{"Value", base64.StdEncoding.EncodeToString(s.delegatedKey(key))},
	} {
		writeElement(&w, element[0], element[1])
	}
	w.WriteString("</UserDelegationKey>")
	a.body = w.Bytes()
	return a
}

// delegatedKey returns the user delegation key that the parameters of a signature name.
func (s *Server) delegatedKey(q url.Values) []byte { return s.mac(strings.Join(keyLines(q), "\n")) }

// keyLines are the lines about the key in the text that is signed.
func keyLines(q url.Values) []string { return linesOf(q, "skoid", "sktid", "skt", "ske", "sks", "skv") }

// delegatedLines are the lines that a user delegation signature has in the place of the stored access policy.
func delegatedLines(q url.Values) []string {
	lines := append(keyLines(q), linesOf(q, "saoid", "suoid", "scid")...)
	if q.Get("sv") >= "2025-07-05" {
		lines = append(lines, q.Get("skdutid"), q.Get("sduoid"))
	}
	return lines
}

// verifyDelegation checks the key and the holder of a user delegation signature.
func verifyDelegation(c *call, now time.Time) *answer {
	q := c.query
	id := q.Get("skoid")
	switch from, until := signedTime(q.Get("skt")), signedTime(q.Get("ske")); {
	case id != contributorID && id != readerID, q.Get("sks") != "b":
		return unauthenticated("The user delegation key is malformed.")
	case now.Before(from) || !now.Before(until):
		return unauthenticated("The user delegation key is not valid in the specified time frame.")
	case id == readerID && needOf(c).write:
		return fail("AuthorizationPermissionMismatch")
	}
	return nil
}

// signature returns the signature of a text by the key that the parameters name: that of the account, or a user
// delegation key.
func (s *Server) signature(q url.Values, text string) []byte {
	if !q.Has("skoid") {
		return s.mac(text)
	}
	mac := hmac.New(sha256.New, s.delegatedKey(q))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
