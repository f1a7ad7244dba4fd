package logins_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// busy is the answer of a primary that is unavailable.
var busy = emulator.Answer(503, "ServerBusy")

// newGeo returns an account whose primary is in trouble while it is down.
func newGeo(trouble emulator.Effect, opts ...emulator.Option) *vaulttest.Geo {
	g := &vaulttest.Geo{Server: emulator.New(opts...)}
	g.Inject(emulator.On().Where(func(r emulator.Request) bool { return g.Down && !r.Secondary }).Do(trouble))
	return g
}

// reads are the methods that a secondary may answer, for a plan that exists.
func reads(id uuid.UUID) map[string]func(context.Context, *azblob.Vault) error {
	return map[string]func(context.Context, *azblob.Vault) error{
		"Exists": func(ctx context.Context, v *azblob.Vault) error {
			found, err := v.Exists(ctx, id)
			if err == nil && !found {
				err = errors.New("Exists says that the plan does not exist")
			}
			return err
		},
		"Read": func(ctx context.Context, v *azblob.Vault) error { _, err := v.Read(ctx, id); return err },
		"List": func(ctx context.Context, v *azblob.Vault) error { return found(id)(storage.Collect(v.List(ctx, 0))) },
		"Search": func(ctx context.Context, v *azblob.Vault) error {
			return found(id)(storage.Collect(v.Search(ctx, storage.Filters{ByIDs: []uuid.UUID{id}})))
		},
		"Search for open plans": func(ctx context.Context, v *azblob.Vault) error {
			return found(id)(storage.Collect(v.Search(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted}})))
		},
	}
}

func found(id uuid.UUID) func([]storage.ListResult, error) error {
	return func(list []storage.ListResult, err error) error {
		if err == nil && !slices.ContainsFunc(list, func(r storage.ListResult) bool { return r.ID == id }) {
			err = errors.New("the plan is not listed")
		}
		return err
	}
}

// TestSecondaryAnswersReads reads while the primary is unavailable or does not answer, with and without AcceptStale.
func TestSecondaryAnswersReads(t *testing.T) {
	for _, trouble := range []emulator.Effect{busy, emulator.Silence()} {
		synctest.Test(t, func(t *testing.T) { answersReads(t, newGeo(trouble)) })
	}
}

func answersReads(t *testing.T, g *vaulttest.Geo) {
	plan := vaulttest.Created(t, g.Open(t), plantest.Small())
	g.Replicate()
	synced := time.Now()
	time.Sleep(time.Hour)
	late := vaulttest.Created(t, g.Open(t), plantest.Small())
	for name, read := range reads(plan.ID) {
		for _, deadline := range []time.Duration{5 * time.Second, time.Minute} {
			g.Down = true
			g.At()
			v := g.Open(t)
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			staleCtx, stale := azblob.AcceptStale(ctx)
			started := time.Now()
			err := read(staleCtx, v)
			if err != nil || !stale.Stale() || !stale.Synced().Equal(synced) {
				t.Errorf("%s: %v, stale %t, synced %v, want %v", name, err, stale.Stale(), stale.Synced(), synced)
			}
			if took := time.Since(started); took > min(deadline/2, 10*time.Second) {
				t.Errorf("%s: it took %v of %v", name, took, deadline)
			}
			cancel()
			g.At()
			ctx, cancel = context.WithTimeout(t.Context(), deadline)
			if err := read(ctx, v); !errors.Is(err, storage.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s without AcceptStale: %v", name, err)
			}
			cancel()
			if _, n := g.At(); n != 0 {
				t.Errorf("%s without AcceptStale: %d requests to the secondary", name, n)
			}
			g.Down = false
		}
	}
	// The secondary does not have a later plan, which does not mean that there is none.
	for name, read := range reads(late.ID) {
		if strings.HasPrefix(name, "List") || strings.HasPrefix(name, "Search") {
			continue // what a listing lacks is nowhere to be seen
		}
		g.Down = true
		ctx, _ := azblob.AcceptStale(t.Context())
		if err := read(ctx, g.Open(t)); !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrNotFound) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s of a plan that the secondary lacks: %v", name, err)
		}
		g.Down = false
	}
}

