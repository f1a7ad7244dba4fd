package main

import (
	"maps"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/price"
)

// This file estimates what bulk changes take. TestEstimates compares each estimate with the requests that are sent.
// An estimate begins with what looking took, because the change looks again. Plans are taken for final ones of closed
// days, of at most 256 sub-objects; those of the last two days take half as many requests.

// The requests of one step of a change.
var (
	purgePlan = price.Tally{azblob.ClassRead: 1, azblob.ClassWrite: 1, azblob.ClassOther: 7, azblob.ClassDelete: 3}

	readPlan = price.Tally{azblob.ClassRead: 2}
	copyDay  = price.Tally{azblob.ClassList: 3}

	dropDay   = price.Tally{azblob.ClassOther: 2, azblob.ClassWrite: 1, azblob.ClassDelete: 1}
	retireDay = price.Tally{azblob.ClassOther: 3, azblob.ClassWrite: 1, azblob.ClassDelete: 1, azblob.ClassList: 2, azblob.ClassRead: 2}
	keepDay   = price.Tally{azblob.ClassOther: 3, azblob.ClassWrite: 1, azblob.ClassDelete: 1}

	holdDay    = price.Tally{azblob.ClassOther: 2, azblob.ClassList: 2}
	releaseDay = price.Tally{azblob.ClassOther: 2}

	forkPlan = price.Tally{azblob.ClassRead: 2, azblob.ClassWrite: 3, azblob.ClassOther: 4, azblob.ClassDelete: 1}
	stopPlan = price.Tally{azblob.ClassOther: 2, azblob.ClassWrite: 1}

	recoverPlan = price.Tally{azblob.ClassOther: 2, azblob.ClassWrite: 1}

	buildCatalogue = price.Tally{azblob.ClassWrite: 2, azblob.ClassList: 4, azblob.ClassOther: 1}

	restorePlan = price.Tally{azblob.ClassWrite: 3, azblob.ClassOther: 4, azblob.ClassDelete: 2}
	restorePart = price.Tally{azblob.ClassWrite: 1}
	lookAtRole  = price.Tally{azblob.ClassRead: 1} // before each plan or note that a mirror writes
	mirrorNote  = price.Tally{azblob.ClassRead: 1, azblob.ClassWrite: 1}
	updatePlan  = price.Tally{azblob.ClassWrite: 3, azblob.ClassRead: 2, azblob.ClassOther: 1, azblob.ClassDelete: 2}
)

// step is a step of a change, and how often the change takes it.
type step struct {
	of    price.Tally
	times int
}

// estimate returns what looking took and the steps of a change take together.
func estimate(looked price.Tally, steps ...step) price.Tally {
	all := price.Tally{}
	maps.Copy(all, looked)
	for _, s := range steps {
		for class, n := range s.of {
			all[class] += n * int(s.times)
		}
	}
	return all
}
