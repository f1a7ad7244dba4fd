package blob

import (
	"context"
	"crypto/md5"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
)

// Contact is what an answer to a ping tells besides its result. It is zero if the service did not answer.
type Contact struct {
	Server string    // the service's name for its software
	Seen   time.Time // the service's clock, in whole seconds
}

// Reach asks for a blob that need not exist. The error is [Absent] or [AbsentContainer] if it does not.
func (c *Client) Reach(ctx context.Context, ref Ref) (Contact, error) {
	contact, err := c.contact(ctx, call{op: "get", ref: ref}, func(ctx context.Context) (*http.Response, error) {
		return c.blobs.plain(ctx, http.MethodGet, ref, Always) // a HEAD would not say why it is refused
	})
	if bloberror.HasCode(err, bloberror.ResourceNotFound) { // a container or a blob has another code
		err = &Error{Reason: Refused, Err: fmt.Errorf("%w: there is no such account at the endpoint", err)}
	}
	return contact, err
}

// TryWrite sends a write that can't succeed, because its condition names a version that no blob has. The
// error is [Mismatch], [Absent] or [AbsentContainer] if the write is allowed. The service checks the rights
// of a request before its condition.
func (c *Client) TryWrite(ctx context.Context, ref Ref) (Contact, error) {
	return c.contact(ctx, call{op: "put", ref: ref}, func(ctx context.Context) (*http.Response, error) {
		return c.blobs.put(ctx, ref, nil, md5.Sum(nil), nil, IfMatch("0x0"))
	})
}

// TryDelete is TryWrite for a delete.
func (c *Client) TryDelete(ctx context.Context, ref Ref) (Contact, error) {
	return c.contact(ctx, call{op: "delete", ref: ref}, func(ctx context.Context) (*http.Response, error) {
		return c.blobs.plain(ctx, http.MethodDelete, ref, IfMatch("0x0"))
	})
}

// contact sends a request and notes what its answer tells.
func (c *Client) contact(ctx context.Context, call call, try func(context.Context) (*http.Response, error)) (contact Contact, err error) {
	err = c.do(ctx, call, func(ctx context.Context) error {
		contact = Contact{}
		resp, err := try(ctx)
		if err == nil {
			err = finish(resp)
		} else if answer, ok := errors.AsType[*azcore.ResponseError](err); ok {
			resp = answer.RawResponse
		}
		if resp != nil {
			contact.Seen, _ = http.ParseTime(resp.Header.Get("Date"))
			contact.Server = resp.Header.Get("Server")
		}
		return err
	})
	return contact, err
}

// networkError is a failure below HTTP, with what to check.
type networkError struct {
	error
	remedy string
}

func (e *networkError) Error() string { return e.error.Error() + ": " + e.remedy }
func (e *networkError) Unwrap() error { return e.error }

// networkRemedy says what to check after a failure below HTTP. It returns "" if the failure does not tell.
func networkRemedy(err error) string {
	var (
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		dial        *net.OpError
	)
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "the host is unknown: check the endpoint, and the DNS of this network"
	case errors.As(err, &dns):
		return "the DNS does not answer: check this machine's network"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: check the endpoint's host and port, and firewalls"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "there is no route to the host: check this machine's network"
	case errors.As(err, &certificate):
		return "the certificate is not the host's, or not trusted here: check the endpoint, the machine's root certificates, and for a proxy that intercepts TLS"
	case errors.As(err, &record), err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "the host does not speak TLS there: check the endpoint's scheme and port"
	case errors.As(err, &dial) && dial.Op == "dial" && dial.Timeout():
		return "the host does not answer: a firewall may drop the packets, or the endpoint is wrong"
	}
	return ""
}
