package costs_test

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// TestStoredBytes counts what is stored of a plan, with names and metadata: after its Create, and at its end,
// with one attempt of each action. docs/scale.md has the figures.
func TestStoredBytes(t *testing.T) {
	for _, size := range sizes {
		server := emulator.New(emulator.Options{NoLog: true})
		v, err := azblob.NewFromConnectionString(t.Context(), "stored", server.ConnectionString(), plantest.Register(), azblob.Options{ClientOptions: policy.ClientOptions{Transport: server.Transport()}})
		vaulttest.Must(t, err)
		stored := func() (bodies, all int) {
			for c := range server.Containers() {
				for b := range server.Blobs(c) {
					bodies += len(b.Body)
					all += len(b.Name) + len(b.Body)
					for name, value := range b.Metadata {
						all += len(name) + len(value)
					}
				}
			}
			return bodies, all
		}
		plan := size.plan()
		vaulttest.Must(t, v.Create(t.Context(), plan))
		bodies, all := stored()
		start := time.Date(2026, 11, 20, 8, 30, 0, 123456789, time.UTC)
		for o := range workflow.Walk(plan) {
			*o.Header().State = workflow.State{Status: workflow.Completed, Start: start, End: start.Add(time.Minute), ETag: o.Header().State.ETag}
			switch o := o.(type) {
			case *workflow.Plan:
				o.State.Status = workflow.Running
			case *workflow.Action:
				o.Attempts = []workflow.Attempt{{Resp: &plantest.Response{Text: o.Name, OK: true}, Start: start, End: start.Add(time.Minute)}}
			}
			vaulttest.Must(t, storage.Update(t.Context(), v, o))
		}
		plan.State.Status = workflow.Completed
		vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
		lastBodies, last := stored()
		t.Logf("%s: %d bytes at Create, %d with names and metadata; at the end %d and %d", size.name, bodies, all, lastBodies, last)
		if last > 3*all {
			t.Errorf("%s: a plan grows from %d to %d bytes", size.name, all, last)
		}
	}
}
