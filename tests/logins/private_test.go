package logins_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// TestErrorsNameNoPlace reads a plan through failures of the network, the service and proxies. The error may be shown to
// users of an API; with %+v it is for operators. No text has a secret.
func TestErrorsNameNoPlace(t *testing.T) {
	const host = "blob.emulator.invalid"
	address := &net.TCPAddr{IP: net.IPv4(20, 38, 1, 2), Port: 443}
	certificate := &x509.Certificate{DNSNames: []string{"intranet", "gate.corp"}}
	fails := func(err error) vaulttest.Send {
		return func(req *http.Request) (*http.Response, error) {
			return nil, &url.Error{Op: "Get", URL: "https://" + host + req.URL.Path + "?sig=SECRET", Err: err}
		}
	}
	answers := func(effect emulator.Effect) vaulttest.Send {
		server := emulator.New()
		server.Inject(emulator.On().Do(effect))
		return server.Transport().Do
	}
	for name, test := range map[string]struct {
		transport vaulttest.Send
		place     string // that only %+v names, besides the host and the container
		text      string // that both have
	}{
		"no such host":         {fails(&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: host, Server: "10.0.0.53:53", IsNotFound: true}}), "10.0.0.53:53", "no such host"},
		"refused":              {fails(&net.OpError{Op: "dial", Net: "tcp", Addr: address, Err: syscall.ECONNREFUSED}), "20.38.1.2:443", "connection refused: nothing listens there"},
		"reset":                {fails(&net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv6loopback, Port: 5}, Addr: address, Err: syscall.ECONNRESET}), "[::1]:5", "connection reset by peer"},
		"proxy without DNS":    {fails(&net.OpError{Op: "proxyconnect", Net: "tcp", Err: &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "proxy", IsNotFound: true}}}), "lookup proxy", "proxyconnect"},
		"another certificate":  {fails(&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: certificate, Host: host}}), "intranet, gate.corp", "root certificates"},
		"login":                {fails(errors.New("POST https://login.invalid/tenant/token?client_secret=x: sig=SECRET")), "https://login.invalid/tenant", "POST"},
		"proxy's page":         {answers(emulator.Foreign(403, "text/html", "ask gate.corp, localhost:8080 or http://portal/a?sig=SECRET")), "gate.corp, localhost:8080", "the answer is 403"},
		"redirect":             {answers(emulator.Redirect(302, "https://portal.invalid/login?sig=SECRET")), "portal.invalid", "is not followed"},
		"refusal":              {answers(emulator.Answer(403, "AuthorizationFailure")), host, "403 AuthorizationFailure"},
		"refusal with a link":  {answers(emulator.Answer(401, "InvalidAuthenticationInfo")), host, "401 InvalidAuthenticationInfo"},
		"trouble":              {answers(emulator.Answer(503, "ServerBusy")), host, "503 ServerBusy"},
		"nothing stored there": {emulator.New().Transport().Do, host, "404 ContainerNotFound"},
	} {
		synctest.Test(t, func(t *testing.T) {
			v := vaulttest.OnEmulator(t, emulator.New(), azblob.WithTransport(test.transport), azblob.WithRetry(azblob.Retry{MaxElapsed: time.Second}))
			plan := plantest.Small()
			plan.ID = workflow.NewV7()
			_, err := v.Read(t.Context(), plan.ID)
			var e *storage.Error
			if !errors.As(err, &e) {
				t.Fatalf("%s: %v", name, err)
			}
			container, _, _ := strings.Cut(e.Blob, "/")
			for _, text := range []string{err.Error(), fmt.Sprintf("%v", err), fmt.Sprintf("%s", err), fmt.Sprintf("%q", err), fmt.Errorf("read: %w", err).Error()} {
				for _, place := range []string{container, "test-20", host, test.place, "gate.corp", "://portal", "SECRET"} {
					if strings.Contains(text, place) {
						t.Errorf("%s: %q names %s", name, text, place)
					}
				}
				if !strings.Contains(text, test.text) || !strings.Contains(text, "plans/"+plan.ID.String()) {
					t.Errorf("%s: %q, want %q", name, text, test.text)
				}
			}
			for _, text := range []string{fmt.Sprintf("%+v", err), storage.Detail(fmt.Errorf("read: %w", err))} {
				for _, place := range []string{container + "/plans/", host + ": ", test.place, test.text} {
					if !strings.Contains(text, place) {
						t.Errorf("%s: %q does not name %s", name, text, place)
					}
				}
				if strings.Contains(text, "SECRET") {
					t.Errorf("%s: %q", name, text)
				}
			}
		})
	}
}
