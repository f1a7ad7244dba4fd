package blob

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestRedactedMAC quotes the signature of a request that is signed with the account's key, alone, as the
// service and proxies do.
func TestRedactedMAC(t *testing.T) {
	const mac = "bWFj+c2ln/bmF0dXJl="
	req := &http.Request{URL: &url.URL{}, Header: http.Header{"Authorization": {"SharedKey account:" + mac}}}
	for _, text := range []string{"SharedKey account:" + mac, "the MAC signature found in the HTTP request '" + mac + "' is not the same"} {
		if got := redact(req, text); strings.Contains(got, mac) || !strings.Contains(got, redacted) {
			t.Errorf("got %q", got)
		}
	}
}
