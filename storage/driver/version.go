package driver

import (
	"strings"

	"github.com/planvault/azblob/workflow"
)

// Version is what a vault puts into State.ETag: its own name for the stored version, the status that the object has in it,
// and where the object has children their fingerprint. CheckUpdate compares status and fingerprint with what it is given, so
// a plan that goes back or a child that was lost is seen without asking the store. The name must not be empty or hold an @.
//
// All below o must be in place. Version reads only its IDs, so other goroutines may work on it meanwhile.
func Version(name string, o workflow.Object) string {
	version := name + "@" + o.Header().State.Status.String()
	if children := workflow.Fingerprint(o); children != "" {
		version += "@" + children
	}
	return version
}

// SplitVersion returns the vault's name of a version, and the status that the object has in it. known is false where the
// version is not of the form that Version gives it.
func SplitVersion(version string) (name string, status workflow.Status, known bool) {
	name, status, _, known = splitVersion(version)
	return name, status, known
}

func splitVersion(version string) (name string, status workflow.Status, children string, known bool) {
	name, rest, found := strings.Cut(version, "@")
	text, children, _ := strings.Cut(rest, "@")
	known = found && name != "" && status.UnmarshalText([]byte(text)) == nil
	return name, status, children, known
}
