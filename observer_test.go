package azblob

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// notes is an observer that records its calls.
type notes struct {
	mu        sync.Mutex
	started   []Operation
	ends      []OperationEnd
	requests  []RequestEvent
	retries   []RetryEvent
	conflicts []ConflictEvent
	repairs   []RepairEvent
	damages   []DamageEvent
	foreign   []any // events whose context is not that of an operation
}

// noteKey is the context key that marks the context of an operation.
type noteKey struct{}

func note[T any](n *notes, list *[]T) func(context.Context, T) {
	return func(ctx context.Context, event T) {
		n.mu.Lock()
		defer n.mu.Unlock()
		*list = append(*list, event)
		if ctx.Value(noteKey{}) == nil {
			n.foreign = append(n.foreign, event)
		}
	}
}

func (n *notes) observer() Observer {
	return Observer{
		OperationStart: func(ctx context.Context, op Operation) (context.Context, func(OperationEnd)) {
			ctx = context.WithValue(ctx, noteKey{}, true)
			note(n, &n.started)(ctx, op)
			return ctx, func(e OperationEnd) { note(n, &n.ends)(ctx, e) }
		},
		Request: note(n, &n.requests), Retry: note(n, &n.retries), Conflict: note(n, &n.conflicts), Repair: note(n, &n.repairs), Damage: note(n, &n.damages),
	}
}

// observed runs a test in virtual time with a vault that notes observes.
func observed(t *testing.T, server func() *emulator.Server, test func(t *testing.T, v *Vault, server *emulator.Server, n *notes)) {
	t.Helper()
	n := new(notes)
	inTime(t, server, func(*emulator.Server) []Option { return []Option{WithObserver(n.observer())} },
		func(t *testing.T, v *Vault, s *emulator.Server) {
			test(t, v, s, n)
			if len(n.foreign) > 0 {
				t.Errorf("these events have the context of no operation: %+v", n.foreign)
			}
		})
}

// slowServer returns an emulator whose requests take a second each.
func slowServer() *emulator.Server { return emulator.New(emulator.WithLatency(time.Second)) }

// observedCall calls a method of a vault.
type observedCall struct {
	method string // of Vault
	name   string // of the operation; the method's if it is empty
	aPlan  bool   // the operation is about the plan
	do     func(ctx context.Context, v *Vault) error
}

