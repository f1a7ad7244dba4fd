package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// HandOverOptions are the settings of [HandOver].
type HandOverOptions struct {
	// By says who asks, and why. By.By is required.
	By workflow.Attribution
	// Name is the name of the node that HandOver joins as. Default: empty.
	Name string
	// TakeUnclaimed hands over a plan without an owner and with the epoch 0. An engine without a fleet began it,
	// and nothing shows whether that engine is alive. Set it when that engine does not run any more. Default:
	// false.
	TakeUnclaimed bool
	// External hands over a plan that an engine of another kind places. The fleet places it from then on. A plan that sleeps, is
	// paused, or has not begun stays so, until a node wakes or claims it. Nothing shows whether that engine is at work: its writes are fenced, but its plugins may run on. Default:
	// false.
	External bool
}

// Handover is what [HandOver] did.
type Handover struct {
	// From is the former owner.
	From uuid.UUID
	// External is the Name of the engine of another kind that placed the plan.
	External string
	// Epoch is the epoch of the fence. A node that takes the plan has a higher one.
	Epoch int64
	// Asleep reports whether the plan sleeps, or has not begun: nobody owned it.
	Asleep bool
	// Status is Running, NotStarted, or a final status if the plan ended meanwhile.
	Status workflow.Status
	// Live are the members that were alive when HandOver joined them. If there are none, the plan waits for the
	// next engine that joins.
	Live []storage.Member
}

// HandOver fences a running plan from an owner that is no longer alive, and leaves the plan to the live nodes.
// They take it when they look at the members next. It is for operators: nodes take the plans of an owner that is gone
// by themselves, but leave them alone while they are full.
//
// HandOver joins the fleet as a node, takes the plan, and leaves, so it is safe beside nodes and beside itself.
// It runs nothing of the plan. If the owner's record is older than its TTL, HandOver waits until it is
// marked as left, up to a TTL and an interval.
//
// If ctx ends, or HandOver fails or dies, the plan may be half fenced, and its owner is then the node of
// HandOver. The live nodes take such a plan when that node's record is older than its TTL.
//
// The audit log has it as takeover.
//
// Errors: [storage.ErrInvalid] if By does not say who asks; [ErrAsleep]; [ErrOwned] if the owner is alive, see [Evict], if
// another node has taken the plan meanwhile, if an engine of another kind places it and External is not set, or if the plan was
// begun by an engine without a fleet and TakeUnclaimed is not set or no node is alive to take it; [storage.ErrInvalid] if the
// plan is not Running, and no engine of another kind places it; otherwise those of [Join], [Node.Take] and [Node.Leave].
func HandOver(ctx context.Context, vault storage.Vault, plan uuid.UUID, o HandOverOptions) (h Handover, err error) {
	s, err := storeOf("HandOver", vault)
	if err != nil {
		return h, err
	}
	entry := storage.AuditEntry{What: "takeover", By: o.By, Plans: []uuid.UUID{plan}}
	switch {
	case o.TakeUnclaimed:
		entry.Detail = "unclaimed"
	case o.External:
		entry.Detail = "external"
	}
	err = storage.Audit(ctx, s, entry, func(ctx context.Context) error {
		h, err = s.handOver(ctx, plan, o)
		return err
	})
	return h, doing("hand over plan "+plan.String(), err)
}

func (s store) handOver(ctx context.Context, id uuid.UUID, o HandOverOptions) (h Handover, err error) {
	found, err := s.find(ctx, id)
	external := found.External != "" && o.External
	if err == nil && found.State.Status != workflow.Running && found.External == "" {
		err = driver.Invalid("State.Status", "is %s: only a Running plan has an owner", found.State.Status)
	}
	if err != nil {
		return h, err
	}
	roster, err := s.Roster(ctx)
	if err != nil {
		return h, err
	}
	i := inspectRoster(roster)
	var owner *MemberState
	if !external {
		owner, err = i.mayHandOver(found, o.TakeUnclaimed)
	}
	if err != nil {
		return h, err
	}
	h.From, h.External, h.Live = found.Owner, found.External, i.live()
	interval := min(intervalOf(h.Live), DefaultTTL/beats) // others need not wait longer if HandOver dies
	n, err := Join(ctx, s, Options{Name: o.Name, Interval: interval, TTL: beats * interval, TakeUnclaimed: o.TakeUnclaimed, handsOver: external})
	if err != nil {
		return h, err
	}
	err = n.handOver(ctx, id, owner, &h)
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.o.Interval)
	defer cancel()
	if left := n.Leave(leaving); err == nil {
		err = left
	}
	return h, err
}

