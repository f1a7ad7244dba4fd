package sample_test

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/sample"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/workflow"
)

// TestSample stores the plans, and checks that there is something to see of each kind.
func TestSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New()
		v, err := azblob.NewFromConnectionString(t.Context(), "sample", server.ConnectionString(), nil, azblob.WithTransport(server.Transport()))
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		n, err := sample.Store(t.Context(), v, now)
		if err != nil {
			t.Fatal(err)
		}
		statuses := map[workflow.Status]int{}
		for _, p := range sample.At(now) {
			statuses[p.State.Status]++
			if p.State.End.After(now) || p.State.Status == workflow.Running && p.State.Start.IsZero() {
				t.Errorf("%s: %+v", p.Name, p.State)
			}
		}
		if want := map[workflow.Status]int{workflow.NotStarted: 1, workflow.Running: 4, workflow.Completed: 24, workflow.Failed: 1, workflow.Stopped: 1}; !reflect.DeepEqual(statuses, want) || n != 31 {
			t.Errorf("%d plans: %v", n, statuses)
		}
		if !reflect.DeepEqual(sample.At(now), sample.At(now)) {
			t.Error("the same time gives different plans")
		}
		time.Sleep(2 * time.Second) // node b falls silent
		seen, err := fleet.Inspect(t.Context(), v, fleet.InspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stuck := map[string]fleet.Condition{}
		for _, p := range seen.Plans {
			if p.Stuck {
				stuck[p.Name] = p.Condition
			}
		}
		if want := map[string]fleet.Condition{
			"migrate invoices": fleet.Working, "release checkout 2.0.1": fleet.Orphaned, "rotate certificates": fleet.Waiting,
		}; !reflect.DeepEqual(stuck, want) || len(seen.Plans) != 5 || seen.Alive() != 1 || len(seen.Members) != 2 {
			t.Errorf("stuck are %v of %d plans; %d of %d members are alive", stuck, len(seen.Plans), seen.Alive(), len(seen.Members))
		}
		report, err := v.Check(t.Context(), azblob.CheckOptions{})
		if err != nil || len(report.Problems) > 0 {
			t.Errorf("%+v, %v", report, err)
		}
	})
}
