package blob

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// Whatever comes from below the client may quote the request that it failed at: its URL, which has the signature of a shared
// access signature, or its headers, which have a token. The wire takes both out of all that it passes on.

const redacted = "REDACTED"

// signature is the parameter of a URL in a text, which may have been escaped again.
var signature = regexp.MustCompile(`(?i)(sig(?:=|%(?:25)*3D))[^\s"'<>]+`)

// redact takes what authorizes a request out of a text.
func redact(req *http.Request, text string) string {
	var pairs []string
	hide := func(secret string) {
		if secret != "" {
			pairs = append(pairs, secret, redacted)
		}
	}
	_, authorization, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	hide(authorization)
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

// redactError takes what authorizes a request out of an error's text.
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

// redactedError has no Unwrap: the texts of what it wraps would tell. errors.Is and errors.As look into it.
type redactedError struct {
	err  error
	text string
}

func (e *redactedError) Error() string        { return e.text }
func (e *redactedError) Is(target error) bool { return errors.Is(e.err, target) }
func (e *redactedError) As(target any) bool   { return errors.As(e.err, target) }
