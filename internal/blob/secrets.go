package blob

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// Errors from below the client may quote the failed request: its URL, which contains the signature of a
// shared access signature, or its headers, which contain a token. The wire removes both from everything that
// it passes on.

const redacted = "REDACTED"

// signature matches the parameter of a URL in a text. The text may have been escaped again.
var signature = regexp.MustCompile(`(?i)(sig(?:=|%(?:25)*3D))[^\s"'<>]+`)

// redact removes from a text what authorizes a request.
func redact(req *http.Request, text string) string {
	var pairs []string
	hide := func(secret string) {
		if secret != "" {
			pairs = append(pairs, secret, redacted)
		}
	}
	_, authorization, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	hide(authorization)
	_, mac, _ := strings.Cut(authorization, ":") // of a request that is signed with the account's key
	hide(mac)
	for parameter := range strings.SplitSeq(req.URL.RawQuery, "&") {
		if sent, ok := strings.CutPrefix(parameter, "sig="); ok {
			hide(sent)
			if value, err := url.QueryUnescape(sent); err == nil {
				hide(value)
				hide(url.QueryEscape(value))
				hide(url.PathEscape(value))
			}
		}
	}
	text = strings.NewReplacer(pairs...).Replace(text)
	return signature.ReplaceAllString(text, "${1}"+redacted)
}

// redactError removes from the text of an error what authorizes a request.
func redactError(req *http.Request, err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if clean := redact(req, text); clean != text {
		return &redactedError{err, clean}
	}
	return err
}

// redactedError has no Unwrap method, because the texts of the wrapped errors contain the secret. [errors.Is]
// and [errors.As] look into it.
type redactedError struct {
	err  error
	text string
}

func (e *redactedError) Error() string        { return e.text }
func (e *redactedError) Is(target error) bool { return errors.Is(e.err, target) }
func (e *redactedError) As(target any) bool   { return errors.As(e.err, target) }
