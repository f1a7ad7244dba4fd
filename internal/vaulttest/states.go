package vaulttest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/workflow"
)

// World is a service and a way to open vaults on it.
type World struct {
	Server *emulator.Server
	Open   func(t *testing.T, server *emulator.Server, opts ...azblob.Options) *azblob.Vault
	Skew   *atomic.Int64 // nanoseconds by which the service's clock is ahead; nil for a clock that a test doesn't change
	// Pairs says that the call sends two requests at once, of which one may decide while the process dies at the other.
	Pairs bool
}

// WorldOf returns a world whose vaults are opened with [OnEmulator].
func WorldOf(server *emulator.Server) World { return World{Server: server, Open: OnEmulator} }

// Vault opens a vault. Each process has its own.
func (w World) Vault(t *testing.T, opts ...azblob.Options) *azblob.Vault {
	t.Helper()
	return w.Open(t, w.Server, opts...)
}

// Clone returns the world with a copy of the store.
func (w World) Clone() World {
	w.Server = w.Server.Clone()
	return w
}

// MayDie makes a call on a vault whose process dies at the request that the rule matches, before the request
// takes effect. It sends one request at a time, so that the remains are always the same.
func (w World) MayDie(t *testing.T, at *emulator.Rule, do func(v *azblob.Vault), opts ...azblob.Options) (died bool) {
	t.Helper()
	transport := w.Server.Transport()
	transport.Inject(at.Do(emulator.Crash()))
	opts = append(opts, azblob.Options{ClientOptions: policy.ClientOptions{Transport: transport}, Concurrency: 1, Backoff: azblob.Backoff{MaxElapsed: time.Second}})
	do(w.Vault(t, opts...))
	return transport.Crashed()
}

// dies is [World.MayDie] for a process that must die.
func (w World) dies(t *testing.T, at *emulator.Rule, do func(v *azblob.Vault), opts ...azblob.Options) {
	t.Helper()
	if !w.MayDie(t, at, do, opts...) {
		t.Fatalf("the process did not die: %v", at)
	}
}

// Dies is [World.MayDie] for a process on the emulator that must die.
func Dies(t *testing.T, server *emulator.Server, at *emulator.Rule, do func(v *azblob.Vault), opts ...azblob.Options) {
	t.Helper()
	WorldOf(server).dies(t, at, do, opts...)
}

// Dying makes a call in a process that dies at its nth request. It reports whether there was an nth request.
func (w World) Dying(t *testing.T, n int, crash emulator.Effect, do func(ctx context.Context, t *testing.T, v *azblob.Vault) error) (died bool, err error) {
	t.Helper()
	transport := w.Server.Transport()
	transport.Inject(emulator.On().Nth(n).Do(crash))
	ctx := Within(t, 5*time.Minute)
	// A dead process does not retry.
	err = do(ctx, t, w.Vault(t, azblob.Options{ClientOptions: policy.ClientOptions{Transport: transport}, Backoff: azblob.Backoff{InitialInterval: 20 * time.Minute}}))
	if died = transport.Crashed(); died && err == nil && !w.Pairs {
		t.Error("the call of a process that died returned nil")
	}
	return died, err
}

// Crashes are the ways to die at a request: before it takes effect, and after.
var Crashes = []emulator.Effect{emulator.Crash(), emulator.Crash().Applied()}

// NthRequest is the request of a call before which something else happens.
type NthRequest struct {
	N    int
	rule *emulator.Rule
}

// Vault opens a vault that sends one request at a time, and calls do before the nth. The vault's goroutines call
// do, so it must not end the test.
func (r *NthRequest) Vault(t *testing.T, server *emulator.Server, do func()) *azblob.Vault {
	t.Helper()
	r.rule = emulator.On().Nth(r.N).Do(emulator.Before(do))
	return OnEmulator(t, server, Meets(server, r.rule), azblob.Options{Concurrency: 1})
}

// Came reports whether there was an nth request.
func (r *NthRequest) Came() bool { return r.rule.Fired() > 0 }

// BeforeEach runs a test for each request of the call that it makes, and once more without anything before a
// request.
func BeforeEach(t *testing.T, name string, test func(t *testing.T, server *emulator.Server, at *NthRequest)) {
	t.Helper()
	for n := 1; ; n++ {
		at := &NthRequest{N: n}
		InBubble(t, fmt.Sprintf("%s, at %d", name, n), func(t *testing.T, server *emulator.Server) { test(t, server, at) })
		if t.Failed() || !at.Came() {
			return
		}
	}
}

// State brings a store into a state. It returns the plan concerned, and the plan that readers find.
type State func(t *testing.T, w World, plan *workflow.Plan) (about, shown *workflow.Plan)

