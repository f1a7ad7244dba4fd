package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/storage"
)

// takeover is the flags of the command takeover.
type takeover struct {
	evict           uuid.UUID // a node, or uuid.Nil
	unclaimed, wait bool
	external        bool
}

// takeoverCommand fences a plan from its owner.
func (a *app) takeoverCommand() *cobra.Command {
	var t takeover
	var node string
	c := a.changesPlan("takeover ID", "Fence a plan from its owner, and hand it to the live nodes",
		func(ctx context.Context, v *azblob.Vault, id uuid.UUID, _ []string) (err error) {
			if node != "" {
				if t.evict, err = a.findNode(ctx, v.Control(), node); err != nil {
					return err
				}
			}
			return a.takeover(ctx, v, id, t)
		})
	c.Flags().Var((*given)(&node), "evict", "if the owner is the `NODE` with this ID, remove it from the fleet although it is alive")
	c.Flags().BoolVar(&t.unclaimed, "unclaimed", false, "take a plan that an engine without a fleet began; that engine must not run any more")
	c.Flags().BoolVar(&t.external, "external", false, "take a plan from the engine of another kind that places it; that engine must not run any more")
	c.Flags().BoolVar(&t.wait, "wait", false, "wait until a node has taken the plan")
	return a.signed(c)
}

// takenOver is the report of takeover.
type takenOver struct {
	ID        uuid.UUID  `json:"id" help:"the plan's ID"`
	From      *uuid.UUID `json:"from,omitempty" help:"the node from which it was taken"`
	External  string     `json:"external,omitempty" help:"the engine of another kind that placed it"`
	Fenced    bool       `json:"fenced" help:"whether that node can't write to it any more"`
	Evicted   bool       `json:"evicted" help:"whether that node was removed from the fleet"`
	Owner     *uuid.UUID `json:"owner,omitempty" help:"the node that has taken the plan since"` // a node that has taken it
	OwnerName string     `json:"ownerName,omitempty" help:"the name of that node"`
	Returned  bool       `json:"returned,omitempty" help:"whether the evicted process has taken it again"`
	Epoch     int64      `json:"epoch" help:"how often an owner has taken it"`
	Status    string     `json:"status" help:"its status"`
	LiveNodes int        `json:"liveNodes" help:"how many nodes are alive that can take it"`

	message string
}

// takeover evicts the owner of a plan if the flags say so, and hands the plan over.
func (a *app) takeover(ctx context.Context, v *azblob.Vault, id uuid.UUID, t takeover) error {
	reached := a.progress("takeover", "plan", 0).then(untouched)
	defer reached.end()
	before, err := lookUp(ctx, v, id)
	if err != nil {
		return err
	}
	evicted := false
	switch t.evict {
	case uuid.Nil:
	case before.Owner:
		if evicted, err = a.evict(ctx, v, t.evict, reached); err != nil {
			return err
		}
	default:
		owner, err := a.nodeNamed(ctx, v, before.Owner)
		if err != nil {
			return err
		}
		return fmt.Errorf("plan %s is %s, and its owner is %s, not node %s: nothing was changed; --evict wants the owner, if it is alive",
			id, before.State.Status, owner, t.evict)
	}
	reached.then("run it again, which is safe; if the plan is fenced already, a live node takes it when its TTL has passed")
	a.remark("Taking plan %s over. This usually takes less than a minute. An interrupt is safe.", id)
	by, err := a.asks(ctx, v)
	if err != nil {
		return err
	}
	h, err := fleet.HandOver(ctx, v, id, fleet.HandOverOptions{By: by, Name: "planvault takeover", TakeUnclaimed: t.unclaimed, External: t.external})
	switch {
	case errors.Is(err, fleet.ErrOwned), evicted && errors.Is(err, storage.ErrInvalid):
		return a.notHandedOver(ctx, v, before, evicted, err)
	case err != nil:
		return err
	}
	report := takenOverOf(id, h)
	report.Evicted = evicted
	reached.then("the plan is fenced, and a live node takes it").at(1)
	if t.wait {
		if err := a.awaitTaker(ctx, v, h, &report); err != nil {
			return fmt.Errorf("plan %s is fenced in epoch %d, but not known to be taken: %w", id, h.Epoch, err)
		}
	}
	return a.printTakenOver(report)
}

// rejoinTime is how long an evicted process has to join again and take its plan, while no other node is alive.
const rejoinTime = time.Minute

// awaitTaker waits until a node has taken a plan that was handed over, if any node may.
func (a *app) awaitTaker(ctx context.Context, v *azblob.Vault, h fleet.Handover, r *takenOver) error {
	if h.Status.Final() || h.Asleep || len(h.Live) == 0 && !r.Evicted {
		return nil
	}
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	if len(h.Live) == 0 {
		time.AfterFunc(rejoinTime, cancel)
	}
	taken, err := a.await(wait, v, r.ID, func(p storage.ListResult) bool { return p.Epoch > h.Epoch || p.State.Status.Final() })
	switch {
	case err == nil:
		return a.take(ctx, v, r, taken)
	case wait.Err() != nil && ctx.Err() == nil: // nobody came
		return nil
	}
	return err
}

// nodeNamed returns what people call the owner of a plan: by its name, if it has a record.
func (a *app) nodeNamed(ctx context.Context, v *azblob.Vault, id uuid.UUID) (string, error) {
	if id == uuid.Nil {
		return "no node", nil
	}
	m, err := v.Control().FindMember(ctx, id)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return "", err
	}
	return called(id, m.Name), nil
}

