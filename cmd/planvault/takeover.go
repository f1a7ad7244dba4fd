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
	evict, unclaimed, wait bool
}

// takeoverCommand fences a plan from its owner.
func (a *app) takeoverCommand() *cobra.Command {
	var t takeover
	c := &cobra.Command{
		Use:   "takeover ID",
		Short: "Fence a plan from its owner, and hand it to the live nodes",
		Long: `Takeover is for a Running plan whose owner does not work on it any more, and which no node has taken
by itself. It joins the fleet, fences the plan and leaves, so that the live nodes take the plan.
After the fence, the store refuses all that the former owner writes. Takeover runs nothing itself.

Nodes do this without help within a minute of an owner's death. Look at planvault stuck first.

  - If the owner is gone, takeover fences the plan at once.
  - If it is silent, takeover waits until its record is removed, up to 45 seconds.
  - If it is alive, takeover refuses. When a node hangs but its heartbeats continue, restart its
    process. If you can't, --evict removes the node from the fleet. That fences all its plans, so
    takeover lists them and wants --yes. The process may join again as a new node.
  - If an engine without a fleet began the plan, takeover refuses, because nothing shows whether
    that engine is alive. If it is not, start it again: it continues. To hand the plan to a fleet
    instead, give --unclaimed.

Takeover stays until the live nodes have seen it, 15 seconds by default. An interrupt is safe at any
time: the nodes take the plan when the record of takeover is older than its TTL.

Actions that were running run again, so their plugins must be able to run twice.

The exit code is 4 if the plan is fenced but no node is alive: it waits for the next engine.
Takeover costs a read of the plan, and a write for each of its sub-objects. With --wait, it looks at
the plan every two seconds until a node has taken it.`,
		Example: `  planvault takeover 01a20345-1ca0-7467-a8f6-cb0e5779f255
    Plan 01a20345-1ca0-7467-a8f6-cb0e5779f255 is fenced from node
    01a20345-1cc5-7aa6-a433-feda90ff7ece, in epoch 2. 2 nodes are alive. One of them takes the
    plan soon.

  planvault takeover 01a20345-1ca0-7467-a8f6-cb0e5779f255 --evict --yes --wait
    Node 01a20345-249d-7b4a-8737-e755a80d68b7 has taken plan 01a20345-1ca0-7467-a8f6-cb0e5779f255,
    in epoch 3. The plan is Running.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := parseID("plan", args[0])
			if err != nil {
				return err
			}
			return a.takeover(c.Context(), id, t)
		},
	}
	c.Flags().BoolVar(&t.evict, "evict", false, "if the owner is alive, remove it from the fleet, with all its plans")
	c.Flags().BoolVar(&t.unclaimed, "unclaimed", false, "take a plan that an engine without a fleet began; that engine must not run any more")
	c.Flags().BoolVar(&t.wait, "wait", false, "wait until a node has taken the plan")
	return c
}

// takenOver is the report of takeover.
type takenOver struct {
	ID       uuid.UUID  `json:"id"`
	From     *uuid.UUID `json:"from,omitempty"`
	Fenced   bool       `json:"fenced"`
	Evicted  bool       `json:"evicted"`
	Owner    *uuid.UUID `json:"owner,omitempty"` // a node that has taken it
	Epoch    int64      `json:"epoch"`
	Status   string     `json:"status"`
	LiveNode int        `json:"liveNodes"`

	message string
}

// takeover evicts the owner of a plan if it is alive and may be evicted, and hands the plan over.
func (a *app) takeover(ctx context.Context, id uuid.UUID, t takeover) error {
	v, err := a.vault(ctx)
	if err != nil {
		return err
	}
	a.progress("takeover", "plan", 1).then(goOn)
	o := fleet.InspectOptions{Older: unread}
	if !t.evict {
		o.Plans = []uuid.UUID{id} // the others are of no interest
	}
	i, err := fleet.Inspect(ctx, v, o)
	if err != nil {
		return err
	}
	before, err := lookUp(ctx, v, id)
	if err != nil {
		return err
	}
	evicted, err := a.evict(ctx, v, before, i, t)
	if err != nil {
		return err
	}
	a.remark("Taking plan %s over. This takes up to a minute; an interrupt is safe.", id)
	h, err := fleet.HandOver(ctx, v, id, fleet.HandOverOptions{Name: "planvault takeover", TakeUnclaimed: t.unclaimed})
	if errors.Is(err, fleet.ErrOwned) || errors.Is(err, storage.ErrInvalid) && evicted {
		return a.takenByOther(ctx, v, before, evicted, err)
	}
	if err != nil {
		return err
	}
	report := takenOver{
		ID: id, From: known(h.From), Fenced: true, Evicted: evicted, Epoch: h.Epoch, Status: h.Status.String(), LiveNode: len(h.Live),
		message: fmt.Sprintf("Plan %s is fenced from %s, in epoch %d. %s", id, nodeOrEngine(h.From), h.Epoch, whoTakes(len(h.Live))),
	}
	if h.Status.Final() {
		report.message = fmt.Sprintf("Plan %s is %s. Its former owner has just ended it.", id, h.Status)
	}
	if t.wait && len(h.Live) > 0 && !h.Status.Final() {
		taken, err := a.await(ctx, v, id, func(p storage.ListResult) bool { return p.Epoch > h.Epoch || p.State.Status.Final() })
		if err != nil {
			return fmt.Errorf("plan %s is fenced in epoch %d, but not known to be taken: %w", id, h.Epoch, err)
		}
		report.take(taken)
	}
	return a.printTakenOver(report)
}

// take notes that a node has taken the plan.
func (r *takenOver) take(p storage.ListResult) {
	r.Owner, r.Epoch, r.Status = known(p.Owner), p.Epoch, p.State.Status.String()
	r.message = fmt.Sprintf("Node %s has taken plan %s, in epoch %d. The plan is %s.", p.Owner, p.ID, p.Epoch, r.Status)
}

func (a *app) printTakenOver(r takenOver) error {
	err := a.print(r, func(w io.Writer) { fmt.Fprintln(w, r.message) })
	if err == nil && r.Fenced && r.LiveNode == 0 && r.Status == "Running" {
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

// takenByOther reports that another node has taken the plan or ended it meanwhile. Otherwise it returns the error.
func (a *app) takenByOther(ctx context.Context, v *azblob.Vault, before storage.ListResult, evicted bool, err error) error {
	now, lookErr := lookUp(ctx, v, before.ID)
	if lookErr != nil || now.Epoch == before.Epoch && !now.State.Status.Final() {
		if errors.Is(err, fleet.ErrOwned) && before.Owner != uuid.Nil {
			err = fmt.Errorf("%w; if it hangs, restart it, or give --evict", err)
		} else if before.Owner == uuid.Nil {
			err = fmt.Errorf("%w; if that engine does not run any more, start it again, or give --unclaimed", err)
		}
		return err
	}
	report := takenOver{ID: before.ID, From: known(before.Owner), Evicted: evicted}
	report.take(now)
	return a.printTakenOver(report)
}

// evict removes the owner of a plan from the fleet if it is alive and the flags say so. It first lists the node's
// other plans.
func (a *app) evict(ctx context.Context, v *azblob.Vault, p storage.ListResult, i fleet.Inspection, t takeover) (evicted bool, err error) {
	m := memberOf(i, p.Owner)
	if m == nil || !m.Alive || !t.evict {
		return false, nil
	}
	name := m.ID.String()
	if m.Name != "" {
		name = printable(m.Name, 40) + " (" + name + ")"
	}
	for _, other := range i.Plans {
		if other.Owner == m.ID {
			fmt.Fprintf(a.stderr, "node %s owns plan %s  %s\n", name, other.ID, printable(other.Name, 60))
		}
	}
	err = a.confirm(ctx, change{
		doing: "evict node " + name, what: plural(m.Plans, "plan"),
		requests: price.Tally{azblob.ClassRead: 1, azblob.ClassDelete: 1},
	})
	if err != nil {
		return false, err
	}
	if err := fleet.Evict(ctx, v, m.ID); err != nil && !errors.Is(err, storage.ErrNotFound) {
		return false, err
	}
	return true, nil
}
