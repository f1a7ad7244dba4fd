package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"
)

// drillFlags are the flags of the command drill.
type drillFlags struct {
	to          connection
	emulator    bool
	plans       int
	work, every age
}

// drillCommand rehearses the loss of an account.
func (a *app) drillCommand() *cobra.Command {
	f := drillFlags{plans: 10, work: age(30 * time.Second), every: age(5 * time.Second)}
	c := &cobra.Command{
		Use:   "drill",
		Short: "Rehearse in a sandbox the loss of the account, and say what is lost",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return a.drill(c.Context(), f) },
	}
	f.to.addFlags(c.Flags(), "to-")
	flags := c.Flags()
	flags.BoolVar(&f.emulator, "emulator", false, "use two emulators in this process, and no account")
	flags.IntVar(&f.plans, "plans", f.plans, "how many plans (`N`) run in the sandbox")
	flags.Var(&f.work, "work", "the `DURATION` after which the first account is lost")
	flags.Var(&f.every, "every", "the `DURATION` between two rounds of the copy")
	return c
}

// drilled is the report of drill. Times after the loss are counted from there.
type drilled struct {
	Sandbox      string    `json:"sandbox" help:"the prefix of the sandbox"`
	Cut          time.Time `json:"cut" help:"when the first account was lost"`
	Plans        int       `json:"plans" help:"how many plans were submitted"`
	Writes       int       `json:"writes" help:"how many writes were confirmed"`
	LostPlans    int       `json:"lostPlans" help:"how many plans the copy does not have"`
	LostWrites   int       `json:"lostWrites" help:"how many writes it does not have"`
	LostSince    time.Time `json:"lostSince,omitzero" help:"the first of these"` // the first lost write
	CaughtUp     time.Time `json:"caughtUp,omitzero" help:"the time up to which the copy had everything"`
	Problems     int       `json:"problems" help:"how many problems check found in the copy"`
	OpenSeconds  float64   `json:"openSeconds" help:"the time from the loss until the copy was open"`
	WorkSeconds  float64   `json:"workSeconds" help:"the time until work went on"`
	RanAgain     int       `json:"ranAgain" help:"how many actions ran again"` // actions
	EndedSeconds float64   `json:"endedSeconds" help:"the time until all plans had ended"`
	Completed    int       `json:"completed" help:"how many are Completed"`
}

// drillClear is how long the removal of a sandbox may take.
const drillClear = time.Minute

// drill works in a sandbox, loses its account, goes on from the copy, and removes the sandbox.
func (a *app) drill(ctx context.Context, f drillFlags) (err error) {
	if f.plans < 1 || f.work <= 0 || f.every <= 0 || f.work+f.every > age(drillMost/2) {
		return usageError("drill: --plans, --work and --every must be positive, and the times 6h together at most")
	}
	sides, err := a.sandboxes(f)
	if err != nil {
		return err
	}
	dead, err := a.deadSandboxes(ctx, sides)
	if err != nil {
		return err
	}
	what := plural(f.plans, "plan") + " in a sandbox that is removed"
	for _, s := range dead {
		what += ", as is " + s.Prefix + " of a drill that was killed"
	}
	n := f.plans * drillActions * 8
	requests := price.Tally{azblob.ClassWrite: n, azblob.ClassRead: n, azblob.ClassList: n / 4}
	if err := a.confirm(ctx, change{doing: "drill", what: what, requests: requests}); err != nil {
		return err
	}
	a.grace.Store(int64(drillClear + interruptGrace))
	p := a.progress("drill", "step", 0).then("the sandbox " + sides[0].Prefix + " is removed, unless it is named here")
	defer p.end()
	d := &drillRun{app: a, flags: f, changes: map[uuid.UUID]drillChange{}, begun: map[uuid.UUID]int{}}
	d.report.Sandbox = sides[0].Prefix
	for _, s := range dead {
		err = errors.Join(err, s.remove(ctx))
	}
	if err != nil {
		return err
	}
	running, end := context.WithTimeout(ctx, drillMost)
	defer end()
	err = d.run(running, sides)
	d.lost.Wait()
	clearing, cancel := context.WithTimeout(context.WithoutCancel(ctx), drillClear)
	defer cancel()
	for _, s := range sides {
		err = errors.Join(err, s.remove(clearing))
	}
	if err != nil {
		return err
	}
	if err := a.print(d.report, d.report.write); err != nil {
		return err
	}
	if d.report.Problems > 0 || d.report.Completed+d.report.LostPlans < d.report.Plans {
		return errFound
	}
	return nil
}

