package approve_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/engine/approve"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// said is what somebody does, and when: the plan is created at 0.
type said struct {
	at     time.Duration
	who    string
	reject bool
}

// TestApproval lets people decide about an action, in a fleet and without.
func TestApproval(t *testing.T) {
	const day = 3 * time.Hour
	for name, test := range map[string]struct {
		req   approve.Request
		opts  approve.Options
		saids []said
		want  string        // who approved, or the error
		after time.Duration // at the earliest; at the latest a minute later
	}{
		"one":                  {saids: []said{{time.Hour, "ana", false}}, want: "ana", after: time.Hour},
		"before it begins":     {saids: []said{{0, "ana", false}}, want: "ana"},
		"two":                  {req: approve.Request{Of: 2}, saids: []said{{time.Hour, "ana", false}, {2 * day, "ben", false}}, want: "ana ben", after: 2 * day},
		"one person twice":     {req: approve.Request{Of: 2}, saids: []said{{time.Hour, "ana", false}, {2 * time.Hour, "ana", false}, {day, "ben", false}}, want: "ana ben", after: day},
		"two of one name":      {req: approve.Request{Of: 2}, saids: []said{{time.Hour, "ana", false}, {2 * time.Hour, "Ana ", false}, {day, "ben", false}}, want: "ana ben", after: day},
		"the submitter, again": {saids: []said{{time.Hour, " SUB", false}, {day, "ana", false}}, want: "ana", after: day},
		"the submitter":        {saids: []said{{time.Hour, "sub", false}, {day, "ana", false}}, want: "ana", after: day},
		"the submitter may":    {opts: approve.Options{SubmitterMay: true}, saids: []said{{time.Hour, "sub", false}}, want: "sub", after: time.Hour},
		"not everybody":        {opts: approve.Options{Allowed: func(_ engine.Call, by string) bool { return by == "ana" }}, saids: []said{{time.Hour, "ben", false}, {2 * time.Hour, "ben", true}, {day, "ana", false}}, want: "ana", after: day},
		"rejected":             {req: approve.Request{Of: 2}, saids: []said{{time.Hour, "ana", false}, {day, "ben", true}}, want: "rejected by ben: because", after: day},
		"the submitter's no":   {saids: []said{{time.Hour, "sub", true}}, want: "rejected by sub: because", after: time.Hour},
		"in time":              {req: approve.Request{Within: day}, saids: []said{{day - time.Second, "ana", false}}, want: "ana", after: day - time.Second},
		"late":                 {req: approve.Request{Of: 2, Within: day}, saids: []said{{time.Hour, "ana", false}, {day + 5*time.Second, "ben", false}}, want: "not approved within 3h0m0s: 1 of 2", after: day},
		"late, and passes":     {req: approve.Request{Of: 2, Within: day, Else: approve.Pass}, saids: []said{{time.Hour, "ana", false}}, want: "ana expired", after: day},
		"rejected in the race": {saids: []said{{time.Hour, "ana", false}, {time.Hour, "ben", true}}, want: "ana", after: time.Hour},
	} {
		for _, inFleet := range []bool{true, false}[:efforttest.Pick(1, 2, 2)] {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					task := approve.Task("approval", test.opts)
					vault := memvault.New(registry.Must(task), memvault.Options{})
					a := task.Action("a", test.req)
					p := &workflow.Plan{Name: "release", Submitted: workflow.Actor{By: "sub"}, Blocks: []*workflow.Block{{Name: "b", Sequences: []*workflow.Sequence{{Name: "s", Actions: []*workflow.Action{a}}}}}}
					must(t, vault.Create(t.Context(), p))
					began := time.Now()
					go func() {
						for _, s := range test.saids {
							time.Sleep(s.at - time.Since(began))
							do := approve.Approve
							if s.reject {
								do = approve.Reject
							}
							if _, err := do(t.Context(), vault, p.ID, uuid.New(), workflow.Attribution{By: "cem"}); err != nil { // another action
								t.Errorf("%v: %v", s, err)
							}
							if _, err := do(t.Context(), vault, p.ID, a.ID, workflow.Attribution{By: s.who, Why: "because"}); err != nil {
								t.Errorf("%v: %v", s, err)
							}
						}
					}()
					opts := engine.Options{UntilIdle: true, NoRetention: true, Poll: 10 * time.Second}
					if inFleet {
						opts.Fleet = &fleet.Options{}
					}
					e, err := engine.New(vault, opts)
					must(t, err)
					time.Sleep(time.Millisecond)
					must(t, e.Run(t.Context()))
					end, err := vault.Read(t.Context(), p.ID)
					must(t, err)
					if got := outcomeOf(end); got != test.want {
						t.Errorf("%q, want %q", got, test.want)
					}
					if took := end.State.End.Sub(began); took < test.after || took > test.after+time.Minute {
						t.Errorf("after %v, want %v", took, test.after)
					}
				})
			})
		}
	}
}

// outcomeOf returns who approved the action of a plan, or the error.
func outcomeOf(p *workflow.Plan) string {
	last := p.Blocks[0].Sequences[0].Actions[0].Attempts[0]
	if last.Err != nil {
		return last.Err.Message
	}
	resp := last.Resp.(approve.Response)
	var who []string
	for _, by := range resp.By {
		if by.At.IsZero() || by.Why != "because" {
			who = append(who, "?")
		}
		who = append(who, by.By)
	}
	if resp.Expired {
		who = append(who, "expired")
	}
	return strings.Join(who, " ")
}

// TestRefused: what can't be is refused before anything is stored.
func TestRefused(t *testing.T) {
	task := approve.Task("approval", approve.Options{})
	for _, req := range []approve.Request{{Of: -1}, {Of: fleet.MaxSignals + 1}, {Within: -1}, {Within: 1 << 62}, {Else: "maybe"}} {
		if err := task.Check(req); err == nil {
			t.Errorf("%+v is accepted", req)
		}
	}
	vault := memvault.New(registry.Must(task), memvault.Options{})
	if _, err := approve.Approve(context.Background(), vault, workflow.NewV7(), uuid.New(), workflow.Attribution{}); err == nil || !strings.Contains(err.Error(), "say who") {
		t.Errorf("nobody approves: %v", err)
	}
}
