package plugins

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/plugins"
)

// HTTP calls an endpoint.
type HTTP struct {
	// Base resolves URLs without a host. If it is empty, they are refused.
	Base string
	// Client sends the requests; nil means http.DefaultClient.
	Client *http.Client
}

// HTTPRequest is the request of [HTTP]. The header Idempotency-Key carries the action's ID, and
// Fencing-Token the epoch of its plan.
type HTTPRequest struct {
	// Method is the method; empty means GET.
	Method string `json:"method,omitempty"`
	URL    string `json:"url"`
	Body   string `json:"body,omitempty"`
	// Status is the expected status; 0 means 200 to 299.
	Status int `json:"status,omitempty"`
	// Contains is a text that the response body must contain.
	Contains string `json:"contains,omitempty"`
}

// HTTPResponse is the response of [HTTP].
type HTTPResponse struct {
	Status int `json:"status"`
	// Body holds the first 16 KiB.
	Body string `json:"body,omitempty"`
}

// Run sends the request. An unexpected response is a failure with its status as the code.
func (h HTTP) Run(ctx context.Context, call engine.Call, r HTTPRequest) (HTTPResponse, error) {
	if r.URL == "" {
		return HTTPResponse{}, permanent(`http: "url" is missing in the request`)
	}
	address, err := h.address(r.URL)
	if err != nil {
		return HTTPResponse{}, err
	}
	request, err := http.NewRequestWithContext(ctx, cmp.Or(r.Method, http.MethodGet), address, strings.NewReader(r.Body))
	if err != nil {
		return HTTPResponse{}, permanent("http: %v", err)
	}
	request.Header.Set("Idempotency-Key", call.Action.String())
	request.Header.Set("Fencing-Token", strconv.FormatInt(call.Epoch, 10))
	answer, err := cmp.Or(h.Client, http.DefaultClient).Do(request)
	if err != nil {
		return HTTPResponse{}, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxOutput))
	if err != nil {
		return HTTPResponse{}, err
	}
	resp := HTTPResponse{Status: answer.StatusCode, Body: strings.ToValidUTF8(string(body), "\uFFFD")}
	if r.Status != resp.Status && (r.Status != 0 || resp.Status < 200 || resp.Status > 299) {
		return resp, &plugins.Error{Code: resp.Status, Message: fmt.Sprintf("http: %s %s: %s", request.Method, r.URL, answer.Status)}
	}
	if !strings.Contains(resp.Body, r.Contains) {
		return resp, &plugins.Error{Code: resp.Status, Message: fmt.Sprintf("http: %s %s: the answer does not contain %q", request.Method, r.URL, r.Contains)}
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
		return "", permanent("http: %q is not an http or https URL", text)
	}
	return u.String(), nil
}
