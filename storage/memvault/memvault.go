// Package memvault is the reference vault: a storage.Vault in memory, small and plainly right. Engines use it in their unit
// tests, and it shows what the contract means where the words leave a question.
//
// A plan is kept as JSON, so nothing is shared with callers. Each call takes effect at one instant, so there are no unfinished
// creates or deletes, and never an ErrUnknown. All ends with the process.
package memvault

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"sync"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Store is what several vaults can share, as several processes share an account.
type Store struct {
	mu       sync.Mutex // held by every call from beginning to end
	plans    map[uuid.UUID]*record
	versions int // given out so far; one is never given twice
}

// record is what is stored of a plan.
type record struct {
	// tree is the hierarchy, which never changes: a plan of which no field but the IDs and the children is set.
	tree []byte
	// now has each object as it was last written, the plan's too, and shown has the parts as they are read while the plan is
	// NotStarted or final: as it was created or settled.
	now, shown map[uuid.UUID]part
}

// part is an object without its children.
type part struct {
	kind    workflow.Kind
	version string
	text    []byte
}

// NewStore returns an empty store.
func NewStore() *Store { return &Store{plans: map[uuid.UUID]*record{}} }

// Open returns a vault on the store: another node, or the same one started again. The registry names the types of requests
// and responses; with a nil one they are read as json.RawMessage.
func (s *Store) Open(reg *registry.Register, opts ...Option) *Vault {
	v := &Vault{store: s, reg: reg}
	for _, opt := range opts {
		opt(v)
	}
	return v
}

// Option is a setting of a vault.
type Option func(*Vault)

// WithUnversionedUpdates lets updates have an empty State.ETag, for engines that keep no versions: they overwrite whatever
// version is there. Default: an update without a version is ErrInvalid.
func WithUnversionedUpdates() Option { return func(v *Vault) { v.unversioned = true } }

// Vault is a storage.Vault in memory.
type Vault struct {
	store       *Store
	reg         *registry.Register
	unversioned bool
	closed      bool // guarded by store.mu
}

var _ storage.Vault = (*Vault)(nil)

// New returns a vault with a store of its own. The arguments are as with Store.Open.
func New(reg *registry.Register, opts ...Option) *Vault { return NewStore().Open(reg, opts...) }

// Create stores a plan. It first fills in what the author left out.
func (v *Vault) Create(ctx context.Context, plan *workflow.Plan) error {
	var id uuid.UUID
	if plan != nil {
		id = plan.ID
	}
	return v.call(ctx, "Create", &id, func() error {
		if err := driver.CheckNew(plan, v.reg); err != nil {
			return err
		}
		driver.Complete(plan)
		id = plan.ID
		if _, taken := v.store.plans[id]; taken {
			return storage.ErrExists
		}
		tree, err := treeOf(plan)
		if err != nil {
			return driver.Unencodable(plan, true, err)
		}
		now := map[uuid.UUID]part{}
		for o := range workflow.Walk(plan) {
			p, err := v.store.encode(o)
			if err != nil {
				return driver.Unencodable(plan, true, err)
			}
			now[*o.Header().ID] = p
		}
		v.store.plans[id] = &record{tree: tree, now: now, shown: maps.Clone(now)}
		for o := range workflow.Walk(plan) {
			h := o.Header()
			h.State.ETag = now[*h.ID].version
		}
		return nil
	})
}

// Exists says whether there is a plan of this ID.
func (v *Vault) Exists(ctx context.Context, id uuid.UUID) (found bool, err error) {
	err = v.call(ctx, "Exists", &id, func() error {
		_, found = v.store.plans[id]
		return nil
	})
	return found, err
}

