package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// stuckCommand shows what is stuck.
func (a *app) stuckCommand() *cobra.Command {
	older := age(fleet.DefaultOlder)
	all, limit, reads := false, mostStuck, mostReads
	var before *fleet.Inspection // the look before, with --watch
	var o *order[openRow]
	var again repeat
	c := a.onVault("stuck", "Show open plans that make no progress, and why",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			if reads < 0 {
				return usageError("stuck: --reads must not be negative")
			}
			return a.repeat(ctx, again, func(ctx context.Context) error {
				i, err := a.inspect(ctx, v, fleet.InspectOptions{Older: time.Duration(older), ReadAll: all, MaxReads: reads, ReadMore: true, Before: before})
				if err == nil {
					before = &i
				}
				return a.stuck(i, err, all, limit, o)
			})
		})
	c.Flags().Var(&older, "older", "plans without progress for longer than this `AGE`, such as 15m or 2h")
	c.Flags().BoolVar(&all, "all", false, "show all open plans, with how each is doing")
	c.Flags().IntVar(&limit, "limit", mostStuck, "if more than 20 plans are stuck, the `NUMBER` to show; 0 shows all")
	c.Flags().IntVar(&reads, "reads", mostReads, "the `NUMBER` of plans that a look reads; 0 reads all that may be stuck")
	o = addSort(c.Flags(), openColumns(true), "sort the plans")
	again.addFlags(c.Flags())
	return c
}

// stuck prints the plans of an inspection that are stuck, or may be because they were not read, or all open plans.
func (a *app) stuck(i fleet.Inspection, err error, all bool, limit int, o *order[openRow]) error {
	errs := []error{err}
	rows, stuck := []openRow{}, 0
	for _, p := range i.Plans {
		if err == nil && p.Condition == fleet.ConditionUnknown {
			errs = append(errs, p.Err)
		}
		if p.Stuck {
			stuck++
		}
		if all || p.Stuck || p.Unread {
			rows = append(rows, openRowOf(p, i))
		}
	}
	o.sort(rows)
	if !all {
		if rows, err = a.printReasons(rows, limit); err != nil {
			return err
		}
	}
	if err := a.printOpen(rows, all); err != nil {
		return err
	}
	a.noteForeign(i.Foreign)
	if i.Unread > 0 {
		fmt.Fprintf(a.stderr, "planvault: not read: %s that may be stuck; --reads 0 reads all\n", plural(i.Unread, "plan"))
	}
	switch err := errors.Join(errs...); {
	case err != nil:
		return err
	case stuck > 0:
		return errFound
	case i.Unread > 0:
		return errMore
	}
	if a.found() {
		a.remark("Nothing is stuck: %s, %s.", plural(len(i.Plans), "open plan"), alive(i))
	}
	return nil
}

// openRow is an open plan in the output of stuck.
type openRow struct {
	ID               uuid.UUID    `json:"id" help:"the plan's ID"`
	Group            *uuid.UUID   `json:"group,omitempty" help:"the ID of its group"`
	Name             string       `json:"name" help:"its name"`
	Status           string       `json:"status,omitempty" help:"NotStarted or Running"`
	Condition        string       `json:"condition" help:"how it is doing, such as working, turn, asleep, paused or orphaned"`
	Stuck            bool         `json:"stuck" help:"whether somebody should look at it"`
	Unread           bool         `json:"unread,omitempty" help:"whether it may be stuck, and was not read"`
	Reason           fleet.Reason `json:"reason,omitempty" help:"a code for why it is stuck or waits, such as owner-gone"`
	Why              string       `json:"why" help:"why it is stuck or is not, and what to do"`
	Owner            *uuid.UUID   `json:"owner,omitempty" help:"the node that owns it"`
	OwnerName        string       `json:"ownerName,omitempty" help:"the name of that node"`
	OwnerState       string       `json:"ownerState" help:"none, alive, silent, gone or external"`
	External         string       `json:"external,omitempty" help:"the engine of another kind that places it"`
	Ask              string       `json:"ask,omitempty" help:"how to ask that engine, if the plan was read"`
	HeartbeatSeconds *float64     `json:"heartbeatSeconds,omitempty" help:"the time since the owner renewed its record"`
	Epoch            int64        `json:"epoch" help:"how often an owner has taken it"`
	Progress         time.Time    `json:"progress" help:"the latest change that is stored in the plan"`
	IdleSeconds      float64      `json:"idleSeconds" help:"the time since then"`
	Running          []runningRow `json:"running,omitempty" help:"the running actions, longest first, at most 100"`
	More             int          `json:"moreRunning,omitempty" help:"how many actions run beside these"`
	Key              string       `json:"key,omitempty" help:"the key for whose turn it waits"`
	Holder           *uuid.UUID   `json:"holder,omitempty" help:"a plan that has that turn"`
	Before           int          `json:"before,omitempty" help:"how many plans wait for it and were submitted before"`
	Done             int          `json:"doneActions,omitempty" help:"how many actions are final"`
	Actions          int          `json:"actions,omitempty" help:"how many actions there are"`
	StopRequested    time.Time    `json:"stopRequested,omitzero" help:"when somebody asked for a stop"`
	Error            string       `json:"error,omitempty" help:"why the plan can't be read"`

	doing string
}

