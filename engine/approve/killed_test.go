package approve_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/engine/approve"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// TestKilledAnywhere kills the engine of a release before and after each of its calls of the vault, with another engine in the
// fleet. The release goes on, and says who approved it.
func TestKilledAnywhere(t *testing.T) {
	efforttest.NotShort(t, "it plays hours of a fleet again and again")
	step := efforttest.Pick(12, 12, 1)
	calls := killed(t, 0, false)
	for n := 1; n <= calls; n += step {
		for _, after := range []bool{false, true} {
			killed(t, n, after)
		}
	}
}

// killed plays a release, and kills its first engine at a call of the vault, if that is not 0. It returns how many there were.
func killed(t *testing.T, at int, after bool) (calls int) {
	synctest.Test(t, func(t *testing.T) {
		deploys := 0
		pass := engine.Task("build", func(_ context.Context, _ engine.Call, v string) (string, error) { return v, nil })
		deploy := engine.Task("deploy", func(_ context.Context, _ engine.Call, v string) (string, error) { deploys++; return v, nil })
		approval := approve.Task("approval", approve.Options{})
		store, reg := memvault.NewStore(), registry.Must(pass, deploy, approval)
		open := func() *processtest.Process { return processtest.New(store.Open(reg, memvault.Options{})) }
		people, first := open(), open()
		var counted atomic.Int64
		first.On(func(_ context.Context, c processtest.Call, do func() error) error {
			if c.Op == "Roster" || c.Op == "RenewMember" || c.Op == "Search" {
				return do()
			}
			here := counted.Add(1) == int64(at)
			if here && !after {
				first.Kill()
			}
			err := do()
			if here && after {
				first.Kill()
			}
			return err
		})
		plan := release(pass, deploy, approval, "v2")
		must(t, people.Create(t.Context(), plan))
		gate := plan.Blocks[0].Sequences[0].Actions[1]
		ctx, cancel := context.WithCancel(t.Context())
		quiet := engine.Observer{Problem: func(context.Context, engine.ProblemEvent) {}, Hindered: func(context.Context, engine.HinderedEvent) {}}
		ended := make(chan error, 2)
		for i, v := range []*processtest.Process{first, open()} {
			e, err := engine.New(v, engine.Options{Fleet: &fleet.Options{}, NoRetention: true, Observer: quiet})
			must(t, err)
			time.AfterFunc(time.Duration(i)*time.Minute, func() { ended <- e.Run(ctx) })
		}
		for _, who := range []string{"ana", "ben"} {
			time.Sleep(20 * time.Minute)
			_, err := approve.Approve(t.Context(), people, plan.ID, gate.ID, workflow.Attribution{By: who, Why: "because"})
			must(t, err)
		}
		time.Sleep(5 * time.Minute)
		end, err := people.Read(t.Context(), plan.ID)
		must(t, err)
		attempts := end.Blocks[0].Sequences[0].Actions[1].Attempts
		resp, _ := attempts[len(attempts)-1].Resp.(approve.Response)
		if end.State.Status != workflow.Completed || len(resp.By) != 2 || deploys == 0 {
			t.Errorf("killed at call %d (after: %v): %s, %+v, %d deploys", at, after, end.State.Status, resp, deploys)
		}
		time.Sleep(4 * time.Hour)
		if r, err := people.Roster(t.Context()); err != nil || len(r.Notes) > 0 {
			t.Errorf("killed at call %d (after: %v): hours later there are %+v, %v", at, after, r.Notes, err)
		}
		cancel()
		<-ended
		<-ended
		calls = int(counted.Load())
	})
	return calls
}
