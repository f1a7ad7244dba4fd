package vaulttest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// PastGrace is long enough for Recovery to act on remains from before it.
const PastGrace = 15 * time.Minute

// Settled waits for the grace period, runs Recovery, and checks that the store is sound.
func Settled(t *testing.T, v *azblob.Vault) azblob.CheckReport {
	t.Helper()
	time.Sleep(PastGrace)
	if err := v.Recovery(t.Context()); err != nil {
		t.Fatalf("Recovery: %v", err)
	}
	report := Sound(t, v)
	if report.InProgress != 0 {
		t.Errorf("%d plans are in progress after Recovery", report.InProgress)
	}
	return report
}

// WholeOrGone reads a plan. It returns the one of the wanted plans that it found, or nil if the plan is
// absent, and fails the test for anything else.
func WholeOrGone(t *testing.T, v *azblob.Vault, wanted ...*workflow.Plan) (found *workflow.Plan) {
	t.Helper()
	id := wanted[0].ID
	got, err := v.Read(t.Context(), id)
	list, listErr := storage.Collect(v.List(t.Context(), 0))
	Must(t, listErr)
	shown := slices.ContainsFunc(list, func(r storage.ListResult) bool { return r.ID == id })
	exists, existsErr := v.Exists(t.Context(), id)
	Must(t, existsErr)
	if errors.Is(err, storage.ErrNotFound) {
		if shown || exists {
			t.Errorf("Read does not find the plan; List shows it: %v, Exists: %v", shown, exists)
		}
		return nil
	}
	Must(t, err)
	if !shown || !exists {
		t.Errorf("Read finds the plan; List shows it: %v, Exists: %v", shown, exists)
	}
	var d string
	for _, plan := range wanted {
		if d = plantest.Diff(plan, got); d == "" {
			return plan
		}
	}
	t.Fatalf("the plan is none of those it may be: %s", d)
	return nil
}

// Same compares what the vault shows of a plan with the plan.
func Same(t *testing.T, v *azblob.Vault, plan *workflow.Plan) {
	t.Helper()
	if d := plantest.Diff(plan, Reread(t, v, plan)); d != "" {
		t.Fatal(d)
	}
	list, err := storage.Collect(v.List(t.Context(), 0))
	Must(t, err)
	n := 0
	for _, r := range list {
		if r.ID != plan.ID {
			continue
		}
		n++
		if r.Name != plan.Name || r.Descr != plan.Descr || r.GroupID != plan.GroupID || r.State.Status != plan.State.Status || !r.SubmitTime.Equal(plan.SubmitTime) {
			t.Errorf("List shows %+v of %+v", r, plan)
		}
	}
	if n != 1 {
		t.Errorf("List shows the plan %d times", n)
	}
	if ok, err := v.Exists(t.Context(), plan.ID); !ok || err != nil {
		t.Errorf("Exists: %v, %v", ok, err)
	}
}

// Sound fails the test if Check finds a problem.
func Sound(t *testing.T, v *azblob.Vault) azblob.CheckReport {
	t.Helper()
	report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
	Must(t, err)
	for _, p := range report.Problems {
		t.Error(p)
	}
	return report
}

// Must fails the test at an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Within returns a context that ends after some time.
func Within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Offered returns what a vault offers by [storage.As].
func Offered[T any](v storage.Vault) T {
	found, _ := storage.As[T](v)
	return found
}

// ErrOf returns the error of a call with a result.
func ErrOf[T any](_ T, err error) error { return err }

// Collect gathers a listing, failing the test at any Err.
func Collect(t *testing.T, v *azblob.Vault, f storage.Filters) []storage.ListResult {
	t.Helper()
	found, err := storage.Collect(v.Search(t.Context(), f))
	Must(t, err)
	return found
}

// IDs returns the IDs of plans that were listed.
func IDs(list []storage.ListResult) (ids []uuid.UUID) {
	for _, r := range list {
		ids = append(ids, r.ID)
	}
	return ids
}

// Statuses returns the statuses of plans that were listed.
func Statuses(list []storage.ListResult) map[uuid.UUID]workflow.Status {
	statuses := map[uuid.UUID]workflow.Status{}
	for _, r := range list {
		statuses[r.ID] = r.State.Status
	}
	return statuses
}

// Requests counts the requests of each operation.
func Requests(server *emulator.Server) map[emulator.Op]int {
	n := map[emulator.Op]int{}
	for _, r := range server.Requests() {
		n[r.Op]++
	}
	return n
}

// Contents returns the names and bodies of all stored blobs.
func Contents(server *emulator.Server) map[string]string {
	all := map[string]string{}
	for c := range server.Containers() {
		for b := range server.Blobs(c) {
			all[c+"/"+b.Name] = b.ETag + string(b.Body)
		}
	}
	return all
}

// Stored counts the blobs in all containers.
func Stored(server *emulator.Server) (n int) {
	for c := range server.Containers() {
		n += server.Len(c)
	}
	return n
}