// observedCalls calls each method of a vault once, such that all of them succeed if they are called in this
// order.
func observedCalls(plan *workflow.Plan) []observedCall {
	member := storage.Member{ID: workflow.NewV7(), Name: "node", Started: time.Now(), TTL: time.Minute}
	var stop string
	block, deferred := plan.Blocks[0], plan.DeferredActions
	return []observedCall{
		{"Create", "", true, func(ctx context.Context, v *Vault) error { return v.Create(ctx, plan) }},
		{"Exists", "", true, func(ctx context.Context, v *Vault) error { return failure(v.Exists(ctx, plan.ID)) }},
		{"Read", "", true, func(ctx context.Context, v *Vault) error { return failure(v.Read(ctx, plan.ID)) }},
		{"List", "", false, func(ctx context.Context, v *Vault) error { return failure(storage.Collect(v.List(ctx, 0))) }},
		{"Search", "", false, func(ctx context.Context, v *Vault) error {
			return failure(storage.Collect(v.Search(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted}})))
		}},
		{"Count", "", false, func(ctx context.Context, v *Vault) error { return failure(v.Count(ctx, storage.Filters{})) }},
		{"Stats", "", false, func(ctx context.Context, v *Vault) error {
			return failure(storage.Collect(v.Stats(ctx, StatsOptions{Bytes: true})))
		}},
		{"UpdatePlan", "", true, func(ctx context.Context, v *Vault) error {
			plan.State.Status, plan.State.Start = workflow.Running, time.Now()
			return v.UpdatePlan(ctx, plan)
		}},
		{"UpdateBlock", "", true, func(ctx context.Context, v *Vault) error { return v.UpdateBlock(ctx, block) }},
		{"UpdateSequence", "", true, func(ctx context.Context, v *Vault) error { return v.UpdateSequence(ctx, block.Sequences[0]) }},
		{"UpdateAction", "", true, func(ctx context.Context, v *Vault) error { return v.UpdateAction(ctx, block.Sequences[0].Actions[0]) }},
		{"UpdateChecks", "", true, func(ctx context.Context, v *Vault) error { return v.UpdateChecks(ctx, plan.PreChecks) }},
		{"UpdateDeferredActions", "", true, func(ctx context.Context, v *Vault) error { return v.UpdateDeferredActions(ctx, deferred) }},
		{"UpdateDeferBatch", "", true, func(ctx context.Context, v *Vault) error { return v.UpdateDeferBatch(ctx, deferred.Batches[0]) }},
		{"Recovery", "", false, func(ctx context.Context, v *Vault) error { return v.Recovery(ctx) }},
		{"Repair", "Recovery", false, func(ctx context.Context, v *Vault) error { return failure(v.Repair(ctx, RepairOptions{})) }},
		{"Check", "", false, func(ctx context.Context, v *Vault) error { return failure(v.Check(ctx, CheckOptions{})) }},
		{"Catalogue", "", false, func(ctx context.Context, v *Vault) error { return failure(v.Catalogue(ctx, CatalogueOptions{})) }},
		{"Upkeep", "Catalogue", false, func(ctx context.Context, v *Vault) error { return v.Upkeep(ctx) }},
		{"AddMember", "", false, func(ctx context.Context, v *Vault) (err error) {
			member.Version, err = v.AddMember(ctx, member)
			return err
		}},
		{"RenewMember", "", false, func(ctx context.Context, v *Vault) (err error) {
			member.Version, err = v.RenewMember(ctx, member)
			return err
		}},
		{"FindMember", "", false, func(ctx context.Context, v *Vault) error { return failure(v.FindMember(ctx, member.ID)) }},
		{"RequestStop", "", true, func(ctx context.Context, v *Vault) error { return v.RequestStop(ctx, plan.ID) }},
		{"Roster", "", false, func(ctx context.Context, v *Vault) error {
			found, err := v.Roster(ctx)
			if err == nil { // the vault is not closed yet
				stop = found.Stops[0].Version
			}
			return err
		}},
		{"RemoveStop", "", true, func(ctx context.Context, v *Vault) error { return v.RemoveStop(ctx, plan.ID, stop) }},
		{"RemoveMember", "", false, func(ctx context.Context, v *Vault) error { return v.RemoveMember(ctx, member.ID, member.Version) }},
		{"Expire", "", false, func(ctx context.Context, v *Vault) error {
			return failure(v.Expire(ctx, ExpireOptions{OlderThan: 1000 * time.Hour}))
		}},
		{"Hold", "", false, func(ctx context.Context, v *Vault) error { return v.Hold(ctx, oldDay()) }},
		{"Holds", "", false, func(ctx context.Context, v *Vault) error { return failure(v.Holds(ctx)) }},
		{"Release", "", false, func(ctx context.Context, v *Vault) error { return v.Release(ctx, oldDay()) }},
		{"Account", "", false, func(ctx context.Context, v *Vault) error { return failure(v.Account(ctx)) }},
		{"Ping", "", false, func(ctx context.Context, v *Vault) error { return failure(v.Ping(ctx, PingWrites())) }},
		{"Delete", "", true, func(ctx context.Context, v *Vault) error { return v.Delete(ctx, plan.ID) }},
		{"Restore", "", true, func(ctx context.Context, v *Vault) error { return v.Restore(ctx, plan) }},
		{"Close", "", false, func(ctx context.Context, v *Vault) error { return v.Close(ctx) }},
	}
}

// failure returns the error of a call.
func failure[T any](_ T, err error) error { return err }

// oldDay is a closed day.
func oldDay() time.Time { return time.Now().AddDate(0, 0, -9) }

