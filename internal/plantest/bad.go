package plantest

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// BadPlan makes a plan wrong in one field. It applies to any plan of the shape of [Full], whether it is new
// or was read.
type BadPlan struct {
	// Field is the path to the wrong field, as in [workflow.FieldError].
	Field string
	// Problem is part of what the FieldError says about it.
	Problem string
	// Edit makes the field wrong.
	Edit func(p *workflow.Plan)
}

// BadPlans returns all plans that are wrong whether they are new or not: [BadFields], [BadRequests] and
// [BadTrees].
func BadPlans() []BadPlan { return slices.Concat(BadFields(), BadRequests(), BadTrees()) }

// BadFields returns plans with a wrong value in a field of one of their objects. [workflow.Validate] finds
// them, and so does [workflow.ValidateOwn] of the object that has the field.
func BadFields() []BadPlan {
	const notUTF8 = "is not valid UTF-8"
	afterAll, beforeAll := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)
	return []BadPlan{
		{"Name", notUTF8, func(p *workflow.Plan) { p.Name = "\xff" }},
		{"Labels", `"" is not a key`, func(p *workflow.Plan) { p.Labels = map[string]string{"": "no key"} }},
		{"Labels", "has 130 bytes, at most 128", func(p *workflow.Plan) { p.Labels = map[string]string{"k": strings.Repeat("é", 65)} }},
		{"Submitted.By", notUTF8, func(p *workflow.Plan) { p.Submitted.By = "\xff" }},
		{"Submitted.By", "has a control character", func(p *workflow.Plan) { p.Submitted.By = "ops\x1b[2J" }},
		{"Submitted.From", "has 201 bytes", func(p *workflow.Plan) { p.Submitted.From = strings.Repeat("f", workflow.MaxBy+1) }},
		{"Reason", "there is no failure reason 99", func(p *workflow.Plan) { p.Reason = 99 }},
		{"SubmitTime", "the year 10000 ", func(p *workflow.Plan) { p.SubmitTime = afterAll }},
		{"RuntimeUpdate", "the year 10000 ", func(p *workflow.Plan) { p.RuntimeUpdate = afterAll }},
		{"Epoch", "-1 is negative", func(p *workflow.Plan) { p.Owner, p.Epoch = workflow.NewV7(), -1 }},
		{"Epoch", "is 0, but the plan has an owner", func(p *workflow.Plan) { p.Owner, p.Epoch = workflow.NewV7(), 0 }},
		{"WakeAt", "the year 10000 ", func(p *workflow.Plan) { p.WakeAt = afterAll }},
		{"NotBefore", "the year -1 ", func(p *workflow.Plan) { p.NotBefore = beforeAll }},
		{"Deadline", "the year 10000 ", func(p *workflow.Plan) { p.Deadline = afterAll }},
		{"Deadline", "is before NotBefore", func(p *workflow.Plan) {
			p.Deadline = time.Now()
			p.NotBefore = p.Deadline.Add(1)
		}},
		{"LastSignal", "negative", func(p *workflow.Plan) { p.LastSignal = -1 }},
		{"Owner", "is nil in epoch 1", func(p *workflow.Plan) { p.Owner, p.Epoch, p.WakeAt = uuid.Nil, 1, time.Time{} }},
		{"Owner", "is not a UUIDv7", func(p *workflow.Plan) { p.Owner, p.Epoch = uuid.New(), 1 }},
		{"ForkedFrom", "is not a UUIDv7", func(p *workflow.Plan) { p.ForkedFrom = uuid.New() }},
		{"ForkedFrom", "is the ID of the plan itself", func(p *workflow.Plan) {
			if p.ID == uuid.Nil {
				setID(p, workflow.NewV7())
			}
			p.ForkedFrom = p.ID
		}},
		{"Forked", "is set, but ForkedFrom is nil", func(p *workflow.Plan) { p.ForkedFrom, p.Forked.By = uuid.Nil, "ops" }},
		{"External.Name", "is empty, but Ask is set", func(p *workflow.Plan) { p.External = workflow.External{Ask: "ask"} }},
		{"External.Ask", "has a control character", func(p *workflow.Plan) { p.External.Ask = "a\nb" }},
		{"Keys", "there are 9, at most 8 are allowed", func(p *workflow.Plan) {
			p.Keys = nil
			for i := range workflow.MaxKeys + 1 {
				p.Keys = append(p.Keys, workflow.Key{Name: string(rune('a' + i))})
			}
		}},
		{"Keys[1].Name", "is empty", func(p *workflow.Plan) { p.Keys = []workflow.Key{{Name: "k"}, {}} }},
		{"Keys[0].Name", notUTF8, func(p *workflow.Plan) { p.Keys = []workflow.Key{{Name: "\xff"}} }},
		{"Keys[0].Name", "has a control character", func(p *workflow.Plan) { p.Keys = []workflow.Key{{Name: "a\nb"}} }},
		{"Keys[0].Name", "has 129 bytes", func(p *workflow.Plan) { p.Keys = []workflow.Key{{Name: strings.Repeat("k", workflow.MaxKeyName+1)}} }},
		{"Keys[2].Name", "is that of Keys[0] already", func(p *workflow.Plan) { p.Keys = []workflow.Key{{Name: "k"}, {Name: "l"}, {Name: "k", Limit: 2}} }},
		{"Keys[0].Limit", "-1 is negative", func(p *workflow.Plan) { p.Keys = []workflow.Key{{Name: "k", Limit: -1}} }},
		{"Keys[0].Limit", "is 10001, at most 10000", func(p *workflow.Plan) { p.Keys = []workflow.Key{{Name: "k", Limit: workflow.MaxKeyLimit + 1}} }},
		{"KeepTurn", "there is no rule for turns 2", func(p *workflow.Plan) { p.KeepTurn = 2 }},
		{"Unique", "has a control character", func(p *workflow.Plan) { p.Unique = "\u0085" }},
		{"Unique", "has 129 bytes", func(p *workflow.Plan) { p.Unique = strings.Repeat("u", workflow.MaxKeyName+1) }},
		{"WaitsFor", notUTF8, func(p *workflow.Plan) { p.WaitsFor = "\xff" }},
		{"Paused.By", notUTF8, func(p *workflow.Plan) { p.Paused.By = "\xff" }},
		{"Stopped.By", notUTF8, func(p *workflow.Plan) { p.Stopped.By = "\xff" }},
		{"Stopped.Why", "has 1001 bytes", func(p *workflow.Plan) { p.Stopped.Why = strings.Repeat("y", workflow.MaxWhy+1) }},
		{"Stopped.At", "the year 10000 ", func(p *workflow.Plan) { p.Stopped.At = afterAll }},
		{"Ending.Reason", "there is no failure reason 99", func(p *workflow.Plan) { p.Ending.Reason = 99 }},
		{"Ending.At", "the year 10000 ", func(p *workflow.Plan) { p.Ending.At = afterAll }},
		{"Ending.Trouble", "has 1001 bytes", func(p *workflow.Plan) { p.Ending.Trouble = strings.Repeat("t", workflow.MaxWhy+1) }},
		{"State.Status", "there is no status 99", func(p *workflow.Plan) { p.State.Status = 99 }},
		{"State.Start", "the year -1 ", func(p *workflow.Plan) { p.State.Start = beforeAll }},
		{"PreChecks.Delay", "-1ns is negative", func(p *workflow.Plan) { p.PreChecks.Delay = -1 }},

		{"Blocks[0].Name", notUTF8, func(p *workflow.Plan) { p.Blocks[0].Name = "\xff" }},
		{"Blocks[0].EntranceDelay", "-1ns is negative", func(p *workflow.Plan) { p.Blocks[0].EntranceDelay = -1 }},
		{"Blocks[0].Concurrency", "-1 is negative", func(p *workflow.Plan) { p.Blocks[0].Concurrency = -1 }},
		{"Blocks[0].ToleratedFailures", "-2 is below -1", func(p *workflow.Plan) { p.Blocks[0].ToleratedFailures = -2 }},
		{"Blocks[0].State.Start", "the year 10000 ", func(p *workflow.Plan) { p.Blocks[0].State.Start = afterAll }},
		{"Blocks[0].State.End", "the year -1 ", func(p *workflow.Plan) { p.Blocks[0].State.End = beforeAll }},
		{"Blocks[0].State.Status", "there is no status -1", func(p *workflow.Plan) { p.Blocks[0].State.Status = -1 }},
		{"Blocks[0].Sequences[0].Name", notUTF8, func(p *workflow.Plan) { p.Blocks[0].Sequences[0].Name = "\xff" }},

		{"PreChecks.Actions[0].Name", notUTF8, func(p *workflow.Plan) { p.PreChecks.Actions[0].Name = "\xff" }},
		{"PreChecks.Actions[0].Plugin", notUTF8, func(p *workflow.Plan) { p.PreChecks.Actions[0].Plugin = "\xff" }},
		{"PreChecks.Actions[0].Attempts[0].Skipped.By", notUTF8, func(p *workflow.Plan) {
			p.PreChecks.Actions[0].Attempts = []workflow.Attempt{{Skipped: &workflow.Attribution{By: "\xff"}}}
		}},
		{"PreChecks.Actions[0].Plugin", "is empty", func(p *workflow.Plan) { p.PreChecks.Actions[0].Plugin = "" }},
		{"PreChecks.Actions[0].AtMost", "-1 is negative", func(p *workflow.Plan) { p.PreChecks.Actions[0].AtMost = -1 }},
		{
			"PreChecks.Actions[0].AtMost", "is 1, but the action is Idempotent: its attempts are not stored before they end",
			func(p *workflow.Plan) { p.PreChecks.Actions[0].AtMost, p.PreChecks.Actions[0].Idempotent = 1, true },
		},
		{"PreChecks.Actions[0].Timeout", "-1ns is negative", func(p *workflow.Plan) { p.PreChecks.Actions[0].Timeout = -1 }},
		{"PreChecks.Actions[0].Retries", "-1 is negative", func(p *workflow.Plan) { p.PreChecks.Actions[0].Retries = -1 }},
		{"PreChecks.Actions[0].NoRetries", "is set, but Retries is 2", func(p *workflow.Plan) { p.PreChecks.Actions[0].NoRetries = true }},
		{"PreChecks.Actions[0].Backoff.Jitter", "1.5 is not between 0 and 1", func(p *workflow.Plan) { p.PreChecks.Actions[0].Backoff.Jitter = 1.5 }},

		{"DeferredActions.Batches[0].Name", notUTF8, func(p *workflow.Plan) { p.DeferredActions.Batches[0].Name = "\xff" }},
		{"DeferredActions.Batches[0].When", "there is no outcome 99", func(p *workflow.Plan) { p.DeferredActions.Batches[0].When = 99 }},
	}
}