// drillActions is the number of actions of a plan, one after the other, and drillTakes how long each takes.
const (
	drillActions = 12
	drillTakes   = time.Second
)

// drillRun is a drill.
type drillRun struct {
	app    *app
	flags  drillFlags
	report drilled

	mu        sync.Mutex
	submitted []uuid.UUID
	changes   map[uuid.UUID]drillChange // by object, what was stored of it last before the loss
	begun     map[uuid.UUID]int         // how often an action began
	first     time.Time                 // when work began on the copy

	lost sync.WaitGroup // what runs on the account that is cut off
}

// drillChange is a write that the first account had confirmed.
type drillChange struct {
	plan   uuid.UUID
	status workflow.Status
	writes []time.Time // by status, of this object
}

type drillRequest struct{}

// plugins returns the registry with the plugin of the drill.
func (d *drillRun) plugins() *registry.Register {
	return registry.Must(engine.Task("drill", func(ctx context.Context, call engine.Call, _ drillRequest) (drillRequest, error) {
		d.mu.Lock()
		d.begun[call.Action]++
		d.mu.Unlock()
		sleep.For(ctx, drillTakes)
		return drillRequest{}, ctx.Err()
	}))
}

// run works, loses the account, and goes on from the copy.
func (d *drillRun) run(ctx context.Context, sides []side) error {
	reg := d.plugins()
	source, err := sides[0].open(ctx, d.app, reg)
	if err != nil {
		return err
	}
	reading, err := sides[0].open(ctx, d.app, nil)
	if err != nil {
		return err
	}
	copied, err := sides[1].open(ctx, d.app, nil)
	if err != nil {
		return err
	}
	for _, v := range []*azblob.Vault{reading, copied} {
		if err := mark(ctx, v.Control()); err != nil {
			return err
		}
	}
	if err := d.work(ctx, source, reading, copied, sides[0].network); err != nil {
		return err
	}
	if err := d.losses(ctx, copied); err != nil {
		return err
	}
	if err := d.switchTo(ctx, copied); err != nil {
		return err
	}
	again, err := sides[1].open(ctx, d.app, reg)
	if err != nil {
		return err
	}
	return d.goOn(ctx, again)
}

// work runs an engine and a follower until the account is cut off.
func (d *drillRun) work(ctx context.Context, source, reading, copied *azblob.Vault, network *severed) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	e, err := engine.New(source, engine.Options{
		Fleet: &fleet.Options{Name: "drill"}, Drain: time.Second, Patience: 4 * time.Second, Observer: engine.Observer{Changed: d.changed},
	})
	if err != nil {
		return err
	}
	ended, by := make(chan error, 2), d.app.attributionOf(ctx)
	d.lost.Go(func() {
		if err := e.Run(working); err != nil {
			ended <- err
		}
	})
	d.lost.Go(func() {
		err := mirror.Follow(working, mirror.Pair{Source: reading, Copy: copied}, mirror.FollowOptions{By: by, Name: "drill", Interval: time.Duration(d.flags.every)})
		if working.Err() == nil {
			ended <- err
		}
	})
	d.app.remark("Working in the sandbox %s for %s.", d.report.Sandbox, span(time.Duration(d.flags.work)))
	until := time.Now().Add(time.Duration(d.flags.work))
	for range d.flags.plans {
		plan := drillPlan()
		if _, err := e.Submit(ctx, plan); err != nil {
			return err
		}
		d.mu.Lock()
		d.submitted = append(d.submitted, plan.ID)
		d.mu.Unlock()
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Duration(d.flags.work) / time.Duration(d.flags.plans)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	sleep.For(ctx, time.Until(until.Add(time.Duration(d.flags.every)*9/10))) // the worst time is before a round
	network.cut.Store(true)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.report.Cut, d.report.Plans = time.Now().UTC(), len(d.submitted)
	return ctx.Err()
}

func drillPlan() *workflow.Plan {
	q := &workflow.Sequence{Name: "steps"}
	for n := range drillActions {
		q.Actions = append(q.Actions, &workflow.Action{Name: fmt.Sprint("step ", n+1), Plugin: "drill", Req: drillRequest{}})
	}
	return &workflow.Plan{Name: "drill", Blocks: []*workflow.Block{{Name: "block", Sequences: []*workflow.Sequence{q}}}}
}