// Named replaces each ID with a letter, so that a trace is always the same.
func Named(trace string) string {
	letters := map[string]string{}
	return regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).ReplaceAllStringFunc(trace, func(id string) string {
		if letters[id] == "" {
			letters[id] = fmt.Sprintf("<%c>", 'a'+len(letters))
		}
		return letters[id]
	})
}

// Catalogues returns the number of catalogues in a store, and whether one can be read and is not just a placeholder.
func Catalogues(server *emulator.Server) (n int, built bool) {
	for c := range server.Containers() {
		if b, ok := server.Blob(c, "catalogue"); ok {
			n++
			built = built || b.Metadata["state"] == "built"
		}
	}
	return n, built
}

// EqualListings checks that the catalogue of a store with one day shows what its listings show. The one is taken
// from a store without plans, and the others from one without the catalogue.
func EqualListings(t *testing.T, server *emulator.Server) {
	t.Helper()
	if _, built := Catalogues(server); !built {
		return
	}
	plain, bare := server.Clone(), server.Clone()
	for c := range server.Containers() {
		plain.Remove(c, "catalogue")
		bare.PutContainer(c, map[string]string{"planvaultlayout": "1", "planvaultcatalogue": "1"}) // the hint may be yet to come
		for b := range server.Blobs(c) {
			if strings.HasPrefix(b.Name, "plans/") {
				bare.Remove(c, b.Name)
			}
		}
	}
	want, got := ShownBy(t, plain), ShownBy(t, bare)
	if !slices.Equal(want, got) {
		t.Errorf("a catalogue shows\n%v\nand a listing\n%v", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// ShownBy returns the results of List, Search and Count as text.
func ShownBy(t *testing.T, server *emulator.Server) (lines []string) {
	t.Helper()
	v := WithToken(t, server)
	all, listErr := storage.Collect(v.List(t.Context(), 0))
	done, doneErr := storage.Collect(v.Search(t.Context(), storage.Filters{ByStatus: []workflow.Status{workflow.Completed}}))
	fresh, freshErr := storage.Collect(v.Search(t.Context(), storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted}}))
	n, countErr := v.Count(t.Context(), storage.Filters{})
	if err := errors.Join(listErr, doneErr, freshErr, countErr); err != nil {
		t.Error(err)
	}
	for _, r := range slices.Concat(all, done, fresh) {
		lines = append(lines, fmt.Sprintf("%+v", r))
	}
	return append(lines, fmt.Sprint(n))
}

// Build builds the catalogues that are due.
func Build(t *testing.T, v *azblob.Vault) {
	t.Helper()
	report, err := v.Admin().Catalogue(t.Context(), azblob.CatalogueOptions{})
	Must(t, err)
	for _, s := range report.Skipped {
		if !strings.Contains(s.Detail, "open") {
			t.Errorf("%v is skipped: %s", s.Day, s.Reason)
		}
	}
}

// UntilClosed is how long after a bubble begins its first day is closed.
const UntilClosed = 60 * time.Hour

// Ceil returns a/b, rounded up.
func Ceil(a, b int) int { return (a + b - 1) / b }

// Sampled reports whether a run belongs to an even sample of a space of two dimensions: n of each n×n
// neighbouring runs, with one in each row and column. With PLANVAULT_LONG every run does.
func Sampled(n, row, column int) bool {
	return efforttest.Long() || (row+column)%n == 0
}

// ModelSeed is the first seed of random tests.
var ModelSeed = flag.Uint64("model.seed", 1, "first seed of TestModel, TestModelHistories and TestLies")

// Portal is the page of a captive portal.
const Portal = "<html><body>Please\nsign in.</body></html>"

// Should reports an error. Unlike [Must], it may be called by any goroutine.
func Should(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Fails checks that an error is all of these, and that it is ErrUnknown only if that is one of them.
func Fails(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("got %v, want %v", err, w)
		}
	}
	if errors.Is(err, storage.ErrUnknown) && !slices.Contains(want, storage.ErrUnknown) {
		t.Errorf("got %v, want a known outcome", err)
	}
}

// Empty checks that no blob is stored.
func Empty(t *testing.T, server *emulator.Server) {
	t.Helper()
	if n := Stored(server); n != 0 {
		t.Errorf("%d blobs are left", n)
	}
}

// Untouched returns a check that no blob has changed since.
func Untouched(t *testing.T, server *emulator.Server) (check func()) {
	t.Helper()
	before := Contents(server)
	return func() {
		t.Helper()
		if !maps.Equal(before, Contents(server)) {
			t.Error("something has changed in the store")
		}
	}
}

// Sent counts the requests of an operation for blobs with this in their names.
func Sent(server *emulator.Server, op emulator.Op, part string) (n int) {
	for _, r := range server.Requests() {
		if r.Op == op && strings.Contains(r.Blob, part) {
			n++
		}
	}
	return n
}
