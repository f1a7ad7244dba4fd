// Package copies marks the versions of plans that a mirror has written; see [storage.Copier].
package copies

import (
	"fmt"
	"strings"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// Mark returns the vault's name for a version that has the mark of a copy; see [storage.Copier].
func Mark(name string) string { return name + mark }

const mark = "*"

// Cut returns the name that was given to [Mark], and whether it was.
func Cut(name string) (string, bool) { return strings.CutSuffix(name, mark) }

// Marked reports whether a version has the mark of a copy.
func Marked(version string) bool {
	name, _, known := driver.SplitVersion(version)
	_, copied := Cut(name)
	return known && copied
}

// Check returns [storage.ErrConflict] if a version lacks the mark of a copy.
func Check(version string) error {
	if Marked(version) {
		return nil
	}
	return fmt.Errorf("%w: no mirror has written this version of the plan", storage.ErrConflict)
}