// handOver takes a plan, after its owner is marked as left.
func (n *Node) handOver(ctx context.Context, id uuid.UUID, owner *MemberState, h *Handover) error {
	if owner != nil {
		if err := n.outlive(ctx, *owner); err != nil {
			return err
		}
	}
	plan, err := n.Take(ctx, id)
	if err == nil {
		h.Epoch, h.Status, h.Asleep = plan.Epoch, plan.State.Status, plan.Owner == uuid.Nil
	}
	return err
}

// find returns what listings show of a plan, or [storage.ErrNotFound].
func (s store) find(ctx context.Context, id uuid.UUID) (storage.ListResult, error) {
	found, err := storage.Collect(s.Search(ctx, storage.Filters{ByIDs: []uuid.UUID{id}}))
	switch {
	case err != nil:
		return storage.ListResult{}, err
	case len(found) == 0:
		return storage.ListResult{}, storage.ErrNotFound
	}
	return found[0], nil
}

// mayHandOver returns an error unless the owner of a running plan is no longer alive. It returns the owner if its
// record is yet to be removed.
func (i Inspection) mayHandOver(p storage.ListResult, takeUnclaimed bool) (owner *MemberState, err error) {
	switch {
	case p.External != "":
		return nil, fmt.Errorf("%w: %s, an engine of another kind, places it", ErrOwned, p.External)
	case p.Asleep():
		return nil, fmt.Errorf("%w until %s: nobody owns it", ErrAsleep, p.WakeAt.UTC().Format(time.RFC3339))
	case p.Owner == uuid.Nil && p.Epoch == 0 && !takeUnclaimed:
		return nil, fmt.Errorf("%w: an engine without a fleet began it", ErrOwned)
	case p.Owner == uuid.Nil && p.Epoch == 0 && i.Alive() == 0:
		return nil, fmt.Errorf("%w: an engine without a fleet began it, and no node is alive to take it; start that engine again", ErrOwned)
	}
	for _, m := range i.Members {
		switch {
		case m.Member.ID != p.Owner, slices.Contains(m.Member.LetGo, p.ID):
		case m.Alive:
			return nil, fmt.Errorf("%w: %s, whose last heartbeat was %s ago", ErrOwned, m.called(), short(m.Silence))
		default:
			return &m, nil
		}
	}
	return nil, nil
}

// live returns the members that are alive.
func (i Inspection) live() (live []storage.Member) {
	for _, m := range i.Members {
		if m.Alive {
			live = append(live, m.Member)
		}
	}
	return live
}

// intervalOf returns an interval within which each of the members looks at the others.
func intervalOf(members []storage.Member) time.Duration {
	if len(members) == 0 {
		return DefaultTTL / beats
	}
	longest := beats * resolution
	for _, m := range members {
		longest = max(longest, ttlOf(m))
	}
	return longest / beats
}

// outlive waits until the record of a silent member is removed. It returns ErrOwned if the member renews it.
func (n *Node) outlive(ctx context.Context, silent MemberState) error {
	ctx, cancel := n.bind(ctx)
	defer cancel()
	for {
		changed := n.view().changed
		if member, _ := n.known(silent.Member.ID); !member {
			return nil
		}
		m, err := n.store.FindMember(ctx, silent.Member.ID)
		switch {
		case err == nil && m.Phase != storage.PhaseLeft && m.Version != silent.Member.Version:
			return fmt.Errorf("%w: %s, which was silent, has renewed its record", ErrOwned, silent.called())
		case err != nil && !errors.Is(err, storage.ErrNotFound) && !transient(err):
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