type runningRow struct {
	Path     string    `json:"path" help:"the action's path in the plan"`
	Since    time.Time `json:"since,omitzero" help:"when it began"`
	Attempts int       `json:"attempts" help:"how often it was tried"`
}

// mostRunning is how many running actions a row has.
const mostRunning = 100

func openRowOf(p fleet.OpenPlan, i fleet.Inspection) openRow {
	r := openRow{
		ID: p.Plan.ID, Group: known(p.Plan.GroupID), Name: p.Plan.Name, Condition: string(p.Condition), Stuck: p.Stuck, Unread: p.Unread, Reason: p.Reason, Why: p.Why,
		Owner: known(p.Plan.Owner), OwnerState: string(p.OwnerState), External: p.Plan.External, Ask: p.Ask, Epoch: p.Plan.Epoch,
		Progress: p.Progress.UTC(), IdleSeconds: max(0, i.Now.Sub(p.Progress)).Seconds(),
		Done: p.Done, Actions: p.Actions, StopRequested: p.StopRequested.UTC(), doing: p.Doing(),
	}
	if p.Condition != fleet.ConditionUnreadable || p.Plan.State.Status != workflow.NotStarted {
		r.Status = p.Plan.State.Status.String()
	}
	if p.Err != nil {
		r.Error = storage.Detail(p.Err)
	}
	for n, action := range p.Running {
		if n == mostRunning {
			r.More = len(p.Running) - n
			break
		}
		r.Running = append(r.Running, runningRow{action.Path, action.Since.UTC(), action.Attempts})
	}
	if p.Turn != nil {
		r.Key, r.Holder, r.Before = p.Turn.Key.Name, known(p.Turn.Holder), p.Turn.Before
	}
	if m := memberOf(i, p.Plan.Owner); m != nil {
		seconds := m.Silence.Seconds()
		r.OwnerName, r.HeartbeatSeconds = m.Member.Name, &seconds
	}
	return r
}

// openColumns are the columns of stuck. The condition is shown beside all open plans.
func openColumns(all bool) []column[openRow] {
	columns := []column[openRow]{
		idColumn("PLAN", func(r openRow) uuid.UUID { return r.ID }),
		{title: "CONDITION", cell: openRow.condition, short: openRow.state, compare: by(openRow.condition)},
		{
			title: "OWNER", cell: func(r openRow) string { return r.owner(uuid.UUID.String) }, short: func(r openRow) string { return r.owner(shortID) },
			compare: by(func(r openRow) string { return r.owner(uuid.UUID.String) }), least: 8,
		},
		{title: ">HEARTBEAT", cell: openRow.heartbeat, compare: by(openRow.silence)},
		{title: ">PROGRESS", cell: openRow.idle, compare: by(func(r openRow) float64 { return r.IdleSeconds })},
		{title: "DOING", cell: func(r openRow) string { return orDash(printable(r.doing, 40)) }, compare: by(func(r openRow) string { return r.doing }), least: 8},
		{title: "NAME", cell: func(r openRow) string { return printable(r.Name, 40) }, compare: by(func(r openRow) string { return r.Name }), least: 8},
	}
	if !all {
		columns = slices.Delete(columns, 1, 2)
	}
	return columns
}

