package blob

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
)

// Contact is what an answer to a ping tells besides its result. It is zero if the service did not answer.
type Contact struct {
	Server string    // the service's name for its software
	Seen   time.Time // the service's clock, in whole seconds
}

// Reach asks for a blob that need not exist. The error is [Absent] or [AbsentContainer] if it does not.
func (c *Client) Reach(ctx context.Context, ref Ref) (Contact, error) {
	client := c.container(ref).NewBlobClient(ref.Name)
	contact, err := c.contact(ctx, call{op: "get", ref: ref}, func(ctx context.Context) error {
		resp, err := client.DownloadStream(ctx, nil) // a HEAD would not say why it is refused
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
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
	client := c.container(ref).NewBlockBlobClient(ref.Name)
	opts := &blockblob.UploadOptions{AccessConditions: IfMatch("0x0").sdk(), HTTPHeaders: &sdk.HTTPHeaders{}}
	return c.contact(ctx, call{op: "put", ref: ref}, func(ctx context.Context) error {
		_, err := client.Upload(ctx, streaming.NopCloser(strings.NewReader("")), opts)
		return err
	})
}

// TryDelete is TryWrite for a delete.
func (c *Client) TryDelete(ctx context.Context, ref Ref) (Contact, error) {
	client := c.container(ref).NewBlockBlobClient(ref.Name)
	return c.contact(ctx, call{op: "delete", ref: ref}, func(ctx context.Context) error {
		_, err := client.Delete(ctx, &sdk.DeleteOptions{AccessConditions: IfMatch("0x0").sdk()})
		return err
	})
}

// contact sends a request and notes what its answer tells.
func (c *Client) contact(ctx context.Context, call call, try func(context.Context) error) (Contact, error) {
	var resp *http.Response
	err := c.do(ctx, call, func(ctx context.Context) error { return try(policy.WithCaptureResponse(ctx, &resp)) })
	if resp == nil {
		return Contact{}, err
	}
	at, _ := http.ParseTime(resp.Header.Get("Date"))
	return Contact{Server: resp.Header.Get("Server"), Seen: at}, err
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