// Read returns the whole plan: while it is Running with its parts as they were last written, else with its parts as they were
// when it was created or became final.
func (v *Vault) Read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	plan := new(workflow.Plan)
	err := v.call(ctx, "Read", &id, func() error {
		r, err := v.find(id)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(r.tree, plan); err != nil {
			return corrupt(err)
		}
		if err := json.Unmarshal(r.now[id].text, plan); err != nil {
			return corrupt(err)
		}
		parts := r.shown
		if plan.State.Status == workflow.Running {
			parts = r.now
		}
		for o, parent := range workflow.Walk(plan) {
			if parent == nil {
				continue // read already
			}
			if err := json.Unmarshal(parts[*o.Header().ID].text, o); err != nil {
				return corrupt(err)
			}
		}
		return driver.Bind(plan, v.reg)
	})
	if err != nil {
		return nil, err
	}
	return plan, nil
}

// UpdatePlan stores the plan's own fields; with a final status all its parts too, as they are given.
func (v *Vault) UpdatePlan(ctx context.Context, plan *workflow.Plan) error {
	return update(ctx, v, "UpdatePlan", plan)
}

// UpdateChecks stores the checks' own fields.
func (v *Vault) UpdateChecks(ctx context.Context, checks *workflow.Checks) error {
	return update(ctx, v, "UpdateChecks", checks)
}

// UpdateBlock stores the block's own fields.
func (v *Vault) UpdateBlock(ctx context.Context, block *workflow.Block) error {
	return update(ctx, v, "UpdateBlock", block)
}

// UpdateSequence stores the sequence's own fields.
func (v *Vault) UpdateSequence(ctx context.Context, sequence *workflow.Sequence) error {
	return update(ctx, v, "UpdateSequence", sequence)
}

// UpdateAction stores the action with its attempts.
func (v *Vault) UpdateAction(ctx context.Context, action *workflow.Action) error {
	return update(ctx, v, "UpdateAction", action)
}

// UpdateDeferredActions stores the deferred actions' own fields.
func (v *Vault) UpdateDeferredActions(ctx context.Context, deferred *workflow.DeferredActions) error {
	return update(ctx, v, "UpdateDeferredActions", deferred)
}

// UpdateDeferBatch stores the batch's own fields.
func (v *Vault) UpdateDeferBatch(ctx context.Context, batch *workflow.DeferBatch) error {
	return update(ctx, v, "UpdateDeferBatch", batch)
}

func update[T any, P interface {
	*T
	workflow.Object
}](ctx context.Context, v *Vault, op string, o P) error {
	var id uuid.UUID
	if o != nil {
		id = *o.Header().PlanID
	}
	return v.call(ctx, op, &id, func() error {
		if o == nil {
			return driver.Invalid(op, "is nil")
		}
		h := o.Header()
		if err := driver.CheckUpdate(o, v.reg, v.unversioned); err != nil {
			return err
		}
		r, err := v.find(id)
		if err != nil {
			return err
		}
		stored, found := r.now[*h.ID]
		if !found || stored.kind != o.Kind() {
			return fmt.Errorf("%w: there is no %s %s in the plan", storage.ErrNotFound, o.Kind(), *h.ID)
		}
		if h.State.ETag != "" && h.State.ETag != stored.version { // none is refused above, but for unversioned updates
			return fmt.Errorf("%w: version %s is stored, not %s", storage.ErrConflict, stored.version, h.State.ETag)
		}
		p, err := v.store.encode(o)
		if err != nil {
			return driver.Unencodable(o, false, err)
		}
		if plan, ok := any(o).(*workflow.Plan); ok && plan.State.Status.Final() {
			if err := r.settle(plan); err != nil {
				return err
			}
		}
		r.now[*h.ID] = p
		h.State.ETag = p.version
		return nil
	})
}

// settle takes a plan's parts as they are given, with the versions that they carry.
func (r *record) settle(plan *workflow.Plan) error {
	shown := maps.Clone(r.now)
	for o := range workflow.Walk(plan) {
		text, err := json.Marshal(alone(o))
		if err != nil {
			return driver.Unencodable(plan, true, err)
		}
		shown[*o.Header().ID] = part{kind: o.Kind(), text: text}
	}
	r.shown = shown
	return nil
}

