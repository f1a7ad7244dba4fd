package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
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
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/planvault/azblob/emulator"
)

// Two clients take a lock, and the schedule says who comes first. A test waits with synctest.Wait until both are held.
func ExampleSchedule() {
	server := emulator.New()
	server.PutContainer("locks", nil)
	anna, bert := server.NamedTransport("anna"), server.NamedTransport("bert")
	schedule := emulator.NewSchedule(anna, bert)

	var clients sync.WaitGroup
	for _, transport := range []*emulator.Transport{anna, bert} {
		clients.Go(func() {
			client, err := azblob.NewClientFromConnectionString(server.ConnectionString(), &azblob.ClientOptions{
				ClientOptions: policy.ClientOptions{Transport: transport},
			})
			if err != nil {
				fmt.Println(err)
				return
			}
			lock := client.ServiceClient().NewContainerClient("locks").NewBlockBlobClient("lock")
			_, _ = lock.Upload(context.Background(), streaming.NopCloser(strings.NewReader("")), &blockblob.UploadOptions{
				AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}},
			})
		})
	}
	for len(schedule.Held()) < 2 {
		runtime.Gosched()
	}
	for _, turn := range slices.Backward(schedule.Held()) { // they are sorted by client
		r, _ := turn.Grant()
		fmt.Println(r.Client, r)
	}
	clients.Wait()
	// Output:
	// bert PutBlob locks/lock If-None-Match:* -> 201
	// anna PutBlob locks/lock If-None-Match:* -> 409 BlobAlreadyExists
}

func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := emulator.New()
		first, second := s.NamedTransport("first"), s.NamedTransport("second")
		clients := []*container.Client{plans(t, second), plans(t, first)}
		schedule := emulator.NewSchedule(first, second)
		var all sync.WaitGroup
		for _, c := range clients {
			for i := 2; i >= 0; i-- {
				all.Go(func() { mustUpload(t, c, fmt.Sprint(i), "", nil) })
			}
		}
		synctest.Wait()
		var held []string
		for _, turn := range schedule.Held() {
			held = append(held, turn.Request.Client+" "+turn.Request.Blob)
		}
		if want := []string{"first 0", "first 1", "first 2", "second 0", "second 1", "second 2"}; !slices.Equal(held, want) {
			t.Errorf("held are %q, want %q", held, want)
		}
		if n := s.Len("plans"); n != 0 {
			t.Errorf("%d requests took effect before their turn", n)
		}
		s.ResetRequests()
		order := []int{5, 0, 3, 0, 1, 0}
		for _, i := range order {
			turn := schedule.Held()[i]
			r, ok := turn.Grant()
			if log := s.Requests(); !ok || r.Status != 201 || r.Client != turn.Request.Client || r.N != log[len(log)-1].N {
				t.Errorf("%v became %v %v", turn.Request, ok, r)
			}
			if _, again := turn.Grant(); again {
				t.Error("a request had two turns")
			}
			synctest.Wait()
		}
		all.Wait()
		var took []string
		for _, r := range s.Requests() {
			took = append(took, r.Client+" "+r.Blob)
		}
		if want := []string{"second 2", "first 0", "second 1", "first 1", "second 0", "first 2"}; !slices.Equal(took, want) {
			t.Errorf("the order was %q, want %q", took, want)
		}
	})
}

// TestScheduleOfOneThatGivesUp ends the context of a request that waits, and crashes a client at its turn.
func TestScheduleOfOneThatGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := emulator.New()
		tr := s.Transport()
		c := plans(t, tr)
		schedule := emulator.NewSchedule(tr)
		ctx, cancel := context.WithCancel(t.Context())
		var cancelled, crashed error
		var all sync.WaitGroup
		all.Go(func() { _, cancelled = upload(ctx, c, "cancelled", "", nil) })
		all.Go(func() { _, crashed = upload(t.Context(), c, "crashed", "", nil) })
		synctest.Wait()
		held := schedule.Held()
		cancel()
		synctest.Wait()
		if _, ok := held[0].Grant(); ok {
			t.Error("a request that had given up had its turn")
		}
		tr.Inject(emulator.On().Do(emulator.Crash().Applied()))
		r, ok := held[1].Grant()
		all.Wait()
		if !ok || r.Status != 201 || !errors.Is(crashed, emulator.ErrCrashed) || !errors.Is(cancelled, context.Canceled) {
			t.Errorf("crashed: %v %v %v; cancelled: %v", ok, r, crashed, cancelled)
		}
		if _, there := s.Blob("plans", "crashed"); !there || s.Len("plans") != 1 {
			t.Errorf("%d are stored", s.Len("plans"))
		}
		if len(schedule.Held()) > 0 {
			t.Error("something is held still")
		}
	})
}