// TestObserverSeesEveryMethod calls each method of a vault, and then of a closed vault. Each call is one
// operation, and all that it sends has its context. Each request takes a second, so an operation takes as
// many seconds as it has round trips.
func TestObserverSeesEveryMethod(t *testing.T) {
	observed(t, slowServer, func(t *testing.T, v *Vault, s *emulator.Server, n *notes) {
		plan := plantest.Full()
		driver.Complete(plan)
		calls := observedCalls(plan)
		s.PutContainer(v.prefix.day(oldDay()), nil)
		untested := map[string]bool{}
		for m := range reflect.TypeFor[*Vault]().Methods() {
			untested[m.Name] = true
		}
		for _, c := range calls {
			delete(untested, c.method)
			*n = notes{}
			before := len(s.Requests())
			if err := c.do(t.Context(), v); err != nil {
				t.Fatalf("%s: %v", c.method, err)
			}
			want := OperationEnd{Operation: Operation{Name: cmp.Or(c.name, c.method)}, Requests: len(s.Requests()) - before, Outcome: OutcomeOK}
			if c.aPlan {
				want.Plan = plan.ID
			}
			for _, r := range n.requests {
				want.BytesSent += r.BytesSent
				want.BytesReceived += r.BytesReceived
				if r.Operation != want.Operation {
					t.Errorf("%s: a request of %+v", c.method, r.Operation)
				}
			}
			if len(n.foreign) > 0 {
				t.Errorf("%s: %d events have another context, such as %+v", c.method, len(n.foreign), n.foreign[0])
			}
			if !slices.Equal(n.started, []Operation{want.Operation}) || len(n.ends) != 1 {
				t.Errorf("%s: %+v began, %+v ended", c.method, n.started, n.ends)
				continue
			}
			want.RoundTrips = n.ends[0].RoundTrips
			want.Duration = time.Duration(want.RoundTrips) * time.Second
			if n.ends[0] != want || want.RoundTrips > want.Requests || (want.RoundTrips == 0) != (c.method == "Close") {
				t.Errorf("%s: %+v, want %+v", c.method, n.ends[0], want)
			}
		}
		if len(untested) > 0 {
			t.Errorf("these methods are not in the table: %v", untested)
		}
		for _, c := range calls {
			*n = notes{}
			err := c.do(t.Context(), v)
			if c.method == "Close" {
				continue // a second Close returns nil
			}
			if !errors.Is(err, storage.ErrClosed) || len(n.started) != 1 || len(n.ends) != 1 || n.ends[0].Outcome != OutcomeClosed || n.ends[0].Err != err {
				t.Errorf("%s, closed: %v, %+v", c.method, err, n.ends)
			}
		}
	})
}

// TestObserverSeesListings checks when the operation of a listing begins and ends, and with which error.
func TestObserverSeesListings(t *testing.T) {
	observed(t, slowServer, func(t *testing.T, v *Vault, s *emulator.Server, n *notes) {
		var plans []*workflow.Plan
		for range 3 {
			plans = append(plans, plantest.Small())
			must(t, v.Create(t.Context(), plans[len(plans)-1]))
		}
		one := func(what string, want error) {
			t.Helper()
			if len(n.started) != 1 || len(n.ends) != 1 || !errors.Is(n.ends[0].Err, want) || n.ends[0].Outcome != OutcomeOf(want) {
				t.Errorf("%s: %+v began, %+v ended", what, n.started, n.ends)
			}
			*n = notes{}
		}
		*n = notes{}
		list, err := v.List(t.Context(), 0)
		must(t, err)
		if len(n.started) > 0 {
			t.Error("an operation began before the range did")
		}
		for range 2 {
			for range list {
				if len(n.started) != 1 || len(n.ends) > 0 {
					t.Errorf("in the loop: %+v began, %+v ended", n.started, n.ends)
				}
			}
			one("a whole range", nil)
		}
		for range list {
			break
		}
		one("a break", nil)
		func() {
			defer func() { recover() }()
			for range list {
				panic("of the loop")
			}
		}()
		one("a panic", errPanicked)
		if _, err := v.Search(t.Context(), storage.Filters{Limit: -1}); !errors.Is(err, storage.ErrInvalid) {
			t.Error(err)
		}
		one("a refused search", storage.ErrInvalid)

		entry := v.prefix.plan(plans[1].ID).entry()
		s.Put(entry.Container, entry.Name, []byte("{}"), map[string]string{"type": "planEntry"})
		found := 0
		for range list {
			found++
		}
		if found != 3 {
			t.Errorf("%d plans are listed", found)
		}
		one("a damaged plan", storage.ErrCorrupt)
		s.Inject(emulator.On(emulator.ListBlobs).Do(emulator.Answer(403, "AuthorizationFailure")))
		for range list {
		}
		one("a refused request", storage.ErrDenied)
	})
}

