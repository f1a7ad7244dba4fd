package azblob

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
)

// PingReport is what a [Vault.Ping] finds.
type PingReport struct {
	// Container is the container of today, by this machine's clock. Exists says whether it exists; the first
	// Create of the day makes it.
	Container string
	Exists    bool
	// Latency is the time that the first request took, with what it needs: a connection and a token.
	Latency time.Duration
	// Skew is how far this machine's clock is ahead of the service's, within a second and half the latency.
	// It is zero if the service did not say its time. From 15 minutes on, the service refuses requests that
	// are signed with the account's key.
	Skew time.Duration
	// Server is the service's name for its software, such as "Windows-Azure-Blob/1.0 Microsoft-HTTPAPI/2.0".
	Server string
	// Writable says that the login may write. It is false unless [PingWrites] asked.
	Writable bool
	// Deletable says that the login may delete. It is false unless [PingDeletes] asked.
	Deletable bool
}

// PingOption is a setting of a [Vault.Ping].
type PingOption func(*pingOptions)

type pingOptions struct{ writes, deletes bool }

// PingWrites makes [Vault.Ping] find out whether the login may write, with one more request. Default: it
// finds out whether the login may read.
func PingWrites() PingOption { return func(o *pingOptions) { o.writes = true } }

// PingDeletes makes [Vault.Ping] find out whether the login may delete blobs, with one more request. Default: it
// finds out whether the login may read.
func PingDeletes() PingOption { return func(o *pingOptions) { o.deletes = true } }

// pingLimit bounds a Ping.
const pingLimit = 10 * time.Second

// pingName is the name of the blob that a Ping asks for. There is no such blob.
const pingName = "ping"

// Ping finds out whether the vault can work, with one request, and one more for each of [PingWrites] and
// [PingDeletes]. It does not try again, and returns within 10 seconds, or when ctx ends. It suits readiness
// checks, and the first minutes on a new account.
//
// It reads a blob named ping in the container of today, which need not exist. PingWrites also sends a write
// of that blob whose condition never holds, and PingDeletes such a delete. The service checks the rights to a
// request before its condition, so the answer tells whether the login may write or delete, and nothing changes.
// Ping does not find out whether the login may create and list containers.
//
// Errors say what to check. [storage.ErrUnavailable]: the host is unknown, refuses the connection, does not
// answer, or somebody else answers in the service's place; [storage.ErrDenied]: the certificate is not
// trusted, the login is wrong or lacks a role or permission, the clock is wrong, or the account or container
// is disabled. The report has what was found until then.
func (v *Vault) Ping(ctx context.Context, opts ...PingOption) (report PingReport, err error) {
	var o pingOptions
	for _, opt := range opts {
		opt(&o)
	}
	err = v.call(ctx, "Ping", uuid.Nil, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeoutCause(blob.Once(blob.Urgent(ctx)), pingLimit, fmt.Errorf("no answer within %v", pingLimit))
		defer cancel()
		started := time.Now()
		ref := blob.Ref{Container: v.prefix.day(started), Name: pingName}
		contact, err := v.client.Reach(ctx, ref)
		report = PingReport{Container: ref.Container, Latency: time.Since(started), Server: contact.Server}
		report.Skew = skew(started, report.Latency, contact.Seen)
		report.Exists = err == nil || blob.Is(err, blob.Absent)
		if err != nil && !blob.Is(err, blob.Absent, blob.AbsentContainer) {
			return blobError("ping", ref, err)
		}
		err = nil
		if o.writes {
			report.Writable, err = mayChange(ctx, "ping with a write", ref, v.client.TryWrite)
		}
		if o.deletes && err == nil {
			report.Deletable, err = mayChange(ctx, "ping with a delete", ref, v.client.TryDelete)
		}
		return err
	})
	return report, err
}

// mayChange reports whether the login may send a change, which can't take effect.
func mayChange(ctx context.Context, doing string, ref blob.Ref, try func(context.Context, blob.Ref) (blob.Contact, error)) (bool, error) {
	_, err := try(ctx, ref)
	switch {
	case err == nil:
		return false, vaultError(doing, ref, "%w: it took effect although its condition did not hold: remove the blob if it is there, and check for a proxy that removes headers", storage.ErrUnavailable)
	case !blob.Is(err, blob.Absent, blob.AbsentContainer, blob.Mismatch):
		return false, blobError(doing, ref, err)
	}
	return true, nil
}

// skew returns how far this machine's clock was ahead of the service's, which said seen in whole seconds,
// probably in the middle of the request.
func skew(started time.Time, took time.Duration, seen time.Time) time.Duration {
	if seen.IsZero() {
		return 0
	}
	return started.Add(took / 2).Sub(seen.Add(time.Second / 2)).Round(100 * time.Millisecond)
}
