package driver

import (
	"strings"

	"github.com/planvault/azblob/workflow"
)

// Version returns the State.ETag of a stored object. It consists of the vault's own name for the stored
// version, the object's status, and the [workflow.Fingerprint] of its children if it has any. [CheckUpdate]
// compares status and fingerprint with its input, so it finds a lost child, or a plan that goes back, without
// a request. The name must not be empty or contain an @.
//
// Everything below o must be in place. Version reads only its IDs, so other goroutines may work on it.
func Version(name string, o workflow.Object) string {
	state := o.Header().State
	version := append(make([]byte, 0, 128), name...)
	version = append(append(version, '@'), state.Status.String()...)
	if children := workflow.Fingerprint(o); children != "" {
		version = append(append(version, '@'), children...)
	}
	if string(version) == state.ETag {
		return state.ETag // of a plan that was read, most objects have their version
	}
	return string(version)
}

// SplitVersion returns the vault's name of a version, and the object's status in it. known is false if
// Version can't have made the version.
func SplitVersion(version string) (name string, status workflow.Status, known bool) {
	name, status, _, known = splitVersion(version)
	return name, status, known
}

func splitVersion(version string) (name string, status workflow.Status, children string, known bool) {
	name, rest, found := strings.Cut(version, "@")
	text, children, _ := strings.Cut(rest, "@")
	status, valid := parseStatus(text)
	known = found && name != "" && valid
	return name, status, children, known
}

func parseStatus(text string) (workflow.Status, bool) {
	for s := workflow.NotStarted; s.Valid(); s++ {
		if s.String() == text {
			return s, true
		}
	}
	return 0, false
}