// Delete removes a plan with all its parts.
func (v *Vault) Delete(ctx context.Context, id uuid.UUID) error {
	return v.call(ctx, "Delete", &id, func() error {
		_, err := v.find(id)
		if err == nil {
			delete(v.store.plans, id)
		}
		return err
	})
}

// Recovery has nothing to do.
func (v *Vault) Recovery(ctx context.Context) error {
	return v.call(ctx, "Recovery", new(uuid.UUID), func() error { return nil })
}

// Close makes later calls return ErrClosed. The store stays as it is. A sequence that is ranged over ends with ErrClosed.
func (v *Vault) Close(context.Context) error {
	v.store.mu.Lock() // so that no call is under way
	defer v.store.mu.Unlock()
	v.closed = true
	return nil
}

// call runs a method with the store to itself, and finishes its error. The plan's ID may become known on the way.
func (v *Vault) call(ctx context.Context, op string, id *uuid.UUID, do func() error) error {
	v.store.mu.Lock()
	defer v.store.mu.Unlock()
	err := ctx.Err()
	if v.closed {
		err = storage.ErrClosed
	}
	if err == nil {
		err = do()
	}
	if err != nil {
		return &storage.Error{Op: op, Plan: *id, Err: err}
	}
	return nil
}

func (v *Vault) find(id uuid.UUID) (*record, error) {
	if err := driver.CheckID(id); err != nil {
		return nil, err
	}
	r, found := v.store.plans[id]
	if !found {
		return nil, storage.ErrNotFound
	}
	return r, nil
}

// encode makes a new version of an object.
func (s *Store) encode(o workflow.Object) (part, error) {
	s.versions++
	version := driver.Version(strconv.Itoa(s.versions), o)
	o = alone(o)
	o.Header().State.ETag = version
	text, err := json.Marshal(o)
	return part{o.Kind(), version, text}, err
}

// treeOf encodes a plan's hierarchy.
func treeOf(plan *workflow.Plan) ([]byte, error) {
	text, err := json.Marshal(plan)
	if err != nil {
		return nil, err
	}
	var t tree
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, corrupt(err)
	}
	return json.Marshal(t)
}

// tree is the part of an object's JSON that leads to its children.
type tree struct {
	ID              uuid.UUID `json:"id"`
	BypassChecks    *tree     `json:"bypassChecks,omitempty"`
	PreChecks       *tree     `json:"preChecks,omitempty"`
	ContChecks      *tree     `json:"contChecks,omitempty"`
	PostChecks      *tree     `json:"postChecks,omitempty"`
	DeferredChecks  *tree     `json:"deferredChecks,omitempty"`
	Blocks          []*tree   `json:"blocks,omitempty"`
	Sequences       []*tree   `json:"sequences,omitempty"`
	Actions         []*tree   `json:"actions,omitempty"`
	DeferredActions *tree     `json:"deferredActions,omitempty"`
	Batches         []*tree   `json:"batches,omitempty"`
}

// alone copies an object without its children.
func alone(o workflow.Object) workflow.Object {
	switch o := o.(type) {
	case *workflow.Plan:
		c := *o
		c.Blocks, c.DeferredActions = nil, nil
		return withoutChecks(&c)
	case *workflow.Block:
		c := *o
		c.Sequences = nil
		return withoutChecks(&c)
	case *workflow.Checks:
		c := *o
		c.Actions = nil
		return &c
	case *workflow.Sequence:
		c := *o
		c.Actions = nil
		return &c
	case *workflow.Action:
		c := *o
		return &c
	case *workflow.DeferredActions:
		c := *o
		c.Batches = nil
		return &c
	case *workflow.DeferBatch:
		c := *o
		c.Actions = nil
		return &c
	}
	panic(fmt.Sprintf("memvault: an object of an unknown type %T", o))
}

func withoutChecks(o workflow.Object) workflow.Object {
	for _, c := range workflow.ChecksOf(o) {
		*c = nil
	}
	return o
}

func corrupt(err error) error { return fmt.Errorf("%w: %w", storage.ErrCorrupt, err) }