func TestObserverSeesRequests(t *testing.T) {
	observed(t, slowServer, func(t *testing.T, v *Vault, s *emulator.Server, n *notes) {
		plan := &workflow.Plan{Name: "empty"}
		must(t, v.Create(t.Context(), plan))
		if _, err := v.Read(t.Context(), plan.ID); err != nil {
			t.Error(err)
		}
		if _, err := v.Exists(t.Context(), workflow.NewV7()); err != nil {
			t.Error(err)
		}
		list, err := v.List(t.Context(), 0)
		must(t, err)
		for range list {
		}
		must(t, v.Delete(t.Context(), plan.ID))
		k := v.prefix.plan(plan.ID)
		type kind struct {
			method string
			class  Class
		}
		kinds := map[string]kind{
			"put": {"PUT", ClassWrite}, "create container": {"PUT", ClassList}, "get": {"GET", ClassRead}, "head": {"HEAD", ClassOther},
			"list": {"GET", ClassList}, "list containers": {"GET", ClassList}, "delete": {"DELETE", ClassDelete}, "delete batch": {"POST", ClassOther},
		}
		var got []string
		for _, r := range n.requests {
			got = append(got, strings.TrimSpace(r.Name+" "+r.Container+" "+strings.ReplaceAll(r.Blob, plan.ID.String(), "ID")))
			if r.Duration != time.Second || r.Start.IsZero() || r.Status == 0 || r.RequestID == "" || r.Try != 1 || r.Err != nil {
				t.Errorf("%+v", r)
			}
			if k := (kind{r.Method, r.Class}); k != kinds[r.Name] {
				t.Errorf("%s is %+v", r.Name, k)
			}
			if hasBody := r.Name == "delete batch" || r.Name == "put" && !strings.HasPrefix(r.Blob, openDir); (r.BytesSent > 0) != hasBody {
				t.Errorf("%s of %q sent %d bytes", r.Name, r.Blob, r.BytesSent)
			}
			if (r.BytesReceived > 0) != slices.Contains([]string{"get", "list", "list containers", "delete batch"}, r.Name) {
				t.Errorf("%s received %d bytes", r.Name, r.BytesReceived)
			}
		}
		if len(got) != len(s.Requests()) {
			t.Errorf("%d requests were observed, %d were sent", len(got), len(s.Requests()))
		}
		for _, want := range []string{
			"create container " + k.container, "put " + k.container + " open/ID", "put " + k.container + " plans/ID-entry.json",
			"put " + k.container + " plans/ID-object.json", "get " + k.container + " plans/ID-object.json", "list containers prod-",
			"list " + k.container + " plans/", "delete " + k.container + " plans/ID-object.json", "delete batch " + k.container,
		} {
			if !slices.Contains(got, want) {
				t.Errorf("%q was not observed: %q", want, got)
			}
		}
		if !slices.ContainsFunc(n.requests, func(r RequestEvent) bool { return r.Name == "head" && r.Status == 404 }) {
			t.Error("the look for a plan that does not exist was not observed")
		}
		if len(n.retries)+len(n.conflicts)+len(n.repairs) > 0 {
			t.Errorf("%+v, %+v, %+v", n.retries, n.conflicts, n.repairs)
		}
		for _, op := range n.ends { // the ID was made by the first operation
			if op.Name == "Create" && op.Plan != plan.ID {
				t.Errorf("%+v", op)
			}
		}
	})
}

