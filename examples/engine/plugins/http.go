package plugins

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
)

// HTTP calls an endpoint.
type HTTP struct {
	// Base is what addresses without a host are relative to; empty to refuse them.
	Base string
	// Client sends the requests; nil for http.DefaultClient.
	Client *http.Client
}

// HTTPRequest says what to call. The request has the action's ID in the header Idempotency-Key.
type HTTPRequest struct {
	// Method is GET unless set.
	Method string `json:"method,omitempty"`
	URL    string `json:"url"`
	Body   string `json:"body,omitempty"`
	// Status is the one to expect; 0 is any from 200 to 299.
	Status int `json:"status,omitempty"`
	// Contains is a text that the answer must contain.
	Contains string `json:"contains,omitempty"`
}

// HTTPResponse is the answer.
type HTTPResponse struct {
	Status int `json:"status"`
	// Body is the first 16 KiB.
	Body string `json:"body,omitempty"`
}

// Name is "http".
func (HTTP) Name() string { return "http" }

// Request is an HTTPRequest.
func (HTTP) Request() any { return HTTPRequest{} }

// Response is an HTTPResponse.
func (HTTP) Response() any { return HTTPResponse{} }

// Run sends the request. An answer other than the expected is a failure with its status as the code.
func (h HTTP) Run(ctx context.Context, action uuid.UUID, req any) (any, error) {
	r, ok := req.(HTTPRequest)
	if !ok || r.URL == "" {
		return nil, permanent(`http: "url" is missing in the request`)
	}
	address, err := h.address(r.URL)
	if err != nil {
		return nil, err
	}
	call, err := http.NewRequestWithContext(ctx, cmp.Or(r.Method, http.MethodGet), address, strings.NewReader(r.Body))
	if err != nil {
		return nil, permanent("http: %v", err)
	}
	call.Header.Set("Idempotency-Key", action.String())
	answer, err := cmp.Or(h.Client, http.DefaultClient).Do(call)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxOutput))
	if err != nil {
		return nil, err
	}
	resp := HTTPResponse{Status: answer.StatusCode, Body: strings.ToValidUTF8(string(body), "\uFFFD")}
	if r.Status != resp.Status && (r.Status != 0 || resp.Status < 200 || resp.Status > 299) {
		return resp, &plugins.Error{Code: resp.Status, Message: fmt.Sprintf("http: %s %s: %s", call.Method, r.URL, answer.Status)}
	}
	if !strings.Contains(resp.Body, r.Contains) {
		return resp, &plugins.Error{Code: resp.Status, Message: fmt.Sprintf("http: %s %s: the answer does not contain %q", call.Method, r.URL, r.Contains)}
	}
	return resp, nil
}

func (h HTTP) address(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", permanent("http: %v", err)
	}
	if u.Host == "" {
		base, err := url.Parse(h.Base)
		if err != nil || base.Host == "" {
			return "", permanent("http: %q names no host", text)
		}
		u = base.ResolveReference(u)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return "", permanent("http: %q is no http or https address", text)
	}
	return u.String(), nil
}