// BadRequests returns plans with an action that does not fit the plugins of [Register]. They are wrong for
// whoever has that register: requests must be of the type that their plugin names, or JSON that can be read
// into it.
func BadRequests() []BadPlan {
	bad := func(problem string, req any) BadPlan {
		return BadPlan{"PreChecks.Actions[0].Req", problem, func(p *workflow.Plan) { p.PreChecks.Actions[0].Req = req }}
	}
	return []BadPlan{
		{"PreChecks.Actions[0].Plugin", `the registry lacks plugin "nobody's"`, func(p *workflow.Plan) { p.PreChecks.Actions[0].Plugin = "nobody's" }},
		bad("is a string, not the plantest.Request", "text"),
		bad("is a plantest.Response, not the plantest.Request", Response{}),
		bad("is a map[string]interface {}, not the plantest.Request", map[string]any{}),
		bad("can't be read as plantest.Request", json.RawMessage(`{"Number": "one"}`)),
		bad("can't be read as plantest.Request", json.RawMessage(`{`)),
	}
}

// BadTrees returns plans whose objects are missing, repeated, or have wrong IDs. [workflow.Validate] finds
// them.
func BadTrees() []BadPlan {
	none := func(field string, edit func(p *workflow.Plan)) BadPlan { return BadPlan{field, "is nil", edit} }
	return []BadPlan{
		{
			"Blocks[1].ContChecks.Actions[0].AtMost", "is 1: an action of continuous checks runs any number of times",
			func(p *workflow.Plan) { p.Blocks[1].ContChecks.Actions[0].AtMost = 1 },
		},
		none("Blocks[1]", func(p *workflow.Plan) { p.Blocks[1] = nil }),
		none("Blocks[0].Sequences[1]", func(p *workflow.Plan) { p.Blocks[0].Sequences[1] = nil }),
		none("Blocks[0].Sequences[0].Actions[1]", func(p *workflow.Plan) { p.Blocks[0].Sequences[0].Actions[1] = nil }),
		none("PreChecks.Actions[0]", func(p *workflow.Plan) { p.PreChecks.Actions[0] = nil }),
		none("DeferredActions.Batches[2]", func(p *workflow.Plan) { p.DeferredActions.Batches[2] = nil }),
		none("DeferredActions.Batches[0].Actions[0]", func(p *workflow.Plan) { p.DeferredActions.Batches[0].Actions[0] = nil }),

		{"Blocks[1]", "is the same object as Blocks[0]", func(p *workflow.Plan) { p.Blocks[1] = p.Blocks[0] }},
		{"PreChecks", "is the same object as BypassChecks", func(p *workflow.Plan) { p.PreChecks = p.BypassChecks }},
		{"Blocks[1].ID", "is the ID of Blocks[0].ID already", func(p *workflow.Plan) {
			p.Blocks[0].ID = workflow.NewV7()
			p.Blocks[1].ID = p.Blocks[0].ID
		}},
		{"Blocks[0].ID", "is the ID of ID already", func(p *workflow.Plan) {
			setID(p, workflow.NewV7())
			p.Blocks[0].ID = p.ID
		}},
		{"PreChecks.ID", "is the ID of ID already", func(p *workflow.Plan) {
			setID(p, workflow.NewV7())
			p.PreChecks.ID = p.ID
		}},
		{"DeferredActions.Batches[0].Actions[0].ID", "is the ID of PreChecks.ID already", func(p *workflow.Plan) {
			p.PreChecks.ID = workflow.NewV7()
			p.DeferredActions.Batches[0].Actions[0].ID = p.PreChecks.ID
		}},
		{"Blocks[0].PlanID", "is another plan's", func(p *workflow.Plan) { p.Blocks[0].PlanID = workflow.NewV7() }},
		{"Blocks[0].Sequences[0].Actions[0].PlanID", "is another plan's", func(p *workflow.Plan) {
			p.Blocks[0].Sequences[0].Actions[0].PlanID = workflow.NewV7()
		}},
		{"Blocks[0].ID", "is not a UUIDv7", func(p *workflow.Plan) { p.Blocks[0].ID = uuid.New() }},
		{"Blocks[0].ID", "is not a UUIDv7", func(p *workflow.Plan) { p.Blocks[0].ID = otherVariant() }},
		{"ID", "is not a UUIDv7", func(p *workflow.Plan) { setID(p, uuid.New()) }},
		{"ID", "is not a UUIDv7", func(p *workflow.Plan) { setID(p, otherVariant()) }},
		{"ID", "is not a UUIDv7", func(p *workflow.Plan) { setID(p, uuid.Max) }},
	}
}

