package main

import (
	"context"
	"errors"
	"fmt"
	"io"

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
}

// takeoverCommand fences a plan from its owner.
func (a *app) takeoverCommand() *cobra.Command {
	var t takeover
	var node string
	c := a.onPlan("takeover ID", "Fence a plan from its owner, and hand it to the live nodes",
		func(ctx context.Context, v *azblob.Vault, id uuid.UUID) (err error) {
			if node != "" {
				if t.evict, err = parseID("node", node); err != nil {
					return err
				}
			}
			return a.takeover(ctx, v, id, t)
		})
	c.Flags().StringVar(&node, "evict", "", "if the owner is the `NODE` with this ID, remove it from the fleet although it is alive")
	c.Flags().BoolVar(&t.unclaimed, "unclaimed", false, "take a plan that an engine without a fleet began; that engine must not run any more")
	c.Flags().BoolVar(&t.wait, "wait", false, "wait until a node has taken the plan")
	return c
}

// takenOver is the report of takeover.
type takenOver struct {
	ID        uuid.UUID  `json:"id"`
	From      *uuid.UUID `json:"from,omitempty"`
	Fenced    bool       `json:"fenced"`
	Evicted   bool       `json:"evicted"`
	Owner     *uuid.UUID `json:"owner,omitempty"` // a node that has taken it
	Epoch     int64      `json:"epoch"`
	Status    string     `json:"status"`
	LiveNodes int        `json:"liveNodes"`

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
	if before.Owner != uuid.Nil && before.Owner == t.evict {
		if evicted, err = a.evict(ctx, v, t.evict, reached); err != nil {
			return err
		}
	}
	reached.then("run it again, which is safe; if the plan is fenced already, a live node takes it when its TTL has passed")
	a.remark("Taking plan %s over. This usually takes less than a minute. An interrupt is safe.", id)
	h, err := fleet.HandOver(ctx, v, id, fleet.HandOverOptions{Name: "planvault takeover", TakeUnclaimed: t.unclaimed})
	switch {
	case errors.Is(err, fleet.ErrOwned), evicted && errors.Is(err, storage.ErrInvalid):
		return a.notHandedOver(ctx, v, before, t, evicted, err)
	case err != nil:
		return err
	}
	report := takenOverOf(id, h)
	report.Evicted = evicted
	reached.then("the plan is fenced, and a live node takes it").at(1)
	if t.wait && len(h.Live) > 0 && !h.Status.Final() {
		taken, err := a.await(ctx, v, id, func(p storage.ListResult) bool { return p.Epoch > h.Epoch || p.State.Status.Final() })
		if err != nil {
			return fmt.Errorf("plan %s is fenced in epoch %d, but not known to be taken: %w", id, h.Epoch, err)
		}
		report.take(taken)
	}
	return a.printTakenOver(report)
}

// takenOverOf returns the report about a handover.
func takenOverOf(id uuid.UUID, h fleet.Handover) takenOver {
	message := fmt.Sprintf("Plan %s is fenced from %s, in epoch %d. %s", id, nodeOrEngine(h.From), h.Epoch, whoTakes(len(h.Live)))
	if h.Status.Final() {
		message = fmt.Sprintf("Plan %s is %s. Its former owner has just ended it.", id, h.Status)
	}
	return takenOver{ID: id, From: known(h.From), Fenced: true, Epoch: h.Epoch, Status: h.Status.String(), LiveNodes: len(h.Live), message: message}
}

// take notes that a node has taken the plan.
func (r *takenOver) take(p storage.ListResult) {
	r.Owner, r.Epoch, r.Status = known(p.Owner), p.Epoch, p.State.Status.String()
	r.message = fmt.Sprintf("Node %s has taken plan %s, in epoch %d. The plan is %s.", p.Owner, p.ID, p.Epoch, r.Status)
}

func (a *app) printTakenOver(r takenOver) error {
	err := a.print(r, func(w io.Writer) { fmt.Fprintln(w, r.message) })
	if err == nil && r.Fenced && r.LiveNodes == 0 && r.Status == "Running" {
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
func (a *app) notHandedOver(ctx context.Context, v *azblob.Vault, before storage.ListResult, t takeover, evicted bool, err error) error {
	now, lookErr := lookUp(ctx, v, before.ID)
	meanwhile := now.Epoch != before.Epoch || now.State.Status.Final()
	earlier := t.evict != uuid.Nil && now.Owner != uuid.Nil && now.Owner != t.evict // since somebody decided to evict
	switch {
	case lookErr == nil && (meanwhile || earlier):
		report := takenOver{ID: before.ID, From: known(before.Owner), Evicted: evicted}
		report.take(now)
		return a.printTakenOver(report)
	case before.Owner == uuid.Nil:
		return fmt.Errorf("%w; if that engine does not run any more, start it again, or give --unclaimed", err)
	}
	return fmt.Errorf("%w; if it hangs, restart it, or give --evict %s", err, before.Owner)
}

// evict removes a node from the fleet if it is alive. It first lists the plans that it owns.
func (a *app) evict(ctx context.Context, v *azblob.Vault, node uuid.UUID, reached *progress) (evicted bool, err error) {
	i, err := fleet.Inspect(ctx, v, fleet.InspectOptions{Older: readNone})
	if err != nil {
		return false, err
	}
	m := memberOf(i, node)
	if m == nil || !m.Alive {
		return false, nil
	}
	name := node.String()
	if m.Name != "" {
		name = printable(m.Name, 40) + " (" + name + ")"
	}
	for _, p := range i.Plans {
		if p.Owner == node {
			fmt.Fprintf(a.stderr, "node %s owns plan %s  %s\n", name, p.ID, printable(p.Name, 60))
		}
	}
	requests := price.Tally{azblob.ClassRead: 1, azblob.ClassWrite: 1}
	if err := a.confirm(ctx, change{doing: "evict node " + name, what: plural(m.Plans, "plan"), requests: requests}); err != nil {
		return false, err
	}
	reached.then("the node may be evicted; run it again, which is safe")
	if err := fleet.Evict(ctx, v, node); err != nil && !errors.Is(err, storage.ErrNotFound) {
		return false, err
	}
	return true, nil
}