func TestObserverSeesRetries(t *testing.T) {
	observed(t, newServer, func(t *testing.T, v *Vault, s *emulator.Server, n *notes) {
		id := workflow.NewV7()
		s.Inject(
			emulator.On(emulator.HeadBlob).Nth(1).Do(emulator.Answer(503, "ServerBusy").RetryAfter(time.Minute)),
			emulator.On(emulator.HeadBlob).Nth(2).Do(emulator.LostRequest()),
		)
		started := time.Now()
		if _, err := v.Exists(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if len(n.retries) != 2 || len(n.requests) != 3 {
			t.Fatalf("%+v; %+v", n.retries, n.requests)
		}
		waits := time.Duration(0)
		for i, r := range n.retries {
			ref := v.prefix.plan(id).object()
			if r.Operation != (Operation{"Exists", id}) || r.Name != "head" || r.Container != ref.Container || r.Blob != ref.Name || r.Try != i+1 || r.Err == nil {
				t.Errorf("%+v", r)
			}
			waits += r.Wait
		}
		if n.retries[0].Wait != time.Minute || n.retries[1].Wait > time.Second || time.Since(started) != waits {
			t.Errorf("the waits were %v and %v, and all took %v", n.retries[0].Wait, n.retries[1].Wait, time.Since(started))
		}
		if !errors.Is(n.retries[1].Err, io.EOF) || n.requests[1].Err == nil || n.requests[1].Status != 0 || n.requests[2].Try != 3 {
			t.Errorf("%v; %+v", n.retries[1].Err, n.requests)
		}
		if e := n.ends[0]; e.Requests != 3 || e.RoundTrips != 3 || e.Duration != waits || e.Outcome != OutcomeOK {
			t.Errorf("%+v", e)
		}
	})
}

func TestObserverSeesConflicts(t *testing.T) {
	observed(t, slowServer, func(t *testing.T, v *Vault, _ *emulator.Server, n *notes) {
		plan := plantest.Small()
		must(t, v.Create(t.Context(), plan))
		first, err := v.Read(t.Context(), plan.ID)
		must(t, err)
		second, err := v.Read(t.Context(), plan.ID)
		must(t, err)
		first.State.Status, second.State.Status = workflow.Running, workflow.Running
		second.State.Start = time.Now() // the very same update again would be taken for a repetition
		must(t, v.UpdatePlan(t.Context(), first))
		if err := v.UpdatePlan(t.Context(), second); !errors.Is(err, storage.ErrConflict) {
			t.Error(err)
		}
		again := plantest.Small()
		again.ID = plan.ID
		if err := v.Create(t.Context(), again); !errors.Is(err, storage.ErrExists) {
			t.Error(err)
		}
		if err := v.UpdatePlan(t.Context(), nil); err == nil {
			t.Error("nil was taken")
		}
		if err := v.Delete(t.Context(), workflow.NewV7()); !errors.Is(err, storage.ErrNotFound) {
			t.Error(err)
		}
		keys := v.prefix.plan(plan.ID)
		for i, want := range []ConflictEvent{
			{Operation{"UpdatePlan", plan.ID}, keys.entry().String(), storage.ErrConflict},
			{Operation{"Create", plan.ID}, keys.object().String(), storage.ErrExists},
		} {
			if i >= len(n.conflicts) {
				t.Errorf("%+v was not observed", want)
			} else if got := n.conflicts[i]; got.Operation != want.Operation || got.Blob != want.Blob || !errors.Is(got.Err, want.Err) {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		var outcomes []Outcome
		for _, e := range n.ends {
			outcomes = append(outcomes, e.Outcome)
		}
		if want := []Outcome{"ok", "ok", "ok", "ok", "conflict", "exists", "invalid", "not_found"}; len(n.conflicts) != 2 || !slices.Equal(outcomes, want) {
			t.Errorf("%d conflicts, outcomes %q, want %q", len(n.conflicts), outcomes, want)
		}
	})
}

func TestObserverSeesRepairs(t *testing.T) {
	observed(t, newServer, func(t *testing.T, v *Vault, s *emulator.Server, n *notes) {
		plan := plantest.Small()
		must(t, v.Create(t.Context(), plan))
		ref := v.prefix.plan(plan.ID).object()
		s.Remove(ref.Container, ref.Name)
		time.Sleep(24 * time.Hour)
		report, err := v.Repair(t.Context(), RepairOptions{DryRun: true})
		must(t, err)
		if len(report.Plans) != 1 || len(n.repairs) != 1 || n.repairs[0].RepairedPlan != report.Plans[0] || n.repairs[0].Did != "" {
			t.Errorf("%+v was observed, %+v reported", n.repairs, report.Plans)
		}
		must(t, v.Recovery(t.Context()))
		if len(n.repairs) != 2 || n.repairs[1].ID != plan.ID || n.repairs[1].Found == "" || n.repairs[1].Did == "" || n.repairs[1].Err != nil || n.repairs[1].Operation.Name != "Recovery" {
			t.Errorf("%+v", n.repairs)
		}
		must(t, v.Recovery(t.Context()))
		if len(n.repairs) != 2 {
			t.Errorf("a sound vault was repaired: %+v", n.repairs)
		}
	})
}

func TestOutcomeOf(t *testing.T) {
	for _, o := range outcomes {
		if got := OutcomeOf(opError("Read", uuid.Nil, fmt.Errorf("why: %w", o.err))); got != o.outcome {
			t.Errorf("%v is %s", o.err, got)
		}
	}
	for _, test := range []struct {
		err  error
		want Outcome
	}{
		{nil, OutcomeOK},
		{io.EOF, OutcomeFailed},
		{errors.Join(storage.ErrConflict, storage.ErrUnknown), OutcomeUnknown},
		{fmt.Errorf("%w: %w", storage.ErrUnavailable, context.DeadlineExceeded), OutcomeUnavailable},
		{fmt.Errorf("%w: a damaged plan: %w", storage.ErrConflict, storage.ErrCorrupt), OutcomeCorrupt},
	} {
		if got := OutcomeOf(test.err); got != test.want {
			t.Errorf("%v is %s, want %s", test.err, got, test.want)
		}
	}
	for _, err := range []error{
		storage.ErrNotFound, storage.ErrExists, storage.ErrConflict, storage.ErrInvalid, storage.ErrSchema, storage.ErrCorrupt,
		storage.ErrDenied, storage.ErrUnavailable, storage.ErrUnknown, storage.ErrClosed,
	} {
		if OutcomeOf(err) == OutcomeFailed {
			t.Errorf("%v has no outcome", err)
		}
	}
}

// logged returns what a log observer of a level writes for the given events.
func logged(level slog.Level, send func(o Observer)) string {
	var b bytes.Buffer
	send(LogObserver(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: level}))))
	return b.String()
}