// TestSecondaryIsForReadsAlone makes every other call with a context that accepts stale answers.
func TestSecondaryIsForReadsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGeo(busy)
		v := g.Open(t, azblob.WithRetry(azblob.Retry{MaxElapsed: time.Minute}))
		plan := vaulttest.Created(t, v, plantest.Small())
		member := storage.Member{ID: workflow.NewV7(), Name: "n", TTL: time.Minute, Started: time.Now()}
		if _, err := v.AddMember(t.Context(), member); err != nil {
			t.Fatal(err)
		}
		g.Replicate()
		g.Down = true
		g.At()
		ctx, stale := azblob.AcceptStale(t.Context())
		plan.State.Status, plan.State.Start = workflow.Running, time.Now()
		_, checkErr := v.Check(ctx, azblob.CheckOptions{})
		_, findErr := v.FindMember(ctx, member.ID)
		_, rosterErr := v.Roster(ctx)
		_, pingErr := v.Ping(ctx)
		_, recoverErr := v.Repair(ctx, azblob.RepairOptions{DryRun: true})
		for i, err := range []error{
			v.Create(ctx, plantest.Small()), v.UpdatePlan(ctx, plan), v.UpdateBlock(ctx, plan.Blocks[0]), v.Delete(ctx, plan.ID), v.Recovery(ctx),
			v.RequestStop(ctx, plan.ID, workflow.Deed{}), checkErr, findErr, rosterErr, pingErr, recoverErr,
		} {
			if !errors.Is(err, storage.ErrUnavailable) && !errors.Is(err, storage.ErrUnknown) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if _, n := g.At(); n != 0 || stale.Stale() {
			t.Errorf("%d requests went to the secondary", n)
		}
	})
}

// TestSecondaryCost counts requests: while the primary works there are none at the secondary, and while it is
// unavailable there are hardly any at the primary.
func TestSecondaryCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGeo(busy)
		v, plain := g.Open(t), vaulttest.OnEmulator(t, g.Server)
		plan := vaulttest.Created(t, v, plantest.Small())
		g.Replicate()
		ctx, stale := azblob.AcceptStale(t.Context())
		for name, read := range reads(plan.ID) {
			g.At()
			vaulttest.Must(t, read(t.Context(), plain))
			want, _ := g.At()
			vaulttest.Must(t, read(ctx, v))
			if n, second := g.At(); n != want || second != 0 || stale.Stale() {
				t.Errorf("%s: %d requests to the primary, want %d; %d to the secondary", name, n, want, second)
			}
		}
		_, err := v.Read(ctx, workflow.NewV7())
		vaulttest.Fails(t, err, storage.ErrNotFound)

		exists := func(wantStale bool) (primary, secondary int, took time.Duration) {
			t.Helper()
			g.At()
			ctx, stale := azblob.AcceptStale(t.Context())
			started := time.Now()
			if found, err := v.Exists(ctx, plan.ID); err != nil || !found || stale.Stale() != wantStale {
				t.Errorf("%t, %v, stale %t", found, err, stale.Stale())
			}
			took = time.Since(started)
			primary, secondary = g.At()
			return primary, secondary, took
		}
		g.Down = true
		failed := time.Now()
		if n, second, took := exists(true); n < 2 || second != 2 || took > 10*time.Second { // the time of the last sync, and the blob
			t.Errorf("the first read: %d and %d requests, %v", n, second, took)
		}
		failed = failed.Add(time.Since(failed))
		for time.Since(failed) < 29*time.Second {
			if n, second, took := exists(true); n != 0 || second != 1 || took != 0 {
				t.Errorf("%v later: %d and %d requests, %v", time.Since(failed), n, second, took)
			}
			time.Sleep(5 * time.Second)
		}
		// The primary has rested. One read tries it; the others don't wait for that.
		time.Sleep(time.Second)
		done := make(chan int)
		go func() { n, _, _ := exists(true); done <- n }()
		synctest.Wait()
		g.At()
		if n, second, took := exists(true); n != 0 || second != 2 || took != 0 { // it asks for the time of the last sync again
			t.Errorf("beside the read that tries the primary: %d and %d requests, %v", n, second, took)
		}
		<-done
		// It works again, and the first read that tries it ends the outage for all.
		g.Down = false
		if n, _, _ := exists(true); n != 0 {
			t.Errorf("%d requests to a primary that rests", n)
		}
		time.Sleep(30 * time.Second)
		for range 3 {
			if n, second, _ := exists(false); n != 1 || second != 0 {
				t.Errorf("after the outage: %d and %d requests", n, second)
			}
		}
	})
}

