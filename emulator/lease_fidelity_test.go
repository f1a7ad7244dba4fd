package emulator_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
)

// Lease IDs of the comparison. The first one is that of the leases.
const (
	oneLease     = "0190a3c0-0000-7000-8000-00000000000a"
	anotherLease = "0190a3c0-0000-7000-8000-00000000000b"
)

// leaseAsk returns an action on the lease of a container, with pairs of names and values of headers.
func leaseAsk(container, action string, headers ...string) *ask {
	a := (&ask{op: emulator.LeaseContainer, method: http.MethodPut, container: container}).where("restype", "container").where("comp", "lease")
	a.with("x-ms-lease-action", action)
	for i := 0; i < len(headers); i += 2 {
		a.with(headers[i], headers[i+1])
	}
	return a
}

func acquireAsk(container, id, duration string) *ask {
	return leaseAsk(container, "acquire", "x-ms-proposed-lease-id", id, "x-ms-lease-duration", duration)
}

// leaseStates are the requests that bring the lease of a new container into each state.
var leaseStates = map[string]func(container string) []*ask{
	"available": func(string) []*ask { return nil },
	"fixed":     func(c string) []*ask { return []*ask{acquireAsk(c, oneLease, "60")} },
	"infinite":  func(c string) []*ask { return []*ask{acquireAsk(c, oneLease, "-1")} },
	"expired":   func(c string) []*ask { return []*ask{acquireAsk(c, oneLease, "15")} }, // and a wait
	"breaking": func(c string) []*ask {
		return []*ask{acquireAsk(c, oneLease, "-1"), leaseAsk(c, "break", "x-ms-lease-break-period", "60")}
	},
	"broken": func(c string) []*ask { return []*ask{acquireAsk(c, oneLease, "-1"), leaseAsk(c, "break")} },
	"released": func(c string) []*ask {
		return []*ask{acquireAsk(c, oneLease, "-1"), leaseAsk(c, "release", "x-ms-lease-id", oneLease)}
	},
	"absent": nil,
}

// leaseActs are what is done in each state.
var leaseActs = map[string]func(container string) *ask{
	"acquire for a time":         func(c string) *ask { return acquireAsk(c, oneLease, "60") },
	"acquire for ever":           func(c string) *ask { return acquireAsk(c, oneLease, "-1") },
	"acquire another for a time": func(c string) *ask { return acquireAsk(c, anotherLease, "60") },
	"acquire another for ever":   func(c string) *ask { return acquireAsk(c, anotherLease, "-1") },
	"renew":                      func(c string) *ask { return leaseAsk(c, "renew", "x-ms-lease-id", oneLease) },
	"renew another":              func(c string) *ask { return leaseAsk(c, "renew", "x-ms-lease-id", anotherLease) },
	"release":                    func(c string) *ask { return leaseAsk(c, "release", "x-ms-lease-id", oneLease) },
	"release another":            func(c string) *ask { return leaseAsk(c, "release", "x-ms-lease-id", anotherLease) },
	"break":                      func(c string) *ask { return leaseAsk(c, "break") },
	"break at once":              func(c string) *ask { return leaseAsk(c, "break", "x-ms-lease-break-period", "0") },
	"break soon":                 func(c string) *ask { return leaseAsk(c, "break", "x-ms-lease-break-period", "30") },
	"delete":                     func(c string) *ask { return containerAsks()["delete"](c) },
	"delete with the ID":         func(c string) *ask { return containerAsks()["delete"](c).with("x-ms-lease-id", oneLease) },
	"delete with another ID":     func(c string) *ask { return containerAsks()["delete"](c).with("x-ms-lease-id", anotherLease) },
	"head with the ID":           func(c string) *ask { return containerAsks()["head"](c).with("x-ms-lease-id", oneLease) },
	"head with another ID":       func(c string) *ask { return containerAsks()["head"](c).with("x-ms-lease-id", anotherLease) },
	"set metadata":               func(c string) *ask { return containerAsks()["set metadata"](c) },
	"set metadata with the ID": func(c string) *ask {
		return containerAsks()["set metadata"](c).with("x-ms-lease-id", oneLease)
	},
	"set metadata with another ID": func(c string) *ask {
		return containerAsks()["set metadata"](c).with("x-ms-lease-id", anotherLease)
	},
	"create":     createAsk,
	"put a blob": func(c string) *ask { return putAsk(c, "blob", "body") },
	"list":       func(c string) *ask { return containerAsks()["list"](c) },
	"release old": func(c string) *ask {
		return leaseAsk(c, "release", "x-ms-lease-id", oneLease).with("If-Unmodified-Since", past)
	},
}

// testLeases returns a test that does each act in each state. It acquires the leases that have to expire at once, so
// that the test need not wait if it runs after others.
func (f *fidelity) testLeases(t *testing.T) func(t *testing.T) {
	m := newMemory()
	// lease makes a container whose lease is in a state.
	lease := func(state string) string {
		container := strings.ReplaceAll(f.name(), f.prefix, f.prefix+"-"+state)
		if state != "absent" {
			f.must(t, m, createAsk(container))
			for _, a := range leaseStates[state](container) {
				f.must(t, m, a)
			}
		}
		return container
	}
	expired := make(map[string]string)
	for act := range leaseActs {
		expired[act] = lease("expired")
	}
	end := time.Now().Add(16 * time.Second)
	return func(t *testing.T) {
		for _, state := range slices.Sorted(maps.Keys(leaseStates)) {
			if state == "expired" {
				time.Sleep(time.Until(end))
			}
			for _, act := range slices.Sorted(maps.Keys(leaseActs)) {
				container := expired[act]
				if state != "expired" {
					container = lease(state)
				}
				v := f.must(t, m, leaseActs[act](container))
				after := f.must(t, m, containerAsks()["head"](container))
				if len(v.unexplained)+len(after.unexplained) > 0 {
					t.Logf("the case is %s, %s", state, act)
				}
				fmt.Fprintf(&f.answers, "%s, %s -> %s, then %s %s\n", state, act, v.outcome(inEmulator),
					after.reply[inEmulator].header.Get("X-Ms-Lease-State"), after.reply[inEmulator].header.Get("X-Ms-Lease-Duration"))
			}
			f.must(t, m, account(emulator.ListContainers, http.MethodGet, "comp", "list", "prefix", f.prefix+"-"+state))
		}
	}
}