func TestLogObserver(t *testing.T) {
	op := Operation{"Create", uuid.MustParse("019b7c5a-1c80-7000-8000-00000000000a")}
	failed := errors.New("it failed")
	end := func(e OperationEnd) func(o Observer) {
		return func(o Observer) {
			_, end := o.OperationStart(t.Context(), op)
			end(e)
		}
	}
	request := func(took time.Duration) func(o Observer) {
		return func(o Observer) {
			o.Request(t.Context(), RequestEvent{Operation: op, Name: "put", Container: "prod-2026-01-02", Blob: "open/x", Method: "PUT", Status: 503, RequestID: "r-1", Duration: took, Err: failed})
		}
	}
	for _, test := range []struct {
		what  string
		level string
		send  func(o Observer)
		want  []string
	}{
		{"success", "DEBUG", end(OperationEnd{Operation: op, Duration: time.Second, Requests: 5, RoundTrips: 4, BytesSent: 3, BytesReceived: 2, Outcome: OutcomeOK}), []string{"msg=operation", "operation=Create", "plan=" + op.Plan.String(), "outcome=ok", "duration=1s", "requests=5", "roundTrips=4", "sent=3", "received=2"}},
		{"absence", "INFO", end(OperationEnd{Operation: op, Outcome: OutcomeNotFound, Err: failed}), []string{"outcome=not_found", "it failed"}},
		{"outage", "WARN", end(OperationEnd{Operation: op, Outcome: OutcomeUnavailable, Err: failed}), []string{"outcome=unavailable"}},
		{"damage", "ERROR", end(OperationEnd{Operation: op, Outcome: OutcomeCorrupt, Err: failed}), []string{"outcome=corrupt"}},
		{"request", "DEBUG", request(time.Millisecond), []string{"msg=request", "operation=Create", "request=put", "container=prod-2026-01-02", "blob=open/x", "status=503", "r-1", "duration=1ms", "it failed"}},
		{"slow request", "WARN", request(time.Second), []string{"duration=1s"}},
		{"retry", "WARN", func(o Observer) {
			o.Retry(t.Context(), RetryEvent{op, "put", "prod-2026-01-02", "open/x", 3, time.Minute, failed})
		}, []string{"msg=retry", "operation=Create", "request=put", "container=prod-2026-01-02", "blob=open/x", "try=3", "wait=1m0s", "it failed"}},
		{"conflict", "WARN", func(o Observer) { o.Conflict(t.Context(), ConflictEvent{op, "prod-2026-01-02/open/x", failed}) }, []string{"msg=conflict", "operation=Create", "plan=" + op.Plan.String(), "blob=prod-2026-01-02/open/x", "it failed"}},
		{"repair", "WARN", func(o Observer) {
			o.Repair(t.Context(), RepairEvent{Operation{Name: "Recovery"}, RepairedPlan{op.Plan, "half", "removed", failed}})
		}, []string{"msg=repair", "operation=Recovery", "plan=" + op.Plan.String(), "found=half", "did=removed", "it failed"}},
		{"damaged catalogue", "WARN", func(o Observer) {
			o.Damage(t.Context(), DamageEvent{Operation{Name: "List"}, "prod-2026-01-02/catalogue", failed})
		}, []string{"msg=damage", "operation=List", "blob=prod-2026-01-02/catalogue", "it failed"}},
	} {
		text := logged(slog.LevelDebug, test.send)
		if strings.Count(text, "\n") != 1 || !strings.Contains(text, "level="+test.level+" ") {
			t.Errorf("%s: %q", test.what, text)
		}
		for _, want := range test.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: there is no %q in %q", test.what, want, text)
			}
		}
	}
}