func (r openRow) condition() string {
	if r.Stuck {
		return r.Condition + ", stuck"
	}
	return r.Condition
}

// state returns the condition of a plan that is not stuck.
func (r openRow) state() string {
	if r.Stuck {
		return "stuck"
	}
	return r.Condition
}

// owner returns the name of the owner, or its ID in a form.
func (r openRow) owner(form func(uuid.UUID) string) string {
	switch {
	case r.OwnerName != "":
		return printable(r.OwnerName, 24)
	case r.External != "":
		return printable(r.External, 24)
	case r.Owner != nil:
		return form(*r.Owner)
	}
	return "-"
}

// silence orders heartbeats: the youngest first, then owners without a record, then plans without an owner.
func (r openRow) silence() float64 {
	switch {
	case r.HeartbeatSeconds != nil:
		return *r.HeartbeatSeconds
	case r.OwnerState == string(fleet.OwnerStateGone):
		return math.MaxFloat64
	}
	return math.Inf(1)
}

func (r openRow) idle() string {
	if r.Unread {
		return "not read"
	}
	return seconds(r.IdleSeconds)
}

func (r openRow) heartbeat() string {
	switch {
	case r.HeartbeatSeconds != nil:
		return seconds(*r.HeartbeatSeconds)
	case r.OwnerState == string(fleet.OwnerStateGone):
		return "gone"
	}
	return "-"
}

// printOpen prints open plans as a table, and below it why each is stuck or how it is doing.
func (a *app) printOpen(rows []openRow, all bool) error {
	t := newColumns(a, openColumns(all))
	if err := t.print(rows); err != nil {
		return err
	}
	for _, r := range rows {
		if r.Why == "" {
			continue
		}
		if err := a.summarize("\n" + wrap(r.ID.String()+": "+printable(r.Why, 0), t.width)); err != nil {
			return err
		}
	}
	return nil
}

const (
	// fewStuck is how many stuck plans are shown with why each is stuck.
	fewStuck = 20
	// mostStuck is the default of stuck --limit.
	mostStuck = 50
	// mostReads is that of stuck --reads.
	mostReads = 50
)

// printReasons prints, if many plans are stuck, how many are stuck for each reason, and what to do. It returns the plans
// that the table shows: at most limit then, without why each is stuck.
func (a *app) printReasons(rows []openRow, limit int) ([]openRow, error) {
	if len(rows) <= fewStuck || a.output == outputJSON {
		return rows, nil
	}
	reasons, unread := map[fleet.Reason]int{}, map[fleet.Reason]int{}
	for _, r := range rows {
		if reasons[r.Reason]++; r.Unread {
			unread[r.Reason]++
		}
	}
	byCount := func(a, b fleet.Reason) int {
		return cmp.Or(reasons[b]-reasons[a], strings.Compare(string(a), string(b)))
	}
	for _, reason := range slices.SortedFunc(maps.Keys(reasons), byCount) {
		text := fmt.Sprintf("%s: %s. %s", plural(reasons[reason], "plan"), reason, reason.Remedy())
		if n := unread[reason]; n > 0 {
			text += fmt.Sprintf(" Not read: %s of them.", count(n))
		}
		if err := a.summarize(wrap(text, a.width()) + "\n"); err != nil {
			return nil, err
		}
	}
	if limit > 0 && limit < len(rows) {
		if err := a.summarize(fmt.Sprintf("The first %s of %s:", count(limit), count(len(rows)))); err != nil {
			return nil, err
		}
		rows = rows[:limit]
	}
	rows = slices.Clone(rows)
	for n := range rows {
		rows[n].Why = ""
	}
	return rows, nil
}
