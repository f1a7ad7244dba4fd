package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/emulator/schedule"
)

// create creates a blob in the container "plans", in one attempt.
func create(ctx context.Context, transport *emulator.Transport, name string) error {
	client, err := azblob.NewClientFromConnectionString(transport.Server().ConnectionString(), &azblob.ClientOptions{
		ClientOptions: policy.ClientOptions{Transport: transport, Retry: policy.RetryOptions{MaxRetries: -1}},
	})
	if err != nil {
		return err
	}
	_, err = client.ServiceClient().NewContainerClient("plans").NewBlockBlobClient(name).
		Upload(ctx, streaming.NopCloser(strings.NewReader("")), &blockblob.UploadOptions{
			AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}},
		})
	return err
}

// Two clients take a lock, and the schedule decides who is first. A test would wait with synctest.Wait.
func Example() {
	server := emulator.New(emulator.Options{})
	server.PutContainer("plans", nil)
	anna, bert := server.NamedTransport("anna"), server.NamedTransport("bert")
	s := schedule.New(anna, bert)

	var clients sync.WaitGroup
	for _, transport := range []*emulator.Transport{anna, bert} {
		clients.Go(func() { _ = create(context.Background(), transport, "lock") })
	}
	for len(s.Held()) < 2 {
		runtime.Gosched()
	}
	for _, turn := range slices.Backward(s.Held()) { // sorted by client
		r, _ := turn.Grant()
		fmt.Println(r.Client, r)
	}
	clients.Wait()
	// Output:
	// bert PutBlob plans/lock If-None-Match:* -> 201
	// anna PutBlob plans/lock If-None-Match:* -> 409 BlobAlreadyExists
}

func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{})
		server.PutContainer("plans", nil)
		first, second := server.NamedTransport("first"), server.NamedTransport("second")
		s := schedule.New(first, second)
		var clients sync.WaitGroup
		for _, transport := range []*emulator.Transport{second, first} {
			for i := 2; i >= 0; i-- {
				clients.Go(func() {
					if err := create(t.Context(), transport, transport.Name()+strconv.Itoa(i)); err != nil {
						t.Error(err)
					}
				})
			}
		}
		synctest.Wait()
		var held []string
		for _, turn := range s.Held() {
			held = append(held, turn.Request.Blob)
		}
		if want := []string{"first0", "first1", "first2", "second0", "second1", "second2"}; !slices.Equal(held, want) {
			t.Errorf("Held returned %q, want %q", held, want)
		}
		if n := server.Len("plans"); n != 0 {
			t.Errorf("%d requests took effect before they were granted", n)
		}
		for _, i := range []int{5, 0, 3, 0, 1, 0} {
			turn := s.Held()[i]
			r, ok := turn.Grant()
			if log := server.Requests(); !ok || r.Status != 201 || r.Client != turn.Request.Client || r.N != log[len(log)-1].N {
				t.Errorf("Grant of %v returned %v, %v", turn.Request, r, ok)
			}
			if _, again := turn.Grant(); again {
				t.Error("a request was granted twice")
			}
			synctest.Wait()
		}
		clients.Wait()
		var order []string
		for _, r := range server.Requests() {
			order = append(order, r.Blob)
		}
		if want := []string{"second2", "first0", "second1", "first1", "second0", "first2"}; !slices.Equal(order, want) {
			t.Errorf("the order was %q, want %q", order, want)
		}
	})
}

// TestCancelledRequest cancels a request that is held, and crashes the client of another one as it is
// granted.
func TestCancelledRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{})
		server.PutContainer("plans", nil)
		transport := server.Transport()
		s := schedule.New(transport)
		ctx, cancel := context.WithCancel(t.Context())
		var cancelled, crashed error
		var clients sync.WaitGroup
		clients.Go(func() { cancelled = create(ctx, transport, "cancelled") })
		clients.Go(func() { crashed = create(t.Context(), transport, "crashed") })
		synctest.Wait()
		held := s.Held()
		cancel()
		synctest.Wait()
		if _, ok := held[0].Grant(); ok {
			t.Error("a cancelled request was granted")
		}
		transport.Inject(emulator.On().Do(emulator.Crash().Applied()))
		r, ok := held[1].Grant()
		clients.Wait()
		if !ok || r.Status != 201 || !errors.Is(crashed, emulator.ErrCrashed) || !errors.Is(cancelled, context.Canceled) {
			t.Errorf("Grant returned %v, %v; the clients got %v and %v", r, ok, crashed, cancelled)
		}
		if _, stored := server.Blob("plans", "crashed"); !stored || server.Len("plans") != 1 {
			t.Errorf("%d blobs are stored, want the one of the crashed client", server.Len("plans"))
		}
		if len(s.Held()) > 0 {
			t.Error("requests are still held")
		}
	})
}