// TestLogsHaveNoSecrets makes requests fail in every way, with a connection string that contains a signature.
func TestLogsHaveNoSecrets(t *testing.T) {
	for what, fail := range map[string]func(*http.Request) (*http.Response, error){
		"broken connection": func(req *http.Request) (*http.Response, error) {
			return nil, &url.Error{Op: "Head", URL: req.URL.String(), Err: io.EOF} // as net/http has it
		},
		"refusal": func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		},
		"busy": func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			var returned error
			text := logged(slog.LevelDebug, func(o Observer) {
				v, err := NewFromConnectionString(t.Context(), "prod", "BlobEndpoint=https://account.blob.core.windows.net;SharedAccessSignature=sv=2024-01-01&sig=SECRET",
					nil, WithTransport(transportFunc(fail)), WithObserver(o), WithRetry(Retry{1, 1, 1000 * time.Microsecond}))
				must(t, err)
				_, returned = v.Exists(t.Context(), workflow.NewV7())
			})
			if !strings.Contains(text, "msg=operation") || !strings.Contains(text, "msg=request") || returned == nil {
				t.Fatalf("%q, %v", text, returned)
			}
			if strings.Contains(text, "SECRET") || strings.Contains(text, "https:") {
				t.Errorf("the log has the URL: %s", strings.SplitAfter(text, "\n")[0])
			}
			if strings.Contains(returned.Error(), "SECRET") {
				t.Errorf("the error has the signature: %v", returned)
			}
		})
	}
}