// TestListFailsOver lists and counts many plans while the primary becomes unavailable between two pages: each plan is
// yielded once.
func TestListFailsOver(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	lists := func(ctx context.Context, v *azblob.Vault, want []uuid.UUID) error {
		got, err := storage.Collect(v.List(ctx, 0))
		if err == nil && !slices.Equal(vaulttest.IDs(got), want) {
			err = fmt.Errorf("got %v, want %v", vaulttest.IDs(got), want)
		}
		return err
	}
	counts := func(statuses ...workflow.Status) func(context.Context, *azblob.Vault, []uuid.UUID) error {
		return func(ctx context.Context, v *azblob.Vault, want []uuid.UUID) error {
			n, err := v.Count(ctx, storage.Filters{ByStatus: statuses})
			if err == nil && int(n) != len(want) {
				err = fmt.Errorf("counted %d plans, want %d", n, len(want))
			}
			return err
		}
	}
	calls := []func(context.Context, *azblob.Vault, []uuid.UUID) error{lists, counts(), counts(workflow.NotStarted), counts(workflow.NotStarted, workflow.Failed)}
	for i, call := range calls {
		for pages := range 6 {
			synctest.Test(t, func(t *testing.T) {
				g := &vaulttest.Geo{Server: emulator.New(emulator.WithPageLimit(3))}
				v := g.Open(t)
				var want []uuid.UUID
				for i := range 9 {
					plan := plantest.Small()
					plan.ID = workflow.NewV7At(time.Now().Add(-time.Duration(i) * 5 * time.Hour))
					if i%4 == 3 {
						plan.Descr = strings.Repeat("long ", 3000)
					}
					want = append(want, vaulttest.Created(t, v, plan).ID)
				}
				g.Replicate()
				g.Inject(emulator.On(emulator.ListBlobs, emulator.GetBlob).Where(func(r emulator.Request) bool { return !r.Secondary }).Range(pages+1, 1<<30).Do(emulator.Answer(503, "ServerBusy")))
				ctx, stale := azblob.AcceptStale(t.Context())
				if err := call(ctx, v, want); err != nil || !stale.Stale() && (i == 0 || pages == 0) {
					t.Errorf("call %d, %d pages: %v, stale %t", i, pages, err, stale.Stale())
				}
			})
		}
	}
}

// TestSecondaryWithLogins reads from the secondary with logins that may not ask for the time of the last
// sync, and through hosts of its own.
func TestSecondaryWithLogins(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for name, test := range map[string]struct {
		open      opener
		secondary string
		host      string
		synced    bool
	}{
		"key": {byString((*emulator.Server).ConnectionString), "", "blob.emulator.invalid", true},
		"named in a string": {byString(func(s *emulator.Server) string {
			return s.ConnectionString() + "BlobSecondaryEndpoint=http://second.invalid/devstoreaccount1-secondary"
		}), "", "second.invalid", true},
		"token":              {byToken(emulator.Reader, nil), "", "devstoreaccount1-secondary.blob.core.windows.net", false},
		"token, by endpoint": {byToken(emulator.Reader, nil), "https://devstoreaccount1-secondary.privatelink.example/", "devstoreaccount1-secondary.privatelink.example", false},
		"account SAS":        {byAccountSAS(hostStyle, allowed(emulator.Permissions{Allowed: "rl"})), "", "devstoreaccount1-secondary.blob.core.windows.net", true},
		"SAS of objects":     {byAccountSAS(hostStyle, allowed(emulator.Permissions{Allowed: "r", Types: "o"})), "", "devstoreaccount1-secondary.blob.core.windows.net", false},
		"container SAS":      {byContainerSAS("r"), "", "devstoreaccount1-secondary.blob.core.windows.net", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := emulator.New(emulator.WithTokens(tenant))
			plan := vaulttest.Created(t, vaulttest.Signing(t, server), plantest.Small())
			server.Replicate()
			server.Inject(emulator.On().Where(func(r emulator.Request) bool { return !r.Secondary }).Do(emulator.Answer(503, "ServerBusy")))
			transport := &recordHosts{Transporter: server.Transport()}
			v, err := test.open(t.Context(), server, "test-"+workflow.Time(plan.ID).Format(time.DateOnly), azblob.WithTransport(transport), azblob.WithSecondary(test.secondary), azblob.WithConcurrency(1))
			vaulttest.Must(t, err)
			ctx, stale := azblob.AcceptStale(t.Context())
			if _, err := v.Read(ctx, plan.ID); err != nil || !stale.Stale() || stale.Synced().IsZero() == test.synced {
				t.Errorf("%s: %v, stale %t, synced %v", name, err, stale.Stale(), stale.Synced())
			}
			if last := transport.urls[len(transport.urls)-1]; !strings.Contains(last, "//"+test.host+"/") {
				t.Errorf("%s: the last request went to %s, not to %s", name, last, test.host)
			}
		})
	}
	vaulttest.Fails(t, vaulttest.ErrOf(azblob.New(t.Context(), "test", hostStyle, vaulttest.Token{}, nil, azblob.WithSecondary("http://a.example"))), storage.ErrInvalid)
}

