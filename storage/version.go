package storage

import (
	"strings"

	"github.com/planvault/azblob/workflow"
)

// Version is what a vault puts into State.ETag: its own name for the stored version, and the status that the object had in
// it, so that CheckUpdate sees a move backwards without asking the store. The name must not hold an @.
func Version(name string, status workflow.Status) string {
	return name + "@" + status.String()
}

// SplitVersion takes a version apart. known is false where it holds no status; then all of it is the name.
func SplitVersion(version string) (name string, status workflow.Status, known bool) {
	name, text, found := strings.Cut(version, "@")
	known = found && status.UnmarshalText([]byte(text)) == nil
	return name, status, known
}
