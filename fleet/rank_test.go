package fleet

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// TestFirst: exactly one of the members comes first for a plan, whatever their order; when a member goes, only
// its plans move; and each gets about its share.
func TestFirst(t *testing.T) {
	var members []uuid.UUID
	for range 8 {
		members = append(members, workflow.NewV7())
	}
	firstOf := func(plan uuid.UUID, members []uuid.UUID) (found uuid.UUID) {
		for _, m := range members {
			if first(plan, m, slices.Values(members)) {
				if found != uuid.Nil {
					t.Fatalf("both %s and %s come first", found, m)
				}
				found = m
			}
		}
		return found
	}
	share := map[uuid.UUID]int{}
	const plans = 2000
	for range plans {
		plan := workflow.NewV7()
		m := firstOf(plan, members)
		share[m]++
		others := slices.DeleteFunc(slices.Clone(members), func(o uuid.UUID) bool { return o == members[3] })
		slices.Reverse(others)
		switch now := firstOf(plan, others); {
		case now == uuid.Nil:
			t.Fatal("nobody comes first")
		case m != members[3] && now != m:
			t.Errorf("the plan moved from %s to %s when another member left", m, now)
		}
	}
	for _, m := range members {
		if n := share[m]; n < plans/8*2/3 || n > plans/8*4/3 {
			t.Errorf("a member comes first for %d of %d plans", n, plans)
		}
	}
}