// TestSecondaryWhenTheContextEnds ends a context while the secondary has answered one request of a Read with
// 404, and another one not at all. The secondary may lag behind, so that is no reason for ErrNotFound.
func TestSecondaryWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGeo(busy, emulator.WithLatency(100*time.Millisecond)) // so that requests are under way at once
		g.Replicate()
		v := g.Open(t)
		plan := vaulttest.Created(t, v, plantest.Small())
		g.Inject(emulator.On().Path("plans/*-object.json").Where(func(r emulator.Request) bool { return r.Secondary }).Do(emulator.Silence()))
		g.Down = true
		ctx, _ := azblob.AcceptStale(t.Context())
		_, _ = v.Exists(ctx, plan.ID) // from now on the primary rests
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Second, cancel)
		_, err := v.Read(ctx, plan.ID)
		if !errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrCorrupt) {
			t.Error(err)
		}
	})
}

// TestSecondaryFailsWhileThePrimaryReturns reads at a secondary that is silent, while another call finds the
// primary available again. The error says why the primary was not read.
func TestSecondaryFailsWhileThePrimaryReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGeo(busy)
		v := g.Open(t)
		plan := vaulttest.Created(t, v, plantest.Small())
		g.Replicate()
		g.Down = true
		ctx, _ := azblob.AcceptStale(t.Context())
		_, _ = v.Exists(ctx, plan.ID) // from now on the primary rests for 30 seconds
		g.Down = false
		g.Inject(emulator.On().Where(func(r emulator.Request) bool { return r.Secondary }).Do(emulator.Silence()))
		time.Sleep(25 * time.Second)
		failed := make(chan error)
		go func() {
			_, err := v.Exists(ctx, plan.ID)
			failed <- err
		}()
		time.Sleep(6 * time.Second)
		vaulttest.Should(t, vaulttest.ErrOf(v.Exists(ctx, plan.ID)))
		if err := <-failed; !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), "503 ServerBusy") {
			t.Error(err)
		}
	})
}

// history is what was stored of a plan over time.
type history struct {
	id        uuid.UUID
	container string
	looks     []map[string]emulator.Blob             // at all blobs, by name
	statuses  map[uuid.UUID]map[workflow.Status]bool // that each object has had
}

// historyOf creates, runs, completes and deletes a plan, and looks at what is stored before each request.
func historyOf(t *testing.T) history {
	l := history{statuses: map[uuid.UUID]map[workflow.Status]bool{}}
	server := emulator.New()
	var mu sync.Mutex // requests are concurrent
	look := func(emulator.Request) error {
		mu.Lock()
		defer mu.Unlock()
		now := map[string]emulator.Blob{}
		for l.container = range server.Containers() {
			for b := range server.Blobs(l.container) {
				now[b.Name] = b
			}
		}
		l.looks = append(l.looks, now)
		return nil
	}
	server.Forbid(look)
	v := vaulttest.OnEmulator(t, server)
	note := func(plan *workflow.Plan) {
		for o := range workflow.Walk(plan) {
			id := *o.Header().ID
			if l.statuses[id] == nil {
				l.statuses[id] = map[workflow.Status]bool{}
			}
			l.statuses[id][o.Header().State.Status] = true
		}
	}
	plan := vaulttest.EachKind()
	vaulttest.Must(t, v.Create(t.Context(), plan))
	note(plan)
	l.id = plan.ID
	plan.State.Status = workflow.Running
	vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
	note(plan)
	for o, parent := range workflow.Walk(plan) {
		if parent == nil {
			continue
		}
		o.Header().State.Status = workflow.Running
		vaulttest.Must(t, storage.Update(t.Context(), v, o))
	}
	note(plan)
	plan.State = vaulttest.FinishParts(t, v, plan)
	note(plan)
	vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
	vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
	return l
}

