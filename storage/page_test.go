package storage_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// plans is an endpoint that lists plans, a page at a time: GET /plans?status=Failed&page=TOKEN.
func plans(vault storage.Vault) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var filters storage.Filters
		if name := r.FormValue("status"); name != "" {
			status, err := workflow.ParseStatus(name)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			filters.ByStatus = []workflow.Status{status}
		}
		page, err := storage.ListPage(r.Context(), vault, filters, r.FormValue("page"), 2)
		if errors.Is(err, storage.ErrInvalid) { // a token of other filters
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		for _, p := range page.Results {
			fmt.Fprintln(w, p.Name, p.State.Status)
		}
		if page.Next != "" {
			fmt.Fprintln(w, "next:", page.Next)
		}
	}
}

func ExampleListPage() {
	vault := memvault.New(nil, memvault.Options{})
	for _, name := range []string{"first", "second", "third"} {
		if err := vault.Create(context.Background(), &workflow.Plan{Name: name}); err != nil {
			fmt.Println(err)
		}
	}
	get := func(query string) string {
		w := httptest.NewRecorder()
		plans(vault)(w, httptest.NewRequest(http.MethodGet, "/plans?"+query, nil))
		return w.Body.String()
	}
	page, next, _ := strings.Cut(get("status=NotStarted"), "next: ")
	fmt.Print(page, "--\n", get("status=NotStarted&page="+strings.TrimSpace(next)))
	fmt.Print(get("status=Broken"))
	// Output:
	// third NotStarted
	// second NotStarted
	// --
	// first NotStarted
	// there is no status "Broken"
}

func TestListPage(t *testing.T) {
	ctx := t.Context()
	vault := memvault.New(nil, memvault.Options{})
	var ids []uuid.UUID
	for range 6 {
		p := &workflow.Plan{Name: "plan"}
		if err := vault.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
		ids = append([]uuid.UUID{p.ID}, ids...)
	}
	own := storage.Filters{NamePrefix: "pl"}
	for _, f := range []storage.Filters{{}, own} {
		for size := 1; size <= len(ids)+1; size++ {
			var found []uuid.UUID
			for token, n := "", 0; n == 0 || token != ""; n++ {
				page, err := storage.ListPage(ctx, vault, f, token, size)
				if err != nil || len(page.Results) > size || n > len(ids) {
					t.Fatalf("size %d, page %d: %d results, %v", size, n, len(page.Results), err)
				}
				for _, r := range page.Results {
					found = append(found, r.ID)
				}
				token = page.Next
			}
			if !slices.Equal(found, ids) {
				t.Errorf("size %d: got %v, want %v", size, found, ids)
			}
		}
	}
	first, err := storage.ListPage(ctx, vault, own, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() (storage.Page, error){
		"a huge size": func() (storage.Page, error) { return storage.ListPage(ctx, vault, own, "", math.MaxInt) },
		"no size":     func() (storage.Page, error) { return storage.ListPage(ctx, vault, own, "", 0) },
		"a limit":     func() (storage.Page, error) { return storage.ListPage(ctx, vault, storage.Filters{Limit: 3}, "", 1) },
		"a place": func() (storage.Page, error) {
			return storage.ListPage(ctx, vault, storage.Filters{BeforeID: ids[0]}, "", 1)
		},
		"other filters": func() (storage.Page, error) { return storage.ListPage(ctx, vault, storage.Filters{}, first.Next, 1) },
		"garbage":       func() (storage.Page, error) { return storage.ListPage(ctx, vault, own, "☃", 1) },
		"a cut token":   func() (storage.Page, error) { return storage.ListPage(ctx, vault, own, first.Next[:20], 1) },
	} {
		if _, err := call(); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// halfRead is a vault of which every second plan can't be read, and whose listings end with an error.
type halfRead struct{ storage.Vault }

var errLost = errors.New("lost")

func (h halfRead) Search(ctx context.Context, f storage.Filters) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	all, err := h.Vault.Search(ctx, f)
	return func(yield func(storage.Stream[storage.ListResult]) bool) {
		n := 0
		for r := range all {
			if n++; n%2 == 0 {
				r = storage.Stream[storage.ListResult]{Err: &storage.Error{Op: "Search", Plan: r.Result.ID, Err: errLost}}
			}
			if !yield(r) {
				return
			}
		}
		yield(storage.Stream[storage.ListResult]{Err: &storage.Error{Op: "Search", Err: storage.ErrUnavailable}})
	}, err
}

func TestListPageOfUnreadablePlans(t *testing.T) {
	vault := memvault.New(nil, memvault.Options{})
	for range 4 {
		if err := vault.Create(t.Context(), &workflow.Plan{Name: "plan"}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := storage.ListPage(t.Context(), halfRead{vault}, storage.Filters{NamePrefix: "plan"}, "", 2)
	if len(page.Results) != 1 || page.Next == "" || !errors.Is(err, errLost) {
		t.Errorf("got %d plans, %q, %v", len(page.Results), page.Next, err)
	}
	page, err = storage.ListPage(t.Context(), halfRead{vault}, storage.Filters{NamePrefix: "plan"}, page.Next, 2)
	if len(page.Results) != 1 || page.Next != "" || !errors.Is(err, errLost) {
		t.Errorf("got %d plans, %q, %v", len(page.Results), page.Next, err)
	}
	page, err = storage.ListPage(t.Context(), halfRead{vault}, storage.Filters{NamePrefix: "plan"}, "", 8)
	if len(page.Results) != 2 || page.Next != "" || !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("got %d plans, %q, %v", len(page.Results), page.Next, err)
	}
}

func FuzzPageToken(f *testing.F) {
	f.Add("AZ2sAAAAcACAAAAAAAAAAAECAwQFBgcI")
	f.Fuzz(func(t *testing.T, token string) {
		_, err := storage.ListPage(t.Context(), memvault.New(nil, memvault.Options{}), storage.Filters{}, token, 1)
		if err != nil && !errors.Is(err, storage.ErrInvalid) {
			t.Error(err)
		}
	})
}