// BadNewPlans returns plans that are wrong only when they are new: they have begun, they have an owner, their IDs are too far
// ahead, or a plugin refuses a request.
func BadNewPlans() []BadPlan {
	ahead := func() uuid.UUID { return workflow.NewV7At(time.Now().Add(25 * time.Hour)) }
	const tooFar = "lies more than a day ahead"
	list := []BadPlan{
		{"ID", tooFar, func(p *workflow.Plan) { setID(p, ahead()) }},
		{"Blocks[0].ID", tooFar, func(p *workflow.Plan) { p.Blocks[0].ID = ahead() }},
		{"Owner", "a new plan has no owner", func(p *workflow.Plan) { p.Owner, p.Epoch = workflow.NewV7(), 1 }},
		{"WakeAt", "a new plan does not sleep", func(p *workflow.Plan) { p.WakeAt = time.Now() }},
		{"Paused", "a new plan does not sleep", func(p *workflow.Plan) { p.Paused.By = "ops" }},
		{"Alone", "no engine has begun a new plan", func(p *workflow.Plan) { p.Alone = true }},
		{"WaitsFor", "a new plan does not sleep", func(p *workflow.Plan) { p.WaitsFor = "key" }},
		{"LastSignal", "a new plan does not sleep", func(p *workflow.Plan) { p.LastSignal = 1 }},
		{"PreChecks.Actions[0].Attempts", "has no attempts in a new plan", func(p *workflow.Plan) {
			p.PreChecks.Actions[0].Attempts = make([]workflow.Attempt, 1)
		}},
		{"Blocks[1].Sequences[0].Actions[1].Req.Text", `plugin "picky" refuses action`, func(p *workflow.Plan) {
			a := p.Blocks[1].Sequences[0].Actions[1]
			a.Plugin, a.Req = PickyName, Request{}
		}},
	}
	for _, object := range []struct {
		path string
		of   func(p *workflow.Plan) workflow.Object
	}{
		{"", func(p *workflow.Plan) workflow.Object { return p }},
		{"PreChecks.", func(p *workflow.Plan) workflow.Object { return p.PreChecks }},
		{"Blocks[1].", func(p *workflow.Plan) workflow.Object { return p.Blocks[1] }},
		{"Blocks[1].Sequences[0].", func(p *workflow.Plan) workflow.Object { return p.Blocks[1].Sequences[0] }},
		{"Blocks[1].Sequences[0].Actions[0].", func(p *workflow.Plan) workflow.Object { return p.Blocks[1].Sequences[0].Actions[0] }},
		{"DeferredActions.", func(p *workflow.Plan) workflow.Object { return p.DeferredActions }},
		{"DeferredActions.Batches[2].", func(p *workflow.Plan) workflow.Object { return p.DeferredActions.Batches[2] }},
	} {
		for status := workflow.Running; status.Valid(); status++ {
			list = append(list, BadPlan{
				object.path + "State.Status", "is " + status.String() + ": all statuses of a new plan",
				func(p *workflow.Plan) { object.of(p).Header().State.Status = status },
			})
		}
	}
	return list
}

