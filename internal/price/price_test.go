package price

import (
	"testing"

	"github.com/planvault/azblob"
)

// TestDollars has the prices of docs/operating.md.
func TestDollars(t *testing.T) {
	for _, c := range []struct {
		tally Tally
		want  float64 // for 10,000 times as many requests
	}{
		{Tally{azblob.ClassWrite: 6}, 0.33},
		{Tally{azblob.ClassList: 2, azblob.ClassRead: 10, azblob.ClassOther: 5}, 2*0.055 + 15*0.0044},
		{Tally{azblob.ClassDelete: 1000}, 0},
	} {
		if got := 10_000 * c.tally.Dollars(); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%v: %v, not %v", c.tally, got, c.want)
		}
	}
}
