package azblob

import (
	"context"
	"math"
	"slices"

	"github.com/google/uuid"
)

const (
	// perPlan is how many blobs a plan has in plans/: an entry and an object.
	perPlan = 2
	// surplus is the ratio of what a window should hold to what is wanted. It may hold a little less than
	// expected.
	surplus = 1.4
)

// scale measures a part of a day by its groups: the minutes that have plans, or the milliseconds.
type scale struct {
	groups  []uint64 // their first keys, in ascending order
	size    uint64
	density float64 // how many blobs a group should hold; infinite if unknown
}

// measure returns the scale of a window. Each group has at least one plan.
func measure(ctx context.Context, from reader, w window) (*scale, error) {
	groups, err := from.groups(ctx, w)
	size := w.groupSize()
	groups = slices.DeleteFunc(groups, func(g uint64) bool { return g+size <= keyOf(w.from) || g > w.last() })
	return &scale{groups: groups, size: size, density: perPlan}, err
}

// since returns how many groups begin at an ID or later.
func (c *scale) since(id uuid.UUID) int {
	n, _ := slices.BinarySearch(c.groups, keyOf(id))
	return len(c.groups) - n
}

// position returns how many groups lie before an ID. A group that the ID divides counts in part.
func (c *scale) position(id uuid.UUID) float64 {
	key := keyOf(id)
	n, found := slices.BinarySearch(c.groups, key)
	if found || n == 0 {
		return float64(n)
	}
	return float64(n-1) + min(1, float64(key-c.groups[n-1])/float64(c.size))
}

// at returns the first ID at a position.
func (c *scale) at(position float64) uuid.UUID {
	n, part := math.Modf(position)
	return idOf(c.groups[int(n)] + uint64(part*float64(c.size)))
}

// estimate returns how many blobs a minute should hold, given how many of the latest minutes are without
// plans. It returns infinity if none of them is.
func (c *scale) estimate(from uuid.UUID, latest int) float64 {
	groups, first := c.groups, keyOf(from)
	if earlier := len(groups) - latest; earlier > 0 {
		groups = groups[earlier:]
		first = groups[0]
	}
	minutes := groups[len(groups)-1]/aMinute - first/aMinute + 1
	busy := float64(len(groups)) / float64(minutes)
	return -perPlan * math.Log(1-busy) / busy
}
