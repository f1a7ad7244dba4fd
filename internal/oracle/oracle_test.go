package oracle

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// TestEveryFilterIsDrawn fails if a field of the filters is not drawn, or never selects some of the plans.
func TestEveryFilterIsDrawn(t *testing.T) {
	var plans []*workflow.Plan
	for i := range 10 {
		at := time.Now().Add(-time.Duration(i) * time.Hour)
		plans = append(plans, &workflow.Plan{
			ID: workflow.NewV7At(at), GroupID: uuid.New(), ForkedFrom: workflow.NewV7(), Name: string(rune('a'+i)) + " name",
			Submitted: workflow.Actor{By: strconv.Itoa(i % 4)}, Keys: []workflow.Key{{Name: strconv.Itoa(i % 2)}}, Labels: map[string]string{"a": strconv.Itoa(i), "b": strconv.Itoa(i % 3)}, State: workflow.State{Status: workflow.Status(i % 5), End: at},
		})
	}
	r := rand.New(rand.NewPCG(1, 0))
	selective := map[string]bool{"Limit": true}
	for range 2000 {
		f := Draw(r, plans, 1+r.IntN(3))
		if len(f.Fields()) == 0 {
			continue
		}
		if err := driver.CheckFilters(f); err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
		n := 0
		for _, p := range plans {
			if Selects(f, p) != driver.Choose(f, driver.Listed(p)) {
				t.Fatalf("%+v: package driver says %t of %+v", f, !Selects(f, p), p)
			}
			if Selects(f, p) {
				n++
			}
		}
		if set := f.Fields(); len(set) == 1 && n > 0 && n < len(plans) {
			selective[set[0]] = true
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[storage.Filters]()) {
		if !selective[f.Name] || !slices.ContainsFunc(filters, func(row filter) bool { return row.field == f.Name }) {
			t.Errorf("%s is not drawn, or selects all plans or none", f.Name)
		}
	}
}