// TestFailover gives the vault an account after a failover that lost the last writes of some blobs and not of
// others. Everything that is read was stored at some time, or the error says what is damaged; listings agree
// with Read, Check names what Read can't show, and Recovery takes nothing away that could be read.
func TestFailover(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	n := efforttest.Pick(100, 100, 5000)
	synctest.Test(t, func(t *testing.T) {
		l := historyOf(t)
		whole, damaged := 0, 0
		for seed := range uint64(n) {
			switch err := l.failOver(t, rand.New(rand.NewPCG(seed, 1)), fmt.Sprintf("seed %d", seed)); {
			case err == nil:
				whole++
			case errors.Is(err, storage.ErrCorrupt):
				damaged++
			}
		}
		if whole < n/10 || damaged < n/10 {
			t.Errorf("of %d plans %d were whole and %d damaged", n, whole, damaged)
		}
	})
}

// failOver returns the error of Read after the failover.
func (l *history) failOver(t *testing.T, r *rand.Rand, what string) error {
	server := emulator.New()
	server.PutContainer(l.container, map[string]string{"planvaultlayout": "1"})
	end, lost := r.IntN(len(l.looks)), r.Float64() // when the failover is, and how many blobs have lost writes
	names := map[string]bool{}
	for _, look := range l.looks[:end+1] {
		for name := range look {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		at := end
		if r.Float64() < lost {
			at = r.IntN(end + 1)
		}
		if b, ok := l.looks[at][name]; ok {
			server.Restore(l.container, b)
		}
	}
	v := vaulttest.OnEmulator(t, server)
	before, beforeErr := l.read(t, what, v)
	time.Sleep(vaulttest.PastGrace)
	if err := v.Recovery(t.Context()); err != nil && !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("%s: Recovery: %v", what, err)
	}
	after, afterErr := l.read(t, what, v)
	if beforeErr == nil && (afterErr != nil || plantest.Diff(before, after) != "") {
		t.Errorf("%s: before Recovery the plan was readable: %v", what, afterErr)
	}
	report, err := v.Check(t.Context(), azblob.CheckOptions{})
	if err != nil {
		t.Errorf("%s: Check: %v", what, err)
	}
	if errors.Is(afterErr, storage.ErrCorrupt) && len(report.Problems) == 0 {
		t.Errorf("%s: Check finds nothing, but Read: %v", what, afterErr)
	}
	settledAt := vaulttest.Contents(server)
	if err := v.Recovery(t.Context()); err != nil && !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("%s: Recovery again: %v", what, err)
	}
	if !maps.Equal(settledAt, vaulttest.Contents(server)) {
		t.Errorf("%s: a second Recovery changed something", what)
	}
	if _, err := v.Repair(t.Context(), azblob.RepairOptions{Thorough: true}); err != nil && !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("%s: thorough Recovery: %v", what, err)
	}
	_, _ = l.read(t, what, v)
	return beforeErr
}

// read reads the plan, and compares it with what its objects have been, and with a listing.
func (l *history) read(t *testing.T, what string, v *azblob.Vault) (*workflow.Plan, error) {
	t.Helper()
	plan, err := v.Read(t.Context(), l.id)
	if err != nil && !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("%s: Read: %v", what, err)
	}
	if err == nil {
		for o := range workflow.Walk(plan) {
			if status := o.Header().State.Status; !l.statuses[*o.Header().ID][status] {
				t.Errorf("%s: %v is %v, which it never was", what, o.Kind(), status)
			}
		}
	}
	found, listErr := storage.Collect(v.List(t.Context(), 0))
	if listErr != nil {
		t.Errorf("%s: List: %v", what, listErr)
	}
	if listed := len(found) == 1; listed != (err == nil) && !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("%s: %d plans are listed, but Read: %v", what, len(found), err)
	}
	return plan, err
}