// changed notes a write that the first account has confirmed.
func (d *drillRun) changed(_ context.Context, e engine.ChangedEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := e.Object.Header()
	made := d.changes[*h.ID]
	made.plan, made.status, made.writes = *h.PlanID, h.State.Status, append(made.writes, time.Now().UTC())
	d.changes[*h.ID] = made
	d.report.Writes++
}

// losses compares what was confirmed with what the copy has.
func (d *drillRun) losses(ctx context.Context, copied *azblob.Vault) error {
	has := map[uuid.UUID]workflow.Status{}
	for _, id := range d.submitted {
		plan, err := copied.Read(ctx, id)
		if errors.Is(err, storage.ErrNotFound) {
			d.report.LostPlans++
			continue
		}
		if err != nil {
			return err
		}
		for o := range workflow.Walk(plan) {
			has[*o.Header().ID] = o.Header().State.Status
		}
	}
	for id, made := range d.changes {
		for missing := min(int(made.status)-int(has[id]), len(made.writes)); missing > 0; missing-- {
			at := made.writes[len(made.writes)-missing]
			d.report.LostWrites++
			if d.report.LostSince.IsZero() || at.Before(d.report.LostSince) {
				d.report.LostSince = at
			}
		}
	}
	return nil
}

// switchTo opens the copy, as planvault switch --lost does.
func (d *drillRun) switchTo(ctx context.Context, copied *azblob.Vault) error {
	state, err := mirror.StateOf(ctx, copied)
	if err != nil {
		return err
	}
	d.report.CaughtUp = state.CaughtUp
	if err := copied.Recovery(ctx); err != nil {
		return err
	}
	checked, err := copied.Admin().Check(ctx, azblob.CheckOptions{})
	if err != nil {
		return err
	}
	d.report.Problems = len(checked.Problems)
	err = mirror.Promote(ctx, copied, d.app.attributionOf(ctx))
	d.report.OpenSeconds = time.Since(d.report.Cut).Seconds()
	return err
}

// goOn runs an engine on the copy until no plan is left.
func (d *drillRun) goOn(ctx context.Context, v *azblob.Vault) error {
	d.mu.Lock()
	before := maps.Clone(d.begun)
	d.mu.Unlock()
	observer := engine.Observer{Changed: func(context.Context, engine.ChangedEvent) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.first.IsZero() {
			d.first = time.Now()
		}
	}}
	e, err := engine.New(v, engine.Options{Fleet: &fleet.Options{Name: "drill"}, Drain: time.Second, UntilIdle: true, Observer: observer})
	if err == nil {
		err = e.Run(ctx)
	}
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	d.report.EndedSeconds = time.Since(d.report.Cut).Seconds()
	if !d.first.IsZero() {
		d.report.WorkSeconds = d.first.Sub(d.report.Cut).Seconds()
	}
	for id, n := range before {
		if d.begun[id] > n {
			d.report.RanAgain++
		}
	}
	n, err := v.Count(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.Completed}})
	d.report.Completed = int(n)
	return err
}

// write writes the report as text.
func (r drilled) write(w io.Writer) {
	lost := "nothing: "
	if r.LostPlans+r.LostWrites > 0 {
		lost = fmt.Sprintf("%s, %s", plural(r.LostPlans, "plan"), plural(r.LostWrites, "write"))
		if !r.LostSince.IsZero() {
			lost += fmt.Sprintf(", the first %s before the loss", span(r.Cut.Sub(r.LostSince)))
		}
		lost += "; "
	}
	after := func(seconds float64) string {
		return span(time.Duration(seconds*float64(time.Second))) + " after the loss"
	}
	for _, row := range [][2]string{
		{"cut off", fmt.Sprintf("at %s, with %s and %s", stamp(r.Cut), plural(r.Plans, "plan"), plural(r.Writes, "write"))},
		{"lost", lost + upTo(r.CaughtUp)},
		{"checked", plural(r.Problems, "problem")},
		{"open", after(r.OpenSeconds)},
		{"at work", after(r.WorkSeconds) + "; " + plural(r.RanAgain, "action") + " ran again"},
		{"done", after(r.EndedSeconds) + "; " + plural(r.Completed, "plan") + " Completed"},
		{"removed", "the sandbox " + r.Sandbox},
	} {
		fmt.Fprintf(w, "%-8s %s\n", row[0], row[1])
	}
}