// BadForks returns plans of the shape of [Fork] that can't be created.
func BadForks() []BadPlan {
	const begun = "it is to run again in a fork"
	status := func(s workflow.Status, of func(p *workflow.Plan) workflow.Object) func(p *workflow.Plan) {
		return func(p *workflow.Plan) { of(p).Header().State.Status = s }
	}
	list := []BadPlan{
		{"Owner", "a new plan has no owner", func(p *workflow.Plan) { p.Owner, p.Epoch = workflow.NewV7(), 1 }},
		{"Blocks[1].Sequences[0].Actions[1].Attempts", "is not empty", func(p *workflow.Plan) {
			p.Blocks[1].Sequences[0].Actions[1].Attempts = make([]workflow.Attempt, 1)
		}},
		{"Blocks[1].Sequences[0].Actions[0].Attempts", "is empty", func(p *workflow.Plan) {
			p.Blocks[1].Sequences[0].Actions[0].Attempts = nil
		}},
		{"PreChecks.State", "without a Start and an End", func(p *workflow.Plan) { p.PreChecks.State.Start = time.Time{} }},
		{"Blocks[0].State", "without a Start and an End", func(p *workflow.Plan) { p.Blocks[0].State.End = time.Time{} }},
		{"Blocks[0].PreChecks.State.Status", "is Running below", status(workflow.Running, func(p *workflow.Plan) workflow.Object { return p.Blocks[0].PreChecks })},
		{"Blocks[1].Sequences[1].State.Status", "1 of the actions are not", status(workflow.Failed, func(p *workflow.Plan) workflow.Object { return p.Blocks[1].Sequences[1].Actions[0] })},
		{"Blocks[0].State.Status", "1 of the sequences are not, and it tolerates 0", func(p *workflow.Plan) {
			p.Blocks[0].ToleratedFailures, p.Blocks[0].BypassChecks = 0, nil
		}},
		{"ContChecks.State.Status", begun, status(workflow.Completed, func(p *workflow.Plan) workflow.Object { return p.ContChecks })},
		{"PostChecks.State.Status", begun, status(workflow.Completed, func(p *workflow.Plan) workflow.Object { return p.PostChecks })},
		{"DeferredChecks.State.Status", begun, status(workflow.Completed, func(p *workflow.Plan) workflow.Object { return p.DeferredChecks })},
		{"DeferredActions.Batches[2].State.Status", begun, status(workflow.Completed, func(p *workflow.Plan) workflow.Object { return p.DeferredActions.Batches[2] })},
		{"State.Status", begun, status(workflow.Completed, func(p *workflow.Plan) workflow.Object { return p })},
	}
	for _, s := range []workflow.Status{workflow.Running, workflow.Failed, workflow.Stopped} {
		list = append(list,
			BadPlan{"State.Status", begun, status(s, func(p *workflow.Plan) workflow.Object { return p })},
			BadPlan{"Blocks[1].State.Status", begun, status(s, func(p *workflow.Plan) workflow.Object { return p.Blocks[1] })},
			BadPlan{"Blocks[1].Sequences[0].Actions[1].State.Status", begun, status(s, func(p *workflow.Plan) workflow.Object { return p.Blocks[1].Sequences[0].Actions[1] })})
	}
	return list
}

// setID gives a plan another ID, and its sub-objects the PlanID where they have one.
func setID(p *workflow.Plan, id uuid.UUID) {
	p.ID = id
	for _, o := range workflow.Parts(p) {
		if planID := o.Header().PlanID; *planID != uuid.Nil {
			*planID = id
		}
	}
}

// otherVariant returns a UUID of version 7 whose variant is not the RFC's.
func otherVariant() uuid.UUID {
	id := workflow.NewV7()
	id[8] = 0xc0
	return id
}