// NotStarted leaves a plan that was created.
func NotStarted(t *testing.T, w World, plan *workflow.Plan) (about, shown *workflow.Plan) {
	t.Helper()
	plan = Created(t, w.Vault(t), plan)
	return plan, plan
}

// AtWork leaves a running plan whose sub-objects have finished.
func AtWork(t *testing.T, w World, plan *workflow.Plan) (about, shown *workflow.Plan) {
	t.Helper()
	before, _ := Running(t, w.Vault(t), plan)
	return before, before
}

// Final leaves a plan that has ended.
func Final(t *testing.T, w World, plan *workflow.Plan) (about, shown *workflow.Plan) {
	t.Helper()
	v := w.Vault(t)
	_, after := Running(t, v, plan)
	Must(t, v.UpdatePlan(t.Context(), after))
	return after, after
}

// CreateBroken leaves the remains of a Create that dies before its nth write to a path.
func CreateBroken(path string, n int) State {
	return func(t *testing.T, w World, plan *workflow.Plan) (about, shown *workflow.Plan) {
		t.Helper()
		w.dies(t, emulator.On(emulator.PutBlob).Path(path).Nth(n), func(v *azblob.Vault) { _ = v.Create(t.Context(), plan) })
		return plan, nil
	}
}

// CompletionBroken leaves the remains of a completion that dies before a request, with its entry written.
func CompletionBroken(op emulator.Op, path string) State {
	return func(t *testing.T, w World, plan *workflow.Plan) (about, shown *workflow.Plan) {
		t.Helper()
		_, after := Running(t, w.Vault(t), plan)
		w.dies(t, emulator.On(op).Path(path), func(v *azblob.Vault) {
			dying := *after
			_ = v.UpdatePlan(t.Context(), &dying)
		})
		return after, after
	}
}

// DeleteBroken leaves the remains of a Delete of a running plan that dies before a request.
func DeleteBroken(op emulator.Op, path string) State {
	return deleteBroken(CreatedRunning, op, path)
}

func deleteBroken(create func(*testing.T, *azblob.Vault, *workflow.Plan) *workflow.Plan, op emulator.Op, path string) State {
	return func(t *testing.T, w World, plan *workflow.Plan) (about, shown *workflow.Plan) {
		t.Helper()
		before := create(t, w.Vault(t), plan)
		w.dies(t, emulator.On(op).Path(path), func(v *azblob.Vault) { _ = v.Delete(t.Context(), before.ID) })
		exists, err := w.Vault(t).Exists(t.Context(), before.ID)
		Must(t, err)
		if !exists {
			return before, nil
		}
		return before, before
	}
}

// Wreck makes a store with one plan in each state that a crash can leave. It returns what Recovery is to find of
// them, and the plans that are whole.
func Wreck(t *testing.T, server *emulator.Server) (found map[uuid.UUID]string, whole []*workflow.Plan) {
	t.Helper()
	found = map[uuid.UUID]string{}
	for _, remains := range []struct {
		in    State
		found string
	}{
		{CreateBroken("plans/*-entry.json", 1), "markers without a plan"},
		{CreateBroken("actions/", 3), "an entry without object"},
		{CreateBroken("plans/*-object.json", 1), "an entry without object"},
		{deleteBroken(Created, emulator.BatchDelete, ""), "an entry without object"},
		{deleteBroken(Created, emulator.BatchDelete, "open/"), "markers without a plan"},
		{deleteBroken(Created, emulator.DeleteBlob, "plans/*-object.json"), "a delete marker on a whole plan"},
		{CompletionBroken(emulator.PutBlob, "plans/*-object.json"), "a final entry beside an object that is not"},
		{CompletionBroken(emulator.DeleteBlob, "open/"), "a marker on a final plan"},
		{NotStarted, ""},
		{AtWork, ""},
		{Final, ""},
	} {
		plan, shown := remains.in(t, WorldOf(server), EachKind())
		if remains.found != "" {
			found[plan.ID] = remains.found
		}
		if shown != nil {
			whole = append(whole, shown)
		}
	}
	return found, whole
}

// RewriteStatus changes the status of a plan in one of its two blobs.
func RewriteStatus(server *emulator.Server, container string, plan *workflow.Plan, role, status string) {
	b, _ := server.Blob(container, "plans/"+plan.ID.String()+"-"+role+".json")
	i := strings.LastIndex(string(b.Body), `"status":"Completed"`)
	b.Metadata["state"] = strings.Replace(b.Metadata["state"], "Completed", status, 1)
	server.Put(container, b.Name, []byte(string(b.Body[:i])+strings.Replace(string(b.Body[i:]), "Completed", status, 1)), b.Metadata)
}

