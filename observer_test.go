package azblob

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/goldentest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/storage/retention"
	"github.com/planvault/azblob/workflow"
)

// notes is an observer that records its calls.
type notes struct {
	mu       sync.Mutex
	started  []Operation
	ends     []OperationEnd
	begun    []time.Time // the starts of requests
	requests []RequestEvent
	damages  []DamageEvent
	foreign  []any // events whose context is not that of an operation
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
		RequestStart: func(ctx context.Context, e RequestEvent) { note(n, &n.begun)(ctx, e.Start) },
		Request:      note(n, &n.requests), Damage: note(n, &n.damages),
		Retry: note(n, new([]RetryEvent)), Conflict: note(n, new([]ConflictEvent)), Repair: note(n, new([]RepairEvent)),
	}
}

// observed runs a test in virtual time with a vault that notes observes.
func observed(t *testing.T, server func() *emulator.Server, test func(t *testing.T, v *Vault, server *emulator.Server, n *notes)) {
	t.Helper()
	n := new(notes)
	inTime(t, server, func(*emulator.Server) Options { return Options{Observer: n.observer()} },
		func(t *testing.T, v *Vault, s *emulator.Server) {
			test(t, v, s, n)
			if len(n.foreign) > 0 {
				t.Errorf("these events have the context of no operation: %+v", n.foreign)
			}
		})
}

// slowServer returns an emulator whose requests take a second each.
func slowServer() *emulator.Server {
	return emulator.New(emulator.Options{Latency: time.Second})
}

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
	note := storage.Note{Name: "policy", Text: []byte("{}")}
	key := storage.KeyRecord{Name: "west"}
	member := storage.Member{ID: workflow.NewV7(), Name: "node", Started: time.Now(), TTL: time.Minute}
	var stop storage.Version
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
			return failure(storage.Collect(v.Admin().Stats(ctx, StatsOptions{Bytes: true})))
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
		{"Repair", "Recovery", false, func(ctx context.Context, v *Vault) error {
			return failure(v.Admin().Repair(audited.Mark(ctx), RepairOptions{}))
		}},
		{"Check", "", false, func(ctx context.Context, v *Vault) error { return failure(v.Admin().Check(ctx, CheckOptions{})) }},
		{"Catalogue", "", false, func(ctx context.Context, v *Vault) error {
			return failure(v.Admin().Catalogue(ctx, CatalogueOptions{}))
		}},
		{"Upkeep", "Catalogue", false, func(ctx context.Context, v *Vault) error { return v.offered().Upkeep(ctx) }},
		{"Revisions", "", false, func(ctx context.Context, v *Vault) error {
			return failure(v.offered().Revisions(ctx, []uuid.UUID{plan.ID}))
		}},
		{"AddMember", "", false, func(ctx context.Context, v *Vault) (err error) {
			member.Version, err = v.Control().AddMember(ctx, member)
			return err
		}},
		{"RenewMember", "", false, func(ctx context.Context, v *Vault) (err error) {
			member.Version, err = v.Control().RenewMember(ctx, member)
			return err
		}},
		{"FindMember", "", false, func(ctx context.Context, v *Vault) error { return failure(v.Control().FindMember(ctx, member.ID)) }},
		{"AddStop", "", true, func(ctx context.Context, v *Vault) error {
			return v.Control().AddStop(ctx, plan.ID, workflow.Attribution{})
		}},
		{"Roster", "", false, func(ctx context.Context, v *Vault) error {
			found, err := v.Control().Roster(ctx)
			if err == nil { // the vault is not closed yet
				stop = found.Stops[0].Version
			}
			return err
		}},
		{"PutNote", "", false, func(ctx context.Context, v *Vault) (err error) {
			note.Version, err = v.Control().PutNote(ctx, note)
			return err
		}},
		{"FindNote", "", false, func(ctx context.Context, v *Vault) error { return failure(v.Control().FindNote(ctx, note.Name)) }},
		{"RemoveNote", "", false, func(ctx context.Context, v *Vault) error { return v.Control().RemoveNote(ctx, note.Name, note.Version) }},
		{"PutKey", "", false, func(ctx context.Context, v *Vault) (err error) {
			key.Version, err = v.Control().PutKey(ctx, key)
			return err
		}},
		{"FindKey", "", false, func(ctx context.Context, v *Vault) error { return failure(v.Control().FindKey(ctx, key.Name)) }},
		{"Keys", "", false, func(ctx context.Context, v *Vault) error { return failure(storage.Collect(v.Control().Keys(ctx))) }},
		{"RemoveKey", "", false, func(ctx context.Context, v *Vault) error { return v.Control().RemoveKey(ctx, key.Name, key.Version) }},
		{"RemoveStop", "", true, func(ctx context.Context, v *Vault) error { return v.Control().RemoveStop(ctx, plan.ID, stop) }},
		{"RemoveMember", "", false, func(ctx context.Context, v *Vault) error {
			return v.Control().RemoveMember(ctx, member.ID, member.Version)
		}},
		{"Record", "", false, func(ctx context.Context, v *Vault) error { return v.Control().Record(ctx, goldenAuditEntry()) }},
		{"AuditEntries", "", false, func(ctx context.Context, v *Vault) error {
			return failure(storage.Collect(v.Control().AuditEntries(ctx, storage.AuditFilters{})))
		}},
		{"Expire", "", false, func(ctx context.Context, v *Vault) error {
			return failure(v.Admin().Expire(audited.Mark(ctx), ExpireOptions{OlderThanDays: 42}))
		}},
		{"DueDays", "", false, func(ctx context.Context, v *Vault) error {
			return failure(v.offered().DueDays(ctx, retention.Policy{KeepDays: 1000}))
		}},
		{"Retire", "", false, func(ctx context.Context, v *Vault) error {
			return failure(v.offered().Retire(ctx, retention.Policy{KeepDays: 1000}, storage.DayOf(oldDay()), 0))
		}},
		{"Hold", "", false, func(ctx context.Context, v *Vault) error {
			return v.Admin().Hold(audited.Mark(ctx), storage.DayOf(oldDay()), workflow.Attribution{})
		}},
		{"Holds", "", false, func(ctx context.Context, v *Vault) error { return failure(v.Admin().Holds(ctx)) }},
		{"Release", "", false, func(ctx context.Context, v *Vault) error {
			return v.Admin().Release(audited.Mark(ctx), storage.DayOf(oldDay()), workflow.Attribution{})
		}},
		{"Account", "", false, func(ctx context.Context, v *Vault) error { return failure(v.Admin().Account(ctx)) }},
		{"Ping", "", false, func(ctx context.Context, v *Vault) error { return failure(v.Ping(ctx, PingOptions{Writes: true})) }},
		{"Prefixes", "", false, func(ctx context.Context, v *Vault) error { return failure(v.Admin().Prefixes(ctx)) }},
		{"Delete", "", true, func(ctx context.Context, v *Vault) error { return v.Delete(ctx, plan.ID) }},
		{"RestoreCopy", "", true, func(ctx context.Context, v *Vault) error { return v.offered().RestoreCopy(ctx, plan) }},
		{"UpdateCopy", "", true, func(ctx context.Context, v *Vault) error { return v.offered().UpdateCopy(ctx, plan) }},
		{"DeleteCopy", "", true, func(ctx context.Context, v *Vault) error { return v.offered().DeleteCopy(ctx, plan) }},
		{"Restore", "", true, func(ctx context.Context, v *Vault) error { return v.Restore(ctx, plan) }},
		{"Close", "", false, func(ctx context.Context, v *Vault) error { return v.Close(ctx) }},
	}
}

