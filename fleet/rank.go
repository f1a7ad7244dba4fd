package fleet

import (
	"bytes"
	"crypto/sha256"
	"iter"

	"github.com/google/uuid"
)

// first reports whether node comes first for a plan among the members, by rendezvous hashing. This spreads the plans, and
// when a member goes, only its plans move. Nodes need not agree on the members, since the store decides.
func first(plan, node uuid.UUID, members iter.Seq[uuid.UUID]) bool {
	own := weight(plan, node)
	for m := range members {
		if other := weight(plan, m); bytes.Compare(other[:], own[:]) > 0 {
			return false
		}
	}
	return true
}

func weight(plan, node uuid.UUID) [sha256.Size]byte {
	return sha256.Sum256(append(plan[:], node[:]...))
}
