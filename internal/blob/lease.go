package blob

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
)

// Lease is the lease of a container as others see it. While a container is leased, it can be deleted only with
// the ID of the lease.
type Lease int

// The leases.
const (
	LeaseUnknown Lease = iota // the answer does not say
	Unleased                  // also a lease that has run out or was broken
	LeasedForATime
	LeasedForever // until somebody releases or breaks the lease
)

// leaseOf returns the lease that the service describes.
func leaseOf(state, duration string) Lease {
	switch lease.StateType(strings.ToLower(state)) {
	case lease.StateTypeAvailable, lease.StateTypeExpired, lease.StateTypeBroken:
		return Unleased
	case lease.StateTypeBreaking:
		return LeasedForATime
	case lease.StateTypeLeased:
		switch lease.DurationType(strings.ToLower(duration)) {
		case lease.DurationTypeFixed:
			return LeasedForATime
		case lease.DurationTypeInfinite:
			return LeasedForever
		}
	}
	return LeaseUnknown
}

// Forever is the duration of a lease that does not run out.
const Forever time.Duration = -time.Second

// AcquireLease acquires the lease of a container for a time, 15 to 60 seconds, or [Forever]. The ID is a UUID
// that the caller chooses. If the container has a lease of this ID already, AcquireLease renews it; an attempt
// whose answer was lost is therefore no obstacle to the next one. The error is [Leased] if the container has
// another lease, and [AbsentContainer] if it does not exist.
func (c *Client) AcquireLease(ctx context.Context, name, id string, duration time.Duration) error {
	ref := Ref{Container: name}
	return c.do(ctx, call{op: "acquire lease", ref: ref, write: true}, func(ctx context.Context) error {
		l, err := c.lease(ref, id)
		if err == nil {
			_, err = l.AcquireLease(ctx, int32(duration/time.Second), nil)
		}
		return err
	})
}

// ReleaseLease releases a lease of a container. The error is [Leased] if the container has no lease of this
// ID: an earlier attempt may have released it.
func (c *Client) ReleaseLease(ctx context.Context, name, id string) error {
	ref := Ref{Container: name}
	return c.do(ctx, call{op: "release lease", ref: ref, write: true}, func(ctx context.Context) error {
		l, err := c.lease(ref, id)
		if err == nil {
			_, err = l.ReleaseLease(ctx, nil)
		}
		return err
	})
}

func (c *Client) lease(ref Ref, id string) (*lease.ContainerClient, error) {
	return lease.NewContainerClient(c.container(ref), &lease.ContainerClientOptions{LeaseID: &id})
}

// releases reports whether a request releases a lease.
func releases(req *http.Request) bool {
	return parameter(req, "comp") == "lease" && slices.Contains(headerOf(req, "x-ms-lease-action"), "release")
}

// DeleteContainer removes a container with everything in it, if it has a lease of this ID that has not run
// out; otherwise the error is [Leased]. It succeeds if the container is being removed already. The error is
// [AbsentContainer] if the container does not exist: an earlier attempt, or another client, may have removed
// it.
func (c *Client) DeleteContainer(ctx context.Context, name, leaseID string) error {
	ref := Ref{Container: name}
	opts := &container.DeleteOptions{AccessConditions: &container.AccessConditions{
		LeaseAccessConditions: &container.LeaseAccessConditions{LeaseID: to.Ptr(leaseID)},
	}}
	c.created.Delete(name)
	return c.do(ctx, call{op: "delete container", ref: ref, write: true}, func(ctx context.Context) error {
		_, err := c.container(ref).Delete(ctx, opts)
		if bloberror.HasCode(err, bloberror.ContainerBeingDeleted) {
			return nil
		}
		return err
	})
}