// failure returns the error of a call.
func failure[T any](_ T, err error) error { return err }

// dropped is a day that Expire drops.
func dropped() time.Time { return time.Now().AddDate(0, 0, -99) }

// oldDay is a past day.
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
		s.PutContainer(v.prefix.day(dropped()), map[string]string{metaLayout: "1"})
		untested := map[string]bool{}
		for _, of := range []reflect.Type{reflect.TypeFor[offered](), reflect.TypeFor[*Admin]()} {
			for m := range of.Methods() {
				untested[m.Name] = !slices.Contains([]string{"Admin", "As", "CheckFenced", "IsCopy", "Registry"}, m.Name) // which are no operations
			}
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
		maps.DeleteFunc(untested, func(_ string, missing bool) bool { return !missing })
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

// TestLogObserver logs operations, requests, retries, conflicts, repairs and damage as a golden file has them. Requests
// take 400ms, and one is slow. IDs are numbered in the order of their plans.
func TestLogObserver(t *testing.T) {
	var log bytes.Buffer
	handler := slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch {
		case a.Key == slog.TimeKey, a.Key == "sent", a.Key == "received":
			return slog.Attr{} // TestObserverSeesEveryMethod adds the bytes up
		case a.Value.Kind() == slog.KindDuration:
			return slog.Duration(a.Key, a.Value.Duration().Round(100*time.Millisecond))
		}
		return a
	}})
	n := new(notes)
	var ids []uuid.UUID
	inTime(t, func() *emulator.Server { return emulator.New(emulator.Options{Latency: 400 * time.Millisecond}) }, func(s *emulator.Server) Options {
		slowly := s.Transport()
		slowly.Inject(emulator.On().Method(http.MethodGet).Nth(1).Do(emulator.Before(func() { time.Sleep(time.Second) })))
		observer := Tee(LogObserver(slog.New(handler)), n.observer())
		return Options{Observer: observer, ClientOptions: policy.ClientOptions{Transport: slowly}, Concurrency: 1, Backoff: Backoff{InitialInterval: time.Millisecond, MaxElapsed: 90 * time.Second}}
	}, func(t *testing.T, v *Vault, s *emulator.Server) {
		does := func(what string, err, want error) {
			t.Helper()
			if !errors.Is(err, want) {
				t.Errorf("%s: %v", what, err)
			}
			fmt.Fprintln(&log, what)
		}
		plan := &workflow.Plan{Name: "empty"} // it has no ID yet
		does("a plan is created", v.Create(t.Context(), plan), nil)
		second, err := v.Read(t.Context(), plan.ID)
		does("it is read slowly", err, nil)
		plan.State.Status, second.State.Status = workflow.Running, workflow.Stopped
		must(t, v.UpdatePlan(t.Context(), plan))
		does("it is updated twice", v.UpdatePlan(t.Context(), second), storage.ErrConflict)
		again := &workflow.Plan{ID: plan.ID}
		does("it is created again", v.Create(t.Context(), again), storage.ErrExists)
		does("nothing is updated", v.UpdatePlan(t.Context(), nil), storage.ErrInvalid)
		must(t, v.Delete(t.Context(), plan.ID))
		does("it is deleted twice", v.Delete(t.Context(), plan.ID), storage.ErrNotFound)
		s.Inject(emulator.On(emulator.HeadBlob).Nth(1).Do(emulator.Answer(503, "ServerBusy").RetryAfter(time.Minute)), emulator.On(emulator.HeadBlob).Nth(2).Do(emulator.LostRequest()))
		does("a request is sent three times", failure(v.Exists(t.Context(), plan.ID)), nil)
		s.Inject(emulator.On(emulator.HeadBlob).Do(emulator.Answer(503, "ServerBusy").RetryAfter(time.Minute)))
		does("a request is sent in vain", failure(v.Exists(t.Context(), plan.ID)), storage.ErrUnavailable)
		s.ClearFaults()

		lost := &workflow.Plan{Name: "lost"}
		must(t, v.Create(t.Context(), lost))
		ref := v.prefix.plan(lost.ID).object()
		s.Remove(ref.Container, ref.Name)
		time.Sleep(72 * time.Hour)
		does("a recovery tells what it would do", failure(v.Admin().Repair(audited.Mark(t.Context()), RepairOptions{DryRun: true})), nil)
		does("a recovery removes remains", v.Recovery(t.Context()), nil)
		does("a recovery finds nothing", v.Recovery(t.Context()), nil)
		must(t, failure(v.Admin().Catalogue(t.Context(), CatalogueOptions{})))
		s.Corrupt(ref.Container, catalogueName, func(b []byte) []byte { b[0] ^= 1; return b })
		does("a listing finds a damaged catalogue", failure(storage.Collect(v.List(t.Context(), 0))), nil)

		listed := &workflow.Plan{Name: "listed"}
		must(t, v.Create(t.Context(), listed))
		began := len(n.started)
		list, err := v.List(t.Context(), 0)
		must(t, err)
		if len(n.started) > began {
			t.Error("an operation began before the loop did")
		}
		for range list {
			fmt.Fprintln(&log, "a plan is listed")
		}
		for range list {
			break
		}
		does("a loop is left", nil, nil)
		func() {
			defer func() { recover() }()
			for range list {
				panic("of the loop")
			}
		}()
		does("a loop panics", nil, nil)
		does("a search is refused", failure(v.Search(t.Context(), storage.Filters{Limit: -1})), storage.ErrInvalid)
		entry := v.prefix.plan(listed.ID).entry()
		s.Put(entry.Container, entry.Name, []byte("{}"), map[string]string{"type": "planEntry"})
		for range list {
		}
		does("a plan is damaged", nil, nil)
		s.Inject(emulator.On(emulator.ListContainers).Do(emulator.Answer(403, "AuthorizationFailure")))
		does("a listing is refused", failure(storage.Collect(v.List(t.Context(), 0))), storage.ErrDenied)
		if len(n.requests) != len(s.Requests()) || len(n.foreign) > 0 {
			t.Errorf("%d requests were observed, %d were sent; foreign: %+v", len(n.requests), len(s.Requests()), n.foreign)
		}
		var ended []time.Time
		for _, r := range n.requests {
			ended = append(ended, r.Start)
		}
		if slices.SortFunc(ended, time.Time.Compare); !slices.EqualFunc(n.begun, ended, time.Time.Equal) {
			t.Errorf("requests began at %v and ended of %v", n.begun, ended)
		}
		ids = []uuid.UUID{plan.ID, lost.ID, listed.ID}
	})
	text := log.String()
	for i, id := range ids {
		text = strings.ReplaceAll(text, id.String(), fmt.Sprint("ID", i+1))
	}
	goldentest.Equal(t, "testdata/log.txt", []byte(text))
	kinds := map[string]string{
		"put": "PUT write", "create container": "PUT list", "set container metadata": "PUT other", "get": "GET read", "list": "GET list",
		"list containers": "GET list", "delete": "DELETE delete", "delete batch": "POST other",
	}
	for _, r := range n.requests {
		got := fmt.Sprint(r.Method, " ", r.Class)
		if want := kinds[r.Name]; got != want && got != "HEAD other" || r.Start.IsZero() || r.Name == "head" && r.Method != "HEAD" {
			t.Errorf("%s is %s, want %s, %+v", r.Name, got, want, r)
		}
	}
}