func TestTee(t *testing.T) {
	first, second := new(notes), new(notes)
	var order []string
	nested := func(name string) Observer {
		return Observer{
			OperationStart: func(ctx context.Context, _ Operation) (context.Context, func(OperationEnd)) {
				outer, _ := ctx.Value(orderKey{}).(string)
				order = append(order, outer+"("+name)
				return context.WithValue(ctx, orderKey{}, name), func(OperationEnd) { order = append(order, name+")") }
			},
			Retry: func(context.Context, RetryEvent) { order = append(order, name) },
		}
	}
	o := Tee(
		Observer{},
		Observer{OperationStart: func(context.Context, Operation) (context.Context, func(OperationEnd)) { return nil, nil }},
		nested("a"), first.observer(), nested("b"), second.observer(),
	)
	ctx, end := o.OperationStart(t.Context(), Operation{Name: "Read"})
	o.Request(ctx, RequestEvent{Name: "put"})
	o.Retry(ctx, RetryEvent{Name: "get"})
	o.Conflict(ctx, ConflictEvent{Blob: "b"})
	o.Repair(ctx, RepairEvent{})
	o.Damage(ctx, DamageEvent{})
	end(OperationEnd{Requests: 1})
	for i, n := range []*notes{first, second} {
		if len(n.started) != 1 || len(n.requests) != 1 || n.requests[0].Name != "put" || len(n.retries) != 1 || n.retries[0].Name != "get" ||
			len(n.conflicts) != 1 || len(n.repairs) != 1 || len(n.ends) != 1 || n.ends[0].Requests != 1 || len(n.foreign) > 0 {
			t.Errorf("observer %d: %+v", i, n)
		}
	}
	if want := []string{"(a", "a(b", "a", "b", "b)", "a)"}; !slices.Equal(order, want) {
		t.Errorf("the order was %q, want %q", order, want)
	}
	if !Tee().empty() || !Tee(Observer{}, Observer{}).empty() {
		t.Error("nothing and nothing is something")
	}
}

// orderKey is the context key of the innermost observer of TestTee.
type orderKey struct{}

// TestVaultWithoutObserver makes calls that an observer would see, without one, and with one whose functions
// return nil.
func TestVaultWithoutObserver(t *testing.T) {
	for _, observer := range []Observer{
		{},
		Tee(), Tee(Observer{}),
		{OperationStart: func(context.Context, Operation) (context.Context, func(OperationEnd)) { return nil, nil }},
	} {
		inTime(t, newServer, func(s *emulator.Server) []Option {
			s.Inject(emulator.On(emulator.PutBlob).Nth(1).Do(emulator.LostAnswer()))
			return []Option{WithObserver(observer)}
		}, func(t *testing.T, v *Vault, _ *emulator.Server) {
			plan := plantest.Small()
			must(t, v.Create(t.Context(), plan))
			if err := v.Create(t.Context(), plan); !errors.Is(err, storage.ErrExists) {
				t.Error(err)
			}
			must(t, v.Recovery(t.Context()))
		})
	}
}

// TestUnobservedOperations checks that an operation allocates nothing for an observer that is not there.
func TestUnobservedOperations(t *testing.T) {
	id := workflow.NewV7()
	do := func(context.Context) error { return nil }
	if n := testing.AllocsPerRun(100, func() { _ = (*Observer)(nil).observe(t.Context(), "Read", id, do) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
