package emulator_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
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

// testLeases does each act in each state.
func (f *fidelity) testLeases(t *testing.T) {
	m := newMemory()
	for _, state := range slices.Sorted(maps.Keys(leaseStates)) {
		prefix := f.name()
		containers := make(map[string]string)
		for i, act := range slices.Sorted(maps.Keys(leaseActs)) {
			containers[act] = fmt.Sprintf("%s-%s-%d", prefix, state, i)
			if state == "absent" {
				continue
			}
			f.must(t, m, createAsk(containers[act]))
			for _, a := range leaseStates[state](containers[act]) {
				f.must(t, m, a)
			}
		}
		if state == "expired" {
			f.wait(16 * time.Second)
		}
		for _, act := range slices.Sorted(maps.Keys(leaseActs)) {
			v := f.must(t, m, leaseActs[act](containers[act]))
			after := f.must(t, m, containerAsks()["head"](containers[act]))
			if len(v.unexplained)+len(after.unexplained) > 0 {
				t.Logf("the case is %s, %s", state, act)
			}
			fmt.Fprintf(&f.answers, "%s, %s -> %s, then %s %s\n", state, act, v.outcome(inEmulator),
				after.reply[inEmulator].header.Get("X-Ms-Lease-State"), after.reply[inEmulator].header.Get("X-Ms-Lease-Duration"))
		}
		f.must(t, m, account(emulator.ListContainers, http.MethodGet, "comp", "list", "prefix", prefix))
	}
}
