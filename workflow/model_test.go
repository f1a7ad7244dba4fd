package workflow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/workflow"
)

// id returns the n-th of a fixed series of UUIDv7s, made in 2024.
func id(n int) uuid.UUID {
	return uuid.MustParse(fmt.Sprintf("018f0000-0000-7000-8000-%012x", n))
}

// key returns the n-th of a fixed series of UUIDv4s.
func key(n int) uuid.UUID {
	return uuid.MustParse(fmt.Sprintf("00000000-0000-4000-8000-%012x", n))
}

// stored returns a full plan that ran, as a vault would return it. Every field of the model is set somewhere
// in it. The plan is the same each time.
func stored() *workflow.Plan {
	p := plantest.Full()
	plantest.Finish(p)
	n := 0
	for o := range workflow.Walk(p) {
		n++
		h := o.Header()
		*h.ID, *h.PlanID = id(n), id(1)
		h.State.ETag = fmt.Sprintf(`"0x%X"`, n)
		switch o := o.(type) {
		case *workflow.Checks:
			o.Key = key(n)
		case *workflow.Block:
			o.Key = key(n)
		case *workflow.Sequence:
			o.Key = key(n)
		case *workflow.DeferBatch:
			o.Key = key(n)
		case *workflow.Action:
			o.Key = key(n)
			o.Attempts[0].Err.Permanent, o.Attempts[0].Interrupted, o.Attempts[0].Paused = n%2 == 0, n%2 == 0, n%2 == 0
			if n%3 == 0 {
				o.Attempts[1].Skipped = &workflow.Attribution{By: "ops", Why: "by hand", At: time.Date(2024, 4, 20, 21, 22, 23, 26, time.UTC)}
			}
			o.Attempts[0].Later = &workflow.Later{At: p.State.End, Called: n%2 == 0, LastSignal: n, For: "one of two", State: json.RawMessage(`{"n":1}`)}
		}
	}
	p.GroupID = key(0)
	p.WakeAt, p.LastSignal = time.Date(2024, 4, 20, 21, 22, 23, 26, time.UTC), 7
	p.NotBefore, p.Deadline = p.WakeAt.Add(time.Second), p.WakeAt.Add(time.Minute)
	p.Paused = workflow.Attribution{By: "ops@example.com", Why: "full", At: p.WakeAt}
	p.External, p.Alone = workflow.External{Name: "queue", Ask: "queue show"}, true
	p.Keys, p.KeepTurn, p.Unique, p.WaitsFor = []workflow.Key{{Name: "west", Limit: 3}, {Name: "the \"API\""}}, workflow.KeepWhileAwake, "customer 7", "west"
	p.SubmitTime = time.Date(2024, 4, 20, 21, 22, 23, 24, time.UTC)
	p.RuntimeUpdate = time.Date(2024, 4, 20, 21, 22, 23, 25, time.UTC)
	p.Reason = workflow.PostCheckFailed
	p.Owner, p.Epoch, p.ForkedFrom = id(0), 1<<60, id(99)
	p.Submitted = workflow.Actor{By: "shop@example.com", From: "orders-2, request 7"}
	p.Forked = workflow.Attribution{By: "ops@example.com", Why: "the cache is warm again", At: p.SubmitTime}
	p.Stopped = workflow.Attribution{By: "root@host-3", Why: "wrong \"cluster\"", At: p.RuntimeUpdate}
	p.Ending = workflow.Ending{Reason: workflow.PostCheckFailed, At: p.RuntimeUpdate, Trouble: "the hook was given up"}
	p.State.Status = workflow.Failed
	return p
}

// raw turns the requests and responses of a plan into what they are read back as where no plugin is known.
func raw(t *testing.T, p *workflow.Plan) *workflow.Plan {
	t.Helper()
	text := func(v any) any {
		if v == nil {
			return nil
		}
		b, err := json.Marshal(v)
		must(t, err)
		return json.RawMessage(b)
	}
	for o := range workflow.Walk(p) {
		if a, ok := o.(*workflow.Action); ok {
			a.Req = text(a.Req)
			for i := range a.Attempts {
				a.Attempts[i].Resp = text(a.Attempts[i].Resp)
			}
		}
	}
	return p
}

// problems takes the error of Validate apart.
func problems(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("not a joined error: %v", err)
	}
	var list []string
	for i, e := range joined.Unwrap() {
		if i == 10 && strings.HasPrefix(e.Error(), "and ") {
			break
		}
		var field *workflow.FieldError
		if !errors.As(e, &field) {
			t.Fatalf("not a *FieldError: %v", e)
		}
		if want := field.Field + ": " + field.Problem; e.Error() != want {
			t.Errorf("an error says %q, want %q", e, want)
		}
		list = append(list, e.Error())
	}
	return list
}