// called is what people call a node.
func called(id uuid.UUID, name string) string {
	if name == "" {
		return "node " + id.String()
	}
	return fmt.Sprintf("node %s (%s)", printable(name, 40), id)
}

// takenOverOf returns the report about a handover.
func takenOverOf(id uuid.UUID, h fleet.Handover) takenOver {
	from := nodeOrEngine(h.From)
	if h.External != "" {
		from = printable(h.External, 60)
	}
	message := fmt.Sprintf("Plan %s is fenced from %s, in epoch %d. %s", id, from, h.Epoch, whoTakes(len(h.Live)))
	switch {
	case h.Asleep && len(h.Live) > 0:
		message = fmt.Sprintf("The fleet places plan %s, and no longer %s. It goes on when it is due.", id, from)
	case h.Asleep:
		message = fmt.Sprintf("The fleet places plan %s, and no longer %s. %s", id, from, whoTakes(0))
	case h.Status.Final():
		message = fmt.Sprintf("Plan %s is %s. Its former owner has just ended it.", id, h.Status)
	}
	return takenOver{ID: id, From: known(h.From), External: h.External, Fenced: !h.Asleep, Epoch: h.Epoch, Status: h.Status.String(), LiveNodes: len(h.Live), message: message}
}

// take notes that a node has taken the plan, and which process that is.
func (a *app) take(ctx context.Context, v *azblob.Vault, r *takenOver, p storage.ListResult) error {
	r.Owner, r.Epoch, r.Status = known(p.Owner), p.Epoch, p.State.Status.String()
	if p.Owner == uuid.Nil {
		r.message = fmt.Sprintf("Plan %s is %s, in epoch %d.", p.ID, r.Status, p.Epoch)
		return nil
	}
	m, err := v.Control().FindMember(ctx, p.Owner)
	if err != nil && !errors.Is(err, storage.ErrNotFound) { // it may have left since
		return err
	}
	r.OwnerName = m.Name
	r.message = fmt.Sprintf("Plan %s was taken by %s, which joined at %s, in epoch %d. It is %s.", p.ID, called(p.Owner, m.Name), stamp(m.Started), p.Epoch, r.Status)
	if r.From != nil && m.Former == *r.From {
		r.Returned = true
		r.message += fmt.Sprintf("\nThat is the process of node %s again: it joined as a new node, and the plan went back to it. If it hangs again, end the process.", m.Former)
	}
	return nil
}

func (a *app) printTakenOver(r takenOver) error {
	err := a.print(r, func(w io.Writer) { fmt.Fprintln(w, r.message) })
	if waits := r.Fenced && r.LiveNodes == 0 && r.Owner == nil; err == nil && r.Status == "Running" && (waits || r.Returned) {
		return errFound
	}
	return err
}

func nodeOrEngine(from uuid.UUID) string {
	if from == uuid.Nil {
		return "an engine without a fleet"
	}
	return "node " + from.String()
}

// whoTakes says who takes a plan that was handed over.
func whoTakes(live int) string {
	switch live {
	case 0:
		return "No node is alive: the plan waits for the next engine that joins the fleet."
	case 1:
		return "1 node is alive. It takes the plan soon."
	}
	return fmt.Sprintf("%d nodes are alive. One of them takes the plan soon.", live)
}

// notHandedOver reports that another node has taken the plan or ended it. Otherwise it returns the error.
func (a *app) notHandedOver(ctx context.Context, v *azblob.Vault, before storage.ListResult, evicted bool, err error) error {
	now, lookErr := lookUp(ctx, v, before.ID)
	switch {
	case lookErr == nil && (now.Epoch != before.Epoch || now.State.Status.Final()):
		report := takenOver{ID: before.ID, From: known(before.Owner), Evicted: evicted}
		if err := a.take(ctx, v, &report, now); err != nil {
			return err
		}
		return a.printTakenOver(report)
	case before.External != "":
		return fmt.Errorf("%w; planvault show says how to ask it; if it is gone for ever, give --external", err)
	case before.Owner == uuid.Nil:
		return fmt.Errorf("%w; if that engine does not run any more, start it again, or give --unclaimed", err)
	}
	return fmt.Errorf("%w; if it hangs, restart it, or give --evict %s", err, before.Owner)
}

// evict removes a node from the fleet if it is alive. It first lists the plans that the node owns.
func (a *app) evict(ctx context.Context, v *azblob.Vault, node uuid.UUID, reached *progress) (evicted bool, err error) {
	i, err := fleet.Inspect(ctx, v, fleet.InspectOptions{Older: readNone})
	if err != nil {
		return false, err
	}
	m := memberOf(i, node)
	if m == nil || !m.Alive {
		return false, nil
	}
	name := called(node, m.Member.Name)
	for _, p := range i.Plans {
		if p.Plan.Owner == node {
			fmt.Fprintf(a.stderr, "%s owns plan %s  %s\n", name, p.Plan.ID, printable(p.Plan.Name, 60))
		}
	}
	requests := price.Tally{azblob.ClassRead: 1, azblob.ClassWrite: 1}
	if err := a.confirm(ctx, change{doing: "evict " + name, what: plural(m.Plans, "plan"), requests: requests}); err != nil {
		return false, err
	}
	reached.then("the node may be evicted; run it again, which is safe")
	by, err := a.asks(ctx, v)
	if err == nil {
		err = fleet.Evict(ctx, v, node, fleet.EvictOptions{By: by})
	}
	if errors.Is(err, storage.ErrNotFound) { // it has just left
		err = nil
	}
	return err == nil, err
}