func TestOutcomeOf(t *testing.T) {
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
		if OutcomeOf(opError("Read", uuid.Nil, fmt.Errorf("why: %w", err))) == OutcomeFailed {
			t.Errorf("%v has no outcome", err)
		}
	}
}

// TestTee nests the operations of observers, and passes each event to all that look at it.
func TestTee(t *testing.T) {
	var order []string
	nested := func(name string) Observer {
		event := func(kind string) { order = append(order, name+kind) }
		return Observer{
			OperationStart: func(ctx context.Context, _ Operation) (context.Context, func(OperationEnd)) {
				outer, _ := ctx.Value(noteKey{}).(string)
				event("(" + outer)
				return context.WithValue(ctx, noteKey{}, name), func(OperationEnd) { event(")") }
			},
			RequestStart: func(_ context.Context, e RequestEvent) { event(e.Name) },
			Request:      func(_ context.Context, e RequestEvent) { event(e.Name) }, Retry: func(_ context.Context, e RetryEvent) { event(e.Name) },
			Conflict: func(_ context.Context, e ConflictEvent) { event(e.Blob) }, Repair: func(_ context.Context, e RepairEvent) { event(e.Did) },
			Damage: func(_ context.Context, e DamageEvent) { event(e.Blob) },
		}
	}
	silent := Observer{OperationStart: func(context.Context, Operation) (context.Context, func(OperationEnd)) { return nil, nil }}
	o := Tee(Observer{}, silent, nested("a"), silent, nested("b"))
	ctx, end := o.OperationStart(t.Context(), Operation{Name: "Read"})
	o.RequestStart(ctx, RequestEvent{Name: "start"})
	o.Request(ctx, RequestEvent{Name: "put"})
	o.Retry(ctx, RetryEvent{Name: "get"})
	o.Conflict(ctx, ConflictEvent{Blob: "x"})
	o.Repair(ctx, RepairEvent{RepairedPlan: RepairedPlan{Did: "y"}})
	o.Damage(ctx, DamageEvent{Blob: "z"})
	end(OperationEnd{Requests: 1})
	if got, want := strings.Join(order, " "), "a( b(a astart bstart aput bput aget bget ax bx ay by az bz b) a)"; got != want {
		t.Errorf("the order was %s, want %s", got, want)
	}
	if !Tee().empty() || !Tee(Observer{}, Observer{}).empty() {
		t.Error("nothing and nothing is something")
	}
	if err := silent.observe(t.Context(), "Read", uuid.Nil, func(ctx context.Context) error { return ctx.Err() }); err != nil {
		t.Error(err)
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

// TestLookForWhatIsAbsent checks that LogObserver reports no error if a look finds nothing.
func TestLookForWhatIsAbsent(t *testing.T) {
	var log strings.Builder
	o := LogObserver(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	_, end := o.OperationStart(t.Context(), Operation{Name: "FindNote"})
	end(OperationEnd{Operation: Operation{Name: "FindNote"}, Outcome: OutcomeNotFound, Err: storage.ErrNotFound})
	if got := log.String(); !strings.Contains(got, "level=DEBUG") || !strings.Contains(got, "err=<nil>") {
		t.Error(got)
	}
}