// Damaged is a store with one plan that was damaged from outside.
type Damaged struct {
	*emulator.Server
	Container string
	Plan      *workflow.Plan
}

// Name returns the name of the plan's entry or object.
func (d Damaged) Name(role string) string {
	return "plans/" + d.Plan.ID.String() + "-" + role + ".json"
}

// Marker returns the name of the plan's marker.
func (d Damaged) Marker() string { return "open/" + d.Plan.ID.String() }

// Parts returns the names of the plan's sub-objects.
func (d Damaged) Parts() (names []string) {
	for b := range d.Blobs(d.Container) {
		if strings.Contains(b.Name, d.Plan.ID.String()+"/") {
			names = append(names, b.Name)
		}
	}
	return names
}

// Lose removes blobs of the plan's day.
func (d Damaged) Lose(names ...string) {
	for _, name := range names {
		d.Remove(d.Container, name)
	}
}

// Behead removes the entry of a plan, as somebody else than a vault may do.
func Behead(server *emulator.Server, plan *workflow.Plan) {
	for c := range server.Containers() {
		server.Remove(c, "plans/"+plan.ID.String()+"-entry.json")
	}
}

// Put puts plans like one that were created at these times into a store: only what listings and recovery look at. They
// are final, but for those whose numbers are of running ones. It returns their IDs.
func Put(t *testing.T, server *emulator.Server, like *workflow.Plan, times []time.Time, running func(i int) bool) (ids []uuid.UUID) {
	t.Helper()
	mould := emulator.New(emulator.Options{})
	v := OnEmulator(t, mould)
	plan := Created(t, v, like)
	metadata := map[bool]map[string]map[string]string{} // of entry and object, of running and final plans
	for _, status := range []workflow.Status{workflow.Running, workflow.Completed} {
		plan.State.Status = status
		Must(t, v.UpdatePlan(t.Context(), plan))
		metadata[status == workflow.Running] = map[string]map[string]string{}
		for c := range mould.Containers() {
			for _, tail := range []string{"-entry.json", "-object.json"} {
				b, _ := mould.Blob(c, "plans/"+plan.ID.String()+tail)
				metadata[status == workflow.Running][tail] = b.Metadata
			}
		}
	}
	last := ""
	for i, at := range times {
		id, container := workflow.NewV7At(at), ContainerOf(at.UTC())
		if container != last {
			server.PutContainer(container, map[string]string{"planvaultlayout": "1"})
			last = container
		}
		if running(i) {
			server.Put(container, "open/"+id.String(), nil, nil)
		}
		for tail, m := range metadata[running(i)] {
			m = maps.Clone(m)
			m["planid"] = id.String()
			server.Put(container, "plans/"+id.String()+tail, nil, m)
		}
		ids = append(ids, id)
	}
	return ids
}

// Fill puts n final plans into a store, at equal distances within the span before now, and k running ones
// evenly among them. It returns the IDs, oldest first.
func Fill(t *testing.T, server *emulator.Server, n, k int, span time.Duration) (ids, open []uuid.UUID) {
	t.Helper()
	var times []time.Time
	for i, now := 0, time.Now(); i < n; i++ {
		times = append(times, now.Add(-span+span/time.Duration(n)*time.Duration(i)))
	}
	running := func(i int) bool { return k > 0 && i%(n/k) == 0 && i/(n/k) < k }
	ids = Put(t, server, &workflow.Plan{Name: "one of many"}, times, running)
	for i, id := range ids {
		if running(i) {
			open = append(open, id)
		}
	}
	return ids, open
}

// PutDay makes the container of a day, as a vault does, with one blob.
func PutDay(server *emulator.Server, day time.Time) {
	server.PutContainer(ContainerOf(day), map[string]string{"planvaultlayout": "1"})
	server.Put(ContainerOf(day), "plans/of-this-day", nil, nil)
}

// ContainerOf returns the name of a day's container.
func ContainerOf(day time.Time) string { return "test-" + day.Format(time.DateOnly) }

// DaysAgo returns the start of a day.
func DaysAgo(n int) time.Time { return time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -n) }

// Thorough are the options of a Recovery that restores what was lost from outside.
var Thorough = azblob.RepairOptions{Thorough: true}

// DamagedOf returns a store that has one day, to damage one of its plans.
func DamagedOf(server *emulator.Server, plan *workflow.Plan) Damaged {
	d := Damaged{Server: server, Plan: plan}
	for d.Container = range server.Containers() {
	}
	return d
}
