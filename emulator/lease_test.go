package emulator_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/emulator"
)

// TestLeaseTimes moves the lease of a container through time. TestFidelity compares what each action does in
// each state. A step is an action with a duration or break period, or a wait; the state follows.
func TestLeaseTimes(t *testing.T) {
	for _, script := range []string{
		"acquire 15: leased fixed, wait 14: leased fixed, renew: leased fixed, wait 14: leased fixed, wait 1: expired",
		"acquire 15: leased fixed, acquire 60: leased fixed, wait 59: leased fixed, wait 1: expired, renew: leased fixed, wait 60: expired",
		"acquire -1: leased infinite, wait 99: leased infinite, break 30: breaking, break 60: breaking, wait 29: breaking, wait 1: broken",
		"acquire 20: leased fixed, wait 5: leased fixed, break: breaking, wait 14: breaking, wait 1: broken",
		"acquire 20: leased fixed, break 60: breaking, wait 19: breaking, wait 1: broken, break 20: broken",
		"acquire 20: leased fixed, break 0: broken, acquire 15: leased fixed, wait 15: expired, break 60: broken",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := emulator.New()
			s.PutContainer("plans", nil)
			for i, step := range strings.Split(script, ", ") {
				do, state, _ := strings.Cut(step, ": ")
				do, n, _ := strings.Cut(do, " ")
				line := ""
				switch do {
				case "wait":
					d, err := time.ParseDuration(n + "s")
					must(t, err)
					time.Sleep(d)
				case "acquire":
					line = "lease /plans do=acquire propose=ONE for=" + n
				case "renew":
					line = "lease /plans do=renew id=ONE"
				case "break":
					line = "lease /plans do=break period=" + n
				}
				if line != "" {
					if r := send(t, s, line); r.status >= http.StatusMultipleChoices {
						t.Errorf("%s, step %d: %s: %d %s", script, i, line, r.status, r.body)
					}
				}
				h := send(t, s, "peek /plans").header
				if got := strings.TrimSpace(h.Get("x-ms-lease-state") + " " + h.Get("x-ms-lease-duration")); got != state {
					t.Errorf("%s, step %d: the state is %q", script, i, got)
				}
			}
		})
	}
}
